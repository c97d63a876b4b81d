// `kvbm codec` as people use it: files come back, nothing is overwritten, each bad input is named.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "support/run_command.h"
#include "support/temp_dir.h"

namespace kvbm::test::codec_command_test {
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
  [[nodiscard]] Ran codec(const std::string& arguments) const {
    return run("codec " + arguments, " 2>&1", "cd '" + dir_.path() + "' &&");
  }
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
  const std::string safe = R"({"a":{"dtype":"BF16","shape":[8],"data_offsets":[0,16]}})";
  const std::string length(1, static_cast<char>(safe.size()));
  put("good.safetensors", length + std::string(7, '\0') + safe + std::string(16, '\1'));
  put("cut.safetensors", length + std::string(7, '\0') + safe.substr(0, 30));
  put("claims.safetensors", std::string(7, '\0') + "\x10" + safe);
  struct Case {
    const char* arguments;
    const char* says;
  };
  for (const Case& bad :
       {Case{"compress cut.npy", "cut short"}, Case{"compress text", "neither .npy nor safetensors"},
        Case{"compress missing.npy", "missing.npy"}, Case{"compress kv.npy --mode lz5", "no codec mode is called lz5"},
        Case{"compress kv.bin --element f17", "f17"},
        Case{"compress kv.bin --element bf16 --shape 7,7", "shape does not fit"},
        Case{"compress kv.bin --element bf16 --shape 7,x", "not a shape"},
        Case{"decompress kv.npy -o x", "not a .kvbmz"}, Case{"decompress cut.kvbmz", "ends in its header"},
        Case{"compress .", "plain file"},
        Case{"compress cut.safetensors", "safetensors header is larger than the file"},
        Case{"compress claims.safetensors", "safetensors header is larger than the file"},
        Case{"compress good.safetensors --shape 3", "--format raw"},
        Case{"bench good.safetensors --row 9", "more than the 8 values"},
        Case{"compress kv.npy -o - --json", "standard output"}}) {
    const Ran ran = codec(bad.arguments);
    EXPECT_EQ(ran.exit_code, 2) << bad.arguments;
    EXPECT_TRUE(contains(ran.text, "kvbm: error: ")) << ran.text;
    EXPECT_TRUE(contains(ran.text, bad.says)) << bad.arguments << ": " << ran.text;
  }
  EXPECT_FALSE(std::filesystem::exists(at("cut.npy.kvbmz")));
}

// The bench command must describe a row as the compress command handles it.
TEST_F(CodecCommand, a_row_is_used_or_refused) {
  const auto coded = [&](const std::string& row) {
    const Ran file = codec("compress kv.bin --element bf16 --force --json " + row);
    const Ran table = codec("bench kv.bin --element bf16 --json --rounds 1 --modes default " + row);
    EXPECT_EQ(file.exit_code, 0) << file.text;
    EXPECT_EQ(table.exit_code, 0) << table.text;
    if (file.exit_code != 0 || table.exit_code != 0) return uint64_t{0};
    const auto packed = nlohmann::json::parse(file.text);
    const auto measured = nlohmann::json::parse(table.text);
    EXPECT_EQ(packed.at("tensors"), measured.at("tensors"));
    const uint64_t bytes = measured.at("modes").at(0).at("coded_bytes").get<uint64_t>();
    // A plain file as standard input is read from its present position, and decoded to the same bytes.
    EXPECT_LE(packed.at("compressed_bytes").get<uint64_t>(), bytes + 64 + 192 + 64);
    EXPECT_GT(packed.at("compressed_bytes").get<uint64_t>(), bytes);
    return bytes;
  };
  EXPECT_LT(coded("--row 1024"), coded("") * 95 / 100)
      << "16 tokens of a head: 1024 values after which the same comes again";
}

TEST_F(CodecCommand, a_row_that_cannot_be_is_refused_by_both) {
  put("ids.bin", std::string(4096, '\1'));
  struct Case {
    const char* arguments;
    const char* says;
  };
  for (const Case& bad :
       {Case{"kv.bin --element bf16 --row 0", "at least one value"}, Case{"kv.bin --element bf16 --row -1", "--row"},
        Case{"kv.bin --element bf16 --row 7", "no multiple"},
        Case{"kv.bin --element fp32 --row 30720", "no more than 16384"},
        Case{"kv.bin --element bf16 --row 184321", "more than the 184320 values"},
        Case{"kv.bin --element bf16 --row x", "--row"}, Case{"ids.bin --element bytes --row 64", "no channels"}}) {
    for (const char* verb : {"compress ", "bench --rounds 1 "}) {
      const Ran ran = codec(verb + std::string(bad.arguments));
      EXPECT_EQ(ran.exit_code, 2) << verb << bad.arguments;
      EXPECT_TRUE(contains(ran.text, bad.says)) << ran.text;
    }
  }
}

