#include "codec/coded/leaf_codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/crypto/random.h"
#include "codec/hash/leaf_hash.h"
#include "codec/lossless/planar.h"
#include "codec/lossless/planar_rows.h"
#include "codec/lossless/zstd_leaf.h"

namespace kvbm::codec::leaf_codec_test {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr const char* kWithoutZstd = "LeafCodec: built without zstd";
constexpr Mode kLossless[] = {Mode::fast, Mode::standard, Mode::max, Mode::zstd};
constexpr Element kElements[] = {Element::bytes,    Element::bf16,     Element::fp16, Element::fp32,
                                 Element::fp8_e4m3, Element::fp8_e5m2, Element::int8};

// Codes and decodes; the decoded bytes and everything around them must be as they were. Returns the stored size.
size_t round_trip(const LeafForm& form, Mode mode, ConstBytes raw) {
  static Workspace workspace;
  std::vector<std::byte> room(encode_room(raw.size()) + 128, std::byte{0xA5});
  auto* const aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(room.data()), 64));
  const uint64_t hash = leaf_hash(raw);
  const auto coded = encode_leaf(form, mode, raw, hash, {aligned, encode_room(raw.size())}, workspace);
  EXPECT_TRUE(coded.ok()) << coded.status().message();
  if (!coded.ok() || coded.value().codec == LeafCodec::raw) return raw.size();
  EXPECT_LT(coded.value().bytes, raw.size());
  EXPECT_EQ(0U, coded.value().bytes % kCodedLeafUnit);
  const ConstBytes stored(aligned, coded.value().bytes);
  EXPECT_EQ(hash, raw_hash_of(stored));
  std::vector<std::byte> back(raw.size() + 128, std::byte{0x5A});
  const Status status = decode_leaf(coded.value().codec, stored, {back.data() + 64, raw.size()}, workspace);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(std::equal(raw.begin(), raw.end(), back.begin() + 64));
  EXPECT_TRUE(std::all_of(back.begin(), back.begin() + 64, [](std::byte b) { return b == std::byte{0x5A}; }));
  EXPECT_TRUE(std::all_of(back.end() - 64, back.end(), [](std::byte b) { return b == std::byte{0x5A}; }));
  return coded.value().bytes;
}

std::vector<std::byte> random_bytes(size_t bytes, uint64_t seed) {
  std::vector<std::byte> out(bytes);
  SeededRandom random(seed);
  random.fill(out);
  return out;
}

TEST(LeafCodec, names_lead_to_modes_and_back) {
  for (const char* name : {"off", "fast", "default", "max", "zstd", "fp8_e4m3", "int8", "int6_coded", "delta"}) {
    const auto mode = mode_by_name(name);
    ASSERT_TRUE(mode.has_value()) << name;
    EXPECT_EQ(name, mode_name(*mode));
  }
  EXPECT_FALSE(mode_by_name("").has_value());
  EXPECT_FALSE(mode_by_name("standard ").has_value());
}

std::vector<std::byte> real_kv() {
  std::ifstream in(std::string(KVBM_TEST_DATA) + "/kv/smollm2_bf16.bin", std::ios::binary);
  std::vector<std::byte> out(kMaxLeafBytes);
  in.read(reinterpret_cast<char*>(out.data()), static_cast<std::streamsize>(out.size()));
  EXPECT_TRUE(in.good());
  return out;
}

