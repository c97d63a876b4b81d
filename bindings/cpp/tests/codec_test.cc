// Coding of buffers: the same bytes as in every language, and never wrong ones.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <kvbm.hpp>
#include <nlohmann/json.hpp>
#include <random>

namespace {

namespace codec = kvbm::codec;
using Bytes = std::vector<uint8_t>;
constexpr uint32_t kDim = 64, kTokens = 96;

kvbm_codec_options_t form() {
  auto out = codec::options();
  out.element = KVBM_ELEMENT_BF16, out.row_elements = kDim, out.rows = kTokens;
  return out;
}

// bf16 as [head][token][dim]: the high halves of normal floats.
Bytes page() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Bytes out(4 * kTokens * kDim * 2);
  for (std::size_t i = 0; i < out.size(); i += 2) {
    const float value = normal(random);
    std::memcpy(&out[i], reinterpret_cast<const char*>(&value) + 2, 2);
  }
  return out;
}

template <class Call>
kvbm_status_t thrown(Call&& call) {
  try {
    call();
  } catch (const kvbm::Error& error) {
    return error.status();
  }
  return KVBM_OK;
}

Bytes from_hex(const std::string& hex) {
  Bytes out;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    out.push_back(static_cast<uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

uint32_t rotated(uint32_t x, int n) { return x >> n | x << (32 - n); }

// The first 32 bits of the fractions of cube roots of primes: FIPS 180-4, 4.2.2.
std::array<uint32_t, 64> sha256_constants() {
  std::array<uint32_t, 64> out{};
  uint32_t prime = 2;
  for (uint32_t& value : out) {
    const long double root = std::cbrt(static_cast<long double>(prime));
    value = static_cast<uint32_t>((root - std::floor(root)) * 4294967296.0L);
    bool composite = true;
    while (composite) {
      ++prime, composite = false;
      for (uint32_t d = 2; d * d <= prime; ++d) composite = composite || prime % d == 0;
    }
  }
  return out;
}

// FIPS 180-4, 6.2.
std::string sha256(Bytes data) {
  static const auto k = sha256_constants();
  uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint64_t bits = data.size() * 8;
  data.push_back(0x80);
  while (data.size() % 64 != 56) data.push_back(0);
  for (int shift = 56; shift >= 0; shift -= 8) data.push_back(static_cast<uint8_t>(bits >> shift));
  for (std::size_t at = 0; at < data.size(); at += 64) {
    uint32_t w[64], s[8];
    for (std::size_t i = 0; i < 16; ++i) {
      const uint8_t* b = &data[at + 4 * i];
      w[i] = uint32_t{b[0]} << 24 | uint32_t{b[1]} << 16 | uint32_t{b[2]} << 8 | b[3];
    }
    for (std::size_t i = 16; i < 64; ++i) {
      w[i] = w[i - 16] + w[i - 7] + (rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3) +
             (rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10);
    }
    std::copy(h, h + 8, s);
    for (std::size_t i = 0; i < 64; ++i) {
      const uint32_t one = s[7] + (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) +
                           ((s[4] & s[5]) ^ (~s[4] & s[6])) + k[i] + w[i];
      const uint32_t two =
          (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      std::copy_backward(s, s + 7, s + 8);
      s[4] += one, s[0] = one + two;
    }
    for (std::size_t i = 0; i < 8; ++i) h[i] += s[i];
  }
  char text[65];
  for (std::size_t i = 0; i < 8; ++i) std::snprintf(text + 8 * i, 9, "%08x", h[i]);
  return text;
}

nlohmann::json vectors() {
  std::ifstream in(VECTORS);
  return nlohmann::json::parse(in);
}

TEST(Vectors, decode_to_their_bytes) {
  ASSERT_EQ(sha256({'a', 'b', 'c'}), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const nlohmann::json all = vectors();
  for (const auto& stream : all.at("streams")) {
    SCOPED_TRACE(stream.at("name"));
    const Bytes coded = from_hex(stream.at("coded"));
    const kvbm_codec_info_t info = codec::inspect(coded);
    EXPECT_EQ(info.mode, codec::mode(stream.at("mode")));
    EXPECT_EQ(info.row_elements, stream.at("row"));
    EXPECT_EQ(info.rows, stream.at("rows"));
    EXPECT_EQ(info.lossy != 0, stream.at("lossy"));
    EXPECT_EQ(info.raw_bytes, stream.at("raw_bytes"));
    EXPECT_EQ(info.coded_bytes, coded.size());
    EXPECT_EQ(sha256(codec::decode(coded, KVBM_CODEC_ALLOW_LOSSY)), stream.at("decoded_sha256"));
    EXPECT_EQ(thrown([&] { codec::decode(coded); }), stream.at("lossy") ? KVBM_ERR_PERMISSION : KVBM_OK);
  }
}

TEST(Vectors, that_are_wrong_are_refused) {
  const nlohmann::json all = vectors();
  for (const auto& refused : all.at("refused")) {
    SCOPED_TRACE(refused.at("name"));
    const Bytes coded = from_hex(refused.at("coded"));
    EXPECT_EQ(thrown([&] { codec::decode(coded, KVBM_CODEC_ALLOW_LOSSY); }), refused.at("status"));
  }
}

TEST(Codec, gives_back_every_bit_of_lossless_modes) {
  const Bytes raw = page();
  for (uint32_t mode = KVBM_CODEC_OFF; mode <= KVBM_CODEC_ZSTD; ++mode) {
    const Bytes coded = codec::encode(raw, mode, form());
    EXPECT_EQ(codec::mode(kvbm_codec_mode_name(mode)), mode);
    EXPECT_EQ(codec::inspect(coded).mode, mode);
    EXPECT_EQ(coded.size() < raw.size() * 9 / 10, mode != KVBM_CODEC_OFF);
    EXPECT_EQ(codec::decode(coded), raw);
  }
  EXPECT_EQ(codec::decode(codec::encode(Bytes())), Bytes());
}

TEST(Codec, writes_into_the_callers_memory) {
  const Bytes raw = page();
  Bytes room(codec::room(raw.size(), form())), back(raw.size());
  const std::size_t n = codec::encode(raw, room, KVBM_CODEC_FAST, form());
  EXPECT_EQ(Bytes(room.begin(), room.begin() + static_cast<std::ptrdiff_t>(n)),
            codec::encode(raw, KVBM_CODEC_FAST, form()));
  EXPECT_EQ(codec::decode(kvbm::Span<const uint8_t>(room.data(), n), back), raw.size());
  EXPECT_EQ(back, raw);
  back.pop_back();
  EXPECT_EQ(thrown([&] { codec::decode(kvbm::Span<const uint8_t>(room.data(), n), back); }), KVBM_ERR_NO_ROOM);
  EXPECT_EQ(thrown([&] { codec::encode(raw, kvbm::Span<uint8_t>(room.data(), 16)); }), KVBM_ERR_NO_ROOM);
}

TEST(Codec, asks_before_it_gives_back_what_lost_something) {
  const Bytes coded = codec::encode(page(), KVBM_CODEC_INT8, form());
  const kvbm_codec_info_t info = codec::inspect(coded);
  EXPECT_EQ(info.lossy, 1u);
  EXPECT_GT(info.error_ppb, 0u);
  EXPECT_EQ(thrown([&] { codec::decode(coded); }), KVBM_ERR_PERMISSION);
  EXPECT_EQ(codec::decode(coded, KVBM_CODEC_ALLOW_LOSSY).size(), page().size());
}

TEST(Codec, gives_the_right_bytes_or_none_of_a_changed_buffer) {
  const Bytes raw = page();
  Bytes coded = codec::encode(raw, KVBM_CODEC_DEFAULT, form());
  int refused = 0;
  for (std::size_t i = 0; i < coded.size(); i += i < 128 ? 1 : 977) {
    coded[i] ^= 0x24;
    try {
      EXPECT_EQ(codec::decode(coded), raw);
    } catch (const kvbm::Error&) {
      ++refused;
    }
    coded[i] ^= 0x24;
  }
  EXPECT_GT(refused, 50);
  coded.pop_back();
  EXPECT_EQ(thrown([&] { codec::inspect(coded); }), KVBM_ERR_DAMAGED);
}

TEST(Codec, refuses_modes_and_forms_that_there_are_not) {
  const Bytes raw(64);
  auto wrong = form();
  wrong.element = 99;
  EXPECT_EQ(thrown([&] { codec::mode("best"); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { codec::encode(raw, 7); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { codec::encode(raw, KVBM_CODEC_FAST, wrong); }), KVBM_ERR_INVALID);
  EXPECT_EQ(thrown([&] { codec::decode(codec::encode(raw), 1u << 31); }), KVBM_ERR_INVALID);
}

}  // namespace