TEST_F(CodecCommand, takes_pipes_as_standard_input_and_no_device) {
  ASSERT_EQ(std::system(("mkfifo '" + at("pipe") + "'").c_str()), 0);
  const Ran pipe = run("codec compress pipe -o out", " 2>&1", "cd '" + dir_.path() + "' && timeout -s KILL 120");
  EXPECT_EQ(pipe.exit_code, 2);
  EXPECT_TRUE(contains(pipe.text, "a pipe, not a plain file; give -")) << pipe.text;
  EXPECT_EQ(codec("compress - -o out --element bytes </dev/zero").exit_code, 2);
  EXPECT_EQ(codec("compress - -o out --element bytes <.").exit_code, 2);
  EXPECT_TRUE(contains(codec("compress - -o out </dev/null").text, "standard input"));
  EXPECT_FALSE(std::filesystem::exists(at("out")));
  const Ran piped = run("codec compress - -o out", " 2>&1", "cd '" + dir_.path() + "' && cat kv.npy |");
  EXPECT_EQ(piped.exit_code, 0) << piped.text;
  EXPECT_EQ(codec("decompress out -o again --force").exit_code, 0);
  EXPECT_TRUE(slurp(at("again")) == npy_);
  // A plain file is read from where it stands, and is known as what is written.
  EXPECT_EQ(run("codec compress - -o rest --element bf16 --format raw", "; exit $?) <kv.npy 2>&1",
                "cd '" + dir_.path() + "' && (head -c 128 >/dev/null;")
                .exit_code,
            0);
  EXPECT_EQ(codec("decompress rest -o rest.bin").exit_code, 0);
  EXPECT_TRUE(slurp(at("rest.bin")) == npy_.substr(128));
  const Ran same = codec("compress - -o kv.npy --force <kv.npy");
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_TRUE(contains(same.text, "the output is the input")) << same.text;
}

TEST_F(CodecCommand, an_output_that_cannot_be_written_is_an_error_and_leaves_nothing) {
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(dir_.path()), std::filesystem::directory_iterator());
  };
  const auto before = files();
  const Ran large = run("codec compress kv.npy", " 2>&1", "ulimit -f 100; cd '" + dir_.path() + "' &&");
  EXPECT_EQ(large.exit_code, 1) << large.text;
  EXPECT_TRUE(contains(large.text, "kv.npy.kvbmz: File too large")) << large.text;
  const std::string there = "cd '" + dir_.path() + "' &&";
  const Ran full = run("codec compress kv.npy -o -", " 2>&1 >/dev/full", there);
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_TRUE(contains(full.text, "standard output")) << full.text;
  EXPECT_EQ(run("codec bench kv.npy --rounds 1 --modes off --json", " 2>&1 >/dev/full", there).exit_code, 1);
  EXPECT_EQ(codec("compress kv.npy -o /dev/null --force").exit_code, 2);
  EXPECT_EQ(codec("compress kv.npy -o no/such/folder").exit_code, 2);
  EXPECT_EQ(files(), before);
}

TEST_F(CodecCommand, writes_no_coded_bytes_to_a_terminal) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0)
    GTEST_SKIP() << "a terminal: the system gives none";
  const std::string to = std::string(" 2>&1 >") + ::ptsname(terminal);
  const Ran ran = run("codec compress kv.npy -o -", to.c_str(), "cd '" + dir_.path() + "' && timeout -s KILL 120");
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_TRUE(contains(ran.text, "is a terminal")) << ran.text;
  ::close(terminal);
}

TEST_F(CodecCommand, a_lossy_mode_is_refused_where_nothing_can_lose) {
  for (const char* element : {"bytes", "fp8_e4m3", "int8"}) {
    const Ran ran = codec(std::string("compress kv.bin --mode int8 --element ") + element);
    EXPECT_EQ(ran.exit_code, 2);
    EXPECT_TRUE(contains(ran.text, std::string("int8 is for bf16, fp16 and fp32, and this is ") + element)) << ran.text;
  }
  for (const char* mode : {"off", "fast", "default", "max", "zstd"}) {
    EXPECT_EQ(codec(std::string("compress kv.bin --force --element bytes --mode ") + mode).exit_code, 0);
    EXPECT_EQ(codec("decompress kv.bin.kvbmz --force").exit_code, 0);
    EXPECT_TRUE(slurp(at("kv.bin")) == npy_.substr(128)) << mode;
  }
}