// Heads of 48 in rooms of 64, unused heads, what is sparse: zeros are no exponents that a tree of a few could hold.
TEST(LeafCodec, where_zeros_abound_no_slow_mode_loses_to_zstd) {
  if (!has_zstd()) GTEST_SKIP() << kWithoutZstd;
  constexpr size_t kRow = 64;
  using IsZero = bool (*)(size_t i);
  constexpr IsZero kZeros[] = {
      [](size_t i) { return i % kRow >= 48; },
      [](size_t i) { return i % kRow < 32; },
      [](size_t i) { return i / kRow % 3 != 0; },
      [](size_t i) { return (i * 2654435761U >> 8 & 1) != 0; },
  };
  for (const IsZero is_zero : kZeros) {
    auto bf16 = real_kv();
    std::vector<std::byte> fp32(kMaxLeafBytes);
    for (size_t i = 0; i < bf16.size() / 2; ++i) {
      if (is_zero(i)) store_le(bf16.data() + 2 * i, uint16_t{0});
      if (i < fp32.size() / 4) store_le(fp32.data() + 4 * i, uint32_t{load_le<uint16_t>(bf16.data() + 2 * i)} << 16);
    }
    for (const Element element : {Element::bf16, Element::fp32}) {
      const auto& raw = element == Element::bf16 ? bf16 : fp32;
      const LeafForm form{element, kRow, 256};
      const size_t zstd = round_trip(form, Mode::zstd, raw);
      EXPECT_LE(round_trip(form, Mode::standard, raw), zstd * 8 / 7);
      const size_t most = round_trip(form, Mode::max, raw);
      EXPECT_LE(most, zstd);
      EXPECT_LE(most, round_trip(form, Mode::fast, raw));
    }
  }
}

// A leaf with few zeros stays with the coder that decodes fast.
TEST(LeafCodec, real_kv_is_coded_by_exponents) {
  const auto raw = real_kv();
  Workspace workspace;
  std::vector<std::byte> room(encode_room(raw.size()) + 64);
  auto* const aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(room.data()), 64));
  for (const Mode mode : {Mode::fast, Mode::standard, Mode::max}) {
    const auto coded =
        encode_leaf({Element::bf16, 64, 512}, mode, raw, leaf_hash(raw), {aligned, encode_room(raw.size())}, workspace);
    ASSERT_TRUE(coded.ok());
    EXPECT_EQ(coded.value().codec, LeafCodec::planar);
  }
}

// Rows of which no two are equal, though all are equal in the bytes that are sampled. Comparing each with each would
// take seconds, so the search must be given up.
TEST(LeafCodec, rows_that_only_seem_equal_are_not_all_compared) {
  constexpr uint32_t kRow = 32;  // values
  auto raw = random_bytes(kMaxLeafBytes, kSeed);
  for (size_t at = 0; at < raw.size(); at += 2 * kRow) {
    for (const size_t same : {0U, 24U, 48U})
      std::fill_n(raw.begin() + static_cast<ptrdiff_t>(at + same), 16, std::byte{0});
  }
  LeafRows rows;
  std::vector<std::byte> different(raw.size());
  EXPECT_FALSE(find_equal_rows({Element::bf16, kRow, 1024}, raw, rows, different.data()));
  EXPECT_LT(rows.different, 128U) << "given up early";
  std::copy_n(raw.begin(), raw.size() / 2, raw.begin() + static_cast<ptrdiff_t>(raw.size() / 2));
  for (size_t at = 0; at < raw.size(); at += 2 * kRow) raw[at] = static_cast<std::byte>(at / (2 * kRow) % 512 % 251);
  for (size_t at = 0; at < raw.size(); at += 2 * kRow)
    raw[at + 1] = static_cast<std::byte>(at / (2 * kRow) % 512 / 251);
  EXPECT_TRUE(find_equal_rows({Element::bf16, kRow, 1024}, raw, rows, different.data()));
  EXPECT_EQ(rows.different, 512U);
}

TEST(LeafCodec, random_bytes_are_left_raw) {
  for (const Element element : kElements) {
    for (const Mode mode : kLossless) {
      const auto raw = random_bytes(kMaxLeafBytes, kSeed);
      EXPECT_EQ(raw.size(), round_trip({element, 64, 256}, mode, raw)) << static_cast<int>(element);
    }
  }
}

void expect_constants_to_vanish(Element element, Mode mode) {
  for (const int value : {0, 1, 0x80, 0xFF}) {
    const std::vector<std::byte> raw(kMaxLeafBytes, static_cast<std::byte>(value));
    EXPECT_GE(512U, round_trip({element, 64, 256}, mode, raw)) << static_cast<int>(element) << " " << mode_name(mode);
  }
}

