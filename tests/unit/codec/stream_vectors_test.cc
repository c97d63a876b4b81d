// Coded streams that are kept in tests/data/vectors/codec.json (make_codec_vectors.py): what once was coded stays
// readable.
#include <gtest/gtest.h>
#include <openssl/sha.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codec/coded/coded_stream.h"
#include "codec/lossless/zstd_leaf.h"

namespace kvbm::codec::stream_vectors_test {
namespace {

nlohmann::json vectors() {
  std::ifstream file(std::string(KVBM_TEST_DATA) + "/vectors/codec.json");
  return nlohmann::json::parse(file);
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

std::string sha256(ConstBytes bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  std::string out;
  for (const unsigned char byte : digest) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", byte);
    out += text;
  }
  return out;
}

TEST(StreamVectors, decode_to_what_they_were_with_every_kernel) {
  const nlohmann::json all = vectors();
  size_t n = 0;
  for (const char* kernel : {"avx512", "bmi2", "portable"}) {
    if (!force_codec_kernel(kernel)) continue;
    for (const auto& item : all.at("streams")) {
      const auto name = item.at("name").get<std::string>();
      const auto coded = from_hex(item.at("coded"));
      const auto view = StreamView::parse(coded);
      ASSERT_TRUE(view.ok()) << name << ": " << view.status().message();
      const StreamInfo& info = view.value().info();
      EXPECT_EQ(info.lossy, item.at("lossy").get<bool>()) << name;
      EXPECT_EQ(info.form.row, item.at("row").get<uint32_t>()) << name;
      std::vector<std::byte> out(info.raw_bytes);
      Workspace workspace;
      const Status done = view.value().decode(info.lossy, out, workspace);
      if (done.code() == Code::unsupported && !has_zstd()) continue;
      ASSERT_TRUE(done.ok()) << name << " with " << kernel << ": " << done.message();
      EXPECT_EQ(sha256(out), item.at("decoded_sha256").get<std::string>()) << name << " with " << kernel;
      ++n;
    }
  }
  force_codec_kernel(nullptr);
  EXPECT_GE(n, has_zstd() ? 56U : 40U);
}

TEST(StreamVectors, refuse_what_must_be_refused) {
  const nlohmann::json all = vectors();
  ASSERT_EQ(all.at("refused").size(), 6U);
  for (const auto& item : all.at("refused")) {
    const auto coded = from_hex(item.at("coded"));
    const auto view = StreamView::parse(coded);
    Workspace workspace;
    std::vector<std::byte> out(view.ok() ? view.value().info().raw_bytes : 0);
    const Status done = view.ok() ? view.value().decode(true, out, workspace) : view.status();
    EXPECT_EQ(static_cast<int>(done.code()), item.at("status").get<int>()) << item.at("name");
  }
}

}  // namespace
}  // namespace kvbm::codec::stream_vectors_test