TEST_F(CodecCommand, tensors_that_lost_nothing_are_named_as_a_terminal_bears_it) {
  const std::string json = R"({"k":{"dtype":"BF16","shape":[512,64],"data_offsets":[0,65536]},)"
                           R"("\u001b[2J":{"dtype":"I64","shape":[8],"data_offsets":[65536,65600]}})";
  const std::string length{static_cast<char>(json.size()), '\0', '\0', '\0', '\0', '\0', '\0', '\0'};
  put("mixed", length + json + slurp(at("kv.bin")).substr(0, 65600));
  const Ran text = codec("compress mixed --mode int8");
  EXPECT_EQ(text.exit_code, 0) << text.text;
  EXPECT_TRUE(contains(text.text, "in \"?[2J\" (1 of 1)")) << text.text;
  const Ran table = codec("bench mixed --modes int8,int6,default --rounds 1");
  EXPECT_TRUE(contains(table.text, "int8, int6 were not used for 1 of ")) << table.text;
  EXPECT_EQ(text.text.find('\x1b'), std::string::npos);
  EXPECT_EQ(table.text.find('\x1b'), std::string::npos);
  for (const char* arguments :
       {"compress mixed --mode int8 --force --json", "decompress mixed.kvbmz -o back --force --allow-lossy --json"}) {
    const Ran ran = codec(arguments);
    ASSERT_EQ(ran.exit_code, 0) << ran.text;
    const auto kept = nlohmann::json::parse(ran.text).at("kept_lossless");
    EXPECT_EQ(kept.at("no_float"), 1) << kept;
    ASSERT_EQ(kept.at("tensors").size(), 1U) << kept;
    EXPECT_EQ(kept.at("tensors").at(0).at("name"), "\x1b[2J") << kept;
    EXPECT_EQ(kept.at("tensors").at(0).at("blocks"), 1) << kept;
  }
}

TEST_F(CodecCommand, bench_says_how_much_it_measured) {
  const Ran part = codec("bench kv.npy --modes off --rounds 1 --limit 100kB");
  EXPECT_TRUE(contains(part.text, "measured (--limit)")) << part.text;
  const auto json =
      nlohmann::json::parse(codec("bench kv.bin --element bf16 --modes off --rounds 1 --limit 100KiB --json").text);
  EXPECT_EQ(json.at("measured_bytes"), 102'400);
  EXPECT_EQ(json.at("tensor_bytes"), 368'640);
  EXPECT_FALSE(contains(codec("bench kv.npy --modes off --rounds 1").text, "(--limit)"));
  for (const char* bad : {"64K", "-1", "0", "''", "10%", "99999999PiB"}) {
    const Ran ran = codec(std::string("bench kv.npy --modes off --rounds 1 --limit ") + bad);
    EXPECT_EQ(ran.exit_code, 2) << bad;
    EXPECT_TRUE(contains(ran.text, "--limit")) << ran.text;
  }
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

TEST_F(CodecCommand, bench_takes_the_smallest_files) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (), }";
  header.resize(118, ' ');
  put("scalar.npy", std::string("\x93NUMPY\x01\0\x76\0", 10) + header + std::string("\0\0\x80\x3F", 4));
  const std::string safe = R"({"a":{"dtype":"BF16","shape":[8],"data_offsets":[0,16]}})";
  put("small.safetensors",
      std::string(1, static_cast<char>(safe.size())) + std::string(7, '\0') + safe + std::string(16, '\1'));
  for (const char* file : {"scalar.npy", "small.safetensors"}) {
    const Ran ran = codec(std::string("bench --json --rounds 1 ") + file);
    ASSERT_EQ(ran.exit_code, 0) << ran.text;
    EXPECT_EQ(nlohmann::json::parse(ran.text).at("modes").size(), 14U);
  }
}

TEST_F(CodecCommand, a_lossy_mode_that_is_not_used_is_said_with_the_reason) {
  put("nan.raw", std::string("\xC0\x7F", 2) + slurp(at("kv.bin")).substr(0, 65534));
  const Ran ran = codec("compress nan.raw --element bf16 --mode int8");
  EXPECT_EQ(ran.exit_code, 0) << ran.text;
  EXPECT_TRUE(contains(ran.text, "exact")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "int8 was not used for 1 of 1 blocks")) << ran.text;
  EXPECT_TRUE(contains(ran.text, "1 with an infinity or a NaN")) << ran.text;
  const Ran json = codec("compress nan.raw --element bf16 --mode int8 --force --json");
  EXPECT_EQ(nlohmann::json::parse(json.text).at("kept_lossless").at("not_finite"), 1) << json.text;
  const Ran table = codec("bench nan.raw --element bf16 --modes int8 --rounds 1");
  EXPECT_TRUE(contains(table.text, "not used")) << table.text;
}

// The ratios that docs/codec.md promises of KV in bf16 and fp16; speeds are a benchmark's. Where the KV of 512 tokens
// is not here, made-up values show that every row is.
TEST_F(CodecCommand, benchmark_tells_every_mode_and_keeps_its_ratios) {
  const char* given = std::getenv("KVBMTEST_SHARED_DATA");
  const std::string shared = given != nullptr ? given : KVBM_TEST_DATA "/../../../shared/data";
  const bool real = std::filesystem::exists(shared + "/smollm2_kv_bf16.npy") &&
                    std::filesystem::exists(shared + "/smollm2_kv_fp16.npy");
  std::string inputs;
  for (const char* type : {"bf16", "fp16"}) {
    if (real) inputs += " --input '" + shared + "/smollm2_kv_" + type + ".npy'";
  }
  const Ran ran = run("bench codec --rounds 1 --json" + inputs, " 2>/dev/null");
  ASSERT_EQ(ran.exit_code, 0) << ran.text;
  std::map<std::string, double> rows;
  for (const auto& row : nlohmann::json::parse(ran.text)) {
    EXPECT_TRUE(rows.emplace(row.at("name").get<std::string>(), row.at("value").get<double>()).second) << row;
  }
  struct Bar {
    const char* name;
    double made_up, real;
  };
  for (const Bar& bar : {Bar{"codec.bf16_lossless.ratio", 1.40, 1.485}, Bar{"codec.bf16_fast.ratio", 1.35, 1.41},
                         Bar{"codec.bf16_max.ratio", 1.40, 1.52}, Bar{"codec.fp8_lossless.ratio", 1.1, 1.18},
                         Bar{"codec.bf16_lossless_16tok.ratio", 1.3, 1.4}, Bar{"codec.int8.ratio", 1.95, 1.95},
                         Bar{"codec.int8_coded.ratio", 2.0, 2.05}, Bar{"codec.int6.ratio", 2.6, 2.6},
                         Bar{"codec.int6_coded.ratio", 2.6, 2.8}, Bar{"codec.int8_16tok.ratio", 1.6, 1.6}}) {
    ASSERT_TRUE(rows.contains(bar.name)) << bar.name;
    EXPECT_GE(rows[bar.name], real ? bar.real : bar.made_up) << bar.name;
  }
  for (const char* name : {"codec.bf16_lossless.compress", "codec.bf16_fast.decompress", "codec.int8.decompress",
                           "codec.seal", "codec.open"}) {
    EXPECT_GT(rows[name], 0) << name;
  }
  if (!real) GTEST_SKIP() << "ratios of real KV: no smollm2_kv_*.npy (KVBMTEST_SHARED_DATA names their folder)";
  EXPECT_GE(rows["codec.fp16_lossless.ratio"], 1.18);
  EXPECT_GE(rows["codec.fp16_cast_lossless.ratio"], 1.17);
  EXPECT_LE(rows["codec.int8.relative_mse_k"], 3e-5);
  EXPECT_LE(rows["codec.int8.relative_mse_v"], 6.5e-5);
}

TEST_F(CodecCommand, benchmark_names_an_input_that_it_cannot_take) {
  put("cut.npy", npy_.substr(0, 5000));
  for (const char* arguments :
       {"bench codec --input cut.npy", "bench codec --input missing.npy", "bench codec_path --input cut.npy"}) {
    const Ran ran = run(arguments, " 2>&1", "cd '" + dir_.path() + "' &&");
    EXPECT_EQ(ran.exit_code, 2) << arguments;
    EXPECT_TRUE(contains(ran.text, ".npy: ")) << ran.text;
  }
  const Ran twice = run("bench codec --rounds 1 --input kv.npy --input kv.npy", " 2>&1", "cd '" + dir_.path() + "' &&");
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_TRUE(contains(twice.text, "of one type")) << twice.text;
}

}  // namespace
}  // namespace kvbm::test::codec_command_test