bool only_by_zstd(Element element, Mode mode) { return mode == Mode::zstd || !planar_fits(element); }

TEST(LeafCodec, constants_nearly_vanish) {
  for (const Element element : kElements) {
    for (const Mode mode : kLossless) {
      if (!only_by_zstd(element, mode)) expect_constants_to_vanish(element, mode);
    }
  }
}

TEST(LeafCodec, constants_of_any_bytes_nearly_vanish_by_zstd) {
  if (!has_zstd()) GTEST_SKIP() << kWithoutZstd;
  for (const Element element : kElements) {
    for (const Mode mode : kLossless) {
      if (only_by_zstd(element, mode)) expect_constants_to_vanish(element, mode);
    }
  }
}

TEST(LeafCodec, every_length_comes_back) {
  for (const Element element : kElements) {
    for (const Mode mode : kLossless) {
      for (size_t bytes = 1; bytes <= 300; ++bytes) {
        auto raw = random_bytes(bytes, kSeed + bytes);
        for (auto& b : raw) b &= std::byte{0x83};
        round_trip({element, 64, 2}, mode, raw);
      }
      for (size_t bytes : {511, 512, 513, 1023, 4097, 40001, 65535, 65536}) {
        auto raw = random_bytes(bytes, kSeed + bytes);
        for (auto& b : raw) b &= std::byte{0x83};
        round_trip({element, 80, 16}, mode, raw);
      }
    }
  }
}

TEST(LeafCodec, refuses_what_is_no_leaf) {
  Workspace workspace;
  std::vector<std::byte> raw(kMaxLeafBytes + 1);
  std::vector<std::byte> out(encode_room(raw.size()));
  EXPECT_EQ(Code::invalid_argument, encode_leaf({}, Mode::zstd, {}, 0, out, workspace).status().code());
  EXPECT_EQ(Code::invalid_argument, encode_leaf({}, Mode::zstd, raw, 0, out, workspace).status().code());
  EXPECT_EQ(Code::invalid_argument,
            encode_leaf({}, Mode::zstd, ConstBytes(raw).first(100), 0, MutableBytes(out).first(100), workspace)
                .status()
                .code());
  EXPECT_EQ(Code::damaged, decode_leaf(LeafCodec::raw, raw, MutableBytes(raw).first(5), workspace).code());
  EXPECT_FALSE(raw_hash_of(ConstBytes(raw).first(63)).has_value());
}

TEST(LeafCodec, tells_newer_leaves_from_damaged_ones) {
  if (!has_zstd()) GTEST_SKIP() << kWithoutZstd;
  Workspace workspace;
  std::vector<std::byte> raw(4096);
  std::vector<std::byte> out(encode_room(raw.size()));
  const auto coded = encode_leaf({}, Mode::zstd, raw, leaf_hash(raw), out, workspace);
  ASSERT_TRUE(coded.ok());
  ASSERT_EQ(LeafCodec::zstd, coded.value().codec);
  std::vector<std::byte> stored(out.begin(), out.begin() + coded.value().bytes);
  EXPECT_TRUE(decode_leaf(LeafCodec::zstd, stored, raw, workspace).ok());
  EXPECT_EQ(Code::damaged, decode_leaf(LeafCodec::planar, stored, raw, workspace).code());
  EXPECT_EQ(Code::damaged, decode_leaf(LeafCodec::zstd, stored, MutableBytes(raw).first(4095), workspace).code());
  stored[0] = std::byte{2};
  EXPECT_EQ(Code::newer_version, decode_leaf(LeafCodec::zstd, stored, raw, workspace).code());
  stored[0] = std::byte{0};
  EXPECT_EQ(Code::damaged, decode_leaf(LeafCodec::zstd, stored, raw, workspace).code());
}

}  // namespace
}  // namespace kvbm::codec::leaf_codec_test
