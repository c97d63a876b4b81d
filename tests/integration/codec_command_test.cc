// `kvbm codec` as people use it: files come back, nothing is overwritten, each bad input is named.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "support/run_command.h"
#include "support/temp_dir.h"

namespace kvbm::test {
namespace {

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class CodecCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string kv = slurp(std::string(KVBM_TEST_DATA) + "/kv/smollm2_bf16.bin");
    ASSERT_FALSE(kv.empty());
    std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (30, 2, 3, 16, 64), }";
    header.resize(118, ' ');
    npy_ = std::string("\x93NUMPY\x01\0\x76\0", 10) + header + kv;
    put("kv.npy", npy_);
    put("kv.bin", kv);
  }
  void put(const char* name, const std::string& text) const { std::ofstream(at(name), std::ios::binary) << text; }
  [[nodiscard]] std::string at(const std::string& name) const { return dir_.path() + "/" + name; }
  [[nodiscard]] Ran codec(const std::string& arguments) const { return run("codec " + arguments, " 2>&1", "cd '" + dir_.path() + "' &&"); }
  TempDir dir_;
  std::string npy_;
};

TEST_F(CodecCommand, gives_back_the_file) {
  EXPECT_EQ(codec("compress kv.npy").exit_code, 0);
  EXPECT_LT(std::filesystem::file_size(at("kv.npy.kvbmz")), npy_.size() * 8 / 10);
  EXPECT_EQ(codec("decompress kv.npy.kvbmz -o again.npy").exit_code, 0);
  EXPECT_TRUE(slurp(at("again.npy")) == npy_);
  EXPECT_EQ(codec("compress - -o - <kv.npy >piped.kvbmz 2>said; exit $?").exit_code, 0);
  EXPECT_EQ(codec("decompress - -o - <piped.kvbmz >piped.npy 2>said; exit $?").exit_code, 0);
  EXPECT_TRUE(slurp(at("piped.npy")) == npy_);
  const Ran raw = codec("compress kv.bin --element bf16 --shape 180,16,64 --mode max --json");
  EXPECT_EQ(raw.exit_code, 0) << raw.text;
  EXPECT_GT(nlohmann::json::parse(raw.text).at("ratio").get<double>(), 1.2);
}

TEST_F(CodecCommand, overwrites_nothing_unless_that_is_said) {
  EXPECT_EQ(codec("compress kv.npy").exit_code, 0);
  const Ran again = codec("compress kv.npy");
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_TRUE(contains(again.text, "--force")) << again.text;
  EXPECT_EQ(codec("compress kv.npy --force").exit_code, 0);
  EXPECT_EQ(codec("compress kv.npy -o kv.npy --force").exit_code, 2);
  EXPECT_TRUE(slurp(at("kv.npy")) == npy_);
}

TEST_F(CodecCommand, lossy_is_said_at_both_ends) {
  EXPECT_EQ(codec("compress kv.npy --mode int8").exit_code, 2);  // uint16 may be anything
  EXPECT_EQ(codec("compress kv.npy --mode int8 --element bf16").exit_code, 0);
  const Ran refused = codec("decompress kv.npy.kvbmz -o lossy.npy");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.text, "--allow-lossy")) << refused.text;
  EXPECT_FALSE(std::filesystem::exists(at("lossy.npy")));
  EXPECT_EQ(codec("decompress kv.npy.kvbmz -o lossy.npy --allow-lossy").exit_code, 0);
  EXPECT_EQ(std::filesystem::file_size(at("lossy.npy")), npy_.size());
}

TEST_F(CodecCommand, names_what_is_wrong) {
  put("cut.npy", npy_.substr(0, 5000));
  put("text", "this is no tensor");
  put("cut.kvbmz", "KVBMZ\r\n\x1a");
  struct Case {
    const char* arguments;
    const char* says;
  };
  for (const Case& bad : {Case{"compress cut.npy", "cut short"}, Case{"compress text", "neither .npy nor safetensors"},
                          Case{"compress missing.npy", "missing.npy"}, Case{"compress kv.npy --mode lz5", "no codec mode is called lz5"},
                          Case{"compress kv.bin --element f17", "f17"}, Case{"compress kv.bin --element bf16 --shape 7,7", "shape does not fit"},
                          Case{"compress kv.bin --element bf16 --shape 7,x", "not a shape"}, Case{"decompress kv.npy -o x", "not a .kvbmz"},
                          Case{"decompress cut.kvbmz", "ends in its header"}, Case{"compress .", "plain file"},
                          Case{"compress kv.npy -o - --json", "standard output"}}) {
    const Ran ran = codec(bad.arguments);
    EXPECT_EQ(ran.exit_code, 2) << bad.arguments;
    EXPECT_TRUE(contains(ran.text, "kvbm: error: ")) << ran.text;
    EXPECT_TRUE(contains(ran.text, bad.says)) << bad.arguments << ": " << ran.text;
  }
  EXPECT_FALSE(std::filesystem::exists(at("cut.npy.kvbmz")));
}

TEST_F(CodecCommand, bench_tells_every_mode) {
  const Ran ran = run("codec bench '" + at("kv.npy") + "' --json --rounds 1", " 2>/dev/null");
  ASSERT_EQ(ran.exit_code, 0);
  const auto out = nlohmann::json::parse(ran.text);
  ASSERT_EQ(out.at("modes").size(), 14U);
  for (const auto& row : out.at("modes")) {
    EXPECT_GT(row.at("ratio").get<double>(), 0.9) << row;
    EXPECT_EQ(row.at("lossy").get<bool>(), row.at("relative_mse").get<double>() > 0) << row;
  }
  const Ran table = codec("bench kv.npy --modes fast,zstd --rounds 1");
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_TRUE(contains(table.text, "exact")) << table.text;
}

}  // namespace
}  // namespace kvbm::test
