// Leaves to lose something of: cut from a real KV cache, or made of numbers of every size; and what came of them.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/crypto/random.h"
#include "codec/coded/leaf_codec.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::test {

// tests/data/kv/smollm2_bf16.bin: [30 layers][K, V][3 heads][16 tokens][64] of bf16; empty if it is not there.
inline std::vector<std::byte> real_cache(const std::string& data) {
  std::ifstream file(data + "/kv/smollm2_bf16.bin", std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::byte> out(bytes.size());
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), out.size());
  return out;
}

inline float float_of_half(uint16_t h) {
  const int exponent = h >> 10 & 31;
  const float sign = (h & 0x8000) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) return (h & 0x3FF) != 0 ? NAN : sign * INFINITY;
  const auto mantissa = static_cast<float>(h & 0x3FF);
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

inline double value_at(codec::Element element, const std::byte* raw, size_t i) {
  if (element == codec::Element::fp32) return static_cast<double>(std::bit_cast<float>(load_le<uint32_t>(raw + 4 * i)));
  const auto bits = load_le<uint16_t>(raw + 2 * i);
  if (element == codec::Element::fp16) return static_cast<double>(float_of_half(bits));
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

inline size_t bytes_of(codec::Element element) { return element == codec::Element::fp32 ? 4 : 2; }

// Values around a mean of each place in the row, some places much larger than others; the same on every machine.
inline std::vector<std::byte> made_leaf(codec::Element element, size_t values, uint32_t row, uint64_t seed) {
  SeededRandom random(seed);
  std::vector<std::byte> out(values * bytes_of(element));
  std::vector<std::byte> noise(values * 4);
  random.fill(noise);
  for (size_t i = 0; i < values; ++i) {
    const auto place = static_cast<float>(i % std::max(row, 1U) % 7);
    const auto bits = load_le<uint32_t>(noise.data() + 4 * i);
    const float uniform = static_cast<float>(bits >> 8) * 0x1p-24F + static_cast<float>(bits & 255U) * 0x1p-8F - 1.0F;
    const float x = (uniform * 0.5F + (place - 3) * 0.125F) * (place == 5 ? 16.0F : 1.0F);
    if (element == codec::Element::fp32) {
      store_le(out.data() + 4 * i, std::bit_cast<uint32_t>(x));
    } else if (element == codec::Element::bf16) {
      store_le(out.data() + 2 * i, static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
    } else {
      const auto b = std::bit_cast<uint32_t>(x);
      const uint32_t magnitude = b & 0x7FFFFFFFU;
      const uint32_t half = magnitude < 0x38800000U ? 0 : (magnitude - 0x38000000U) >> 13;
      store_le(out.data() + 2 * i, static_cast<uint16_t>((b >> 16 & 0x8000U) | half));
    }
  }
  return out;
}

struct Lost {
  codec::Encoded encoded;
  std::vector<std::byte> stored;
  std::vector<std::byte> decoded;
  double difference = 0;  // counted here
  double value = 0;
  [[nodiscard]] double relative() const { return difference / value; }
};

// Codes and decodes one leaf; `decoded` is empty if either failed or a byte outside was written.
inline Lost lose(const codec::LeafForm& form, codec::Mode mode, ConstBytes raw) {
  static codec::Workspace workspace;
  Lost lost;
  std::vector<std::byte> room(codec::encode_room(raw.size()) + 128, std::byte{0xA5});
  auto* const aligned = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(room.data()), 64));
  const auto coded =
      codec::encode_leaf(form, mode, raw, codec::leaf_hash(raw), {aligned, codec::encode_room(raw.size())}, workspace);
  if (!coded.ok()) return lost;
  lost.encoded = coded.value();
  if (lost.encoded.codec == codec::LeafCodec::raw) {
    lost.decoded.assign(raw.begin(), raw.end());
    return lost;
  }
  lost.stored.assign(aligned, aligned + lost.encoded.bytes);
  std::vector<std::byte> back(raw.size() + 128, std::byte{0x5A});
  const MutableBytes target(back.data() + 64, raw.size());
  if (!codec::decode_leaf(lost.encoded.codec, lost.stored, target, workspace).ok()) return lost;
  for (size_t i = 0; i < 64; ++i) {
    if (back[i] != std::byte{0x5A} || back[back.size() - 1 - i] != std::byte{0x5A}) return lost;
  }
  if (codec::raw_hash_of(lost.stored) != codec::leaf_hash(target)) return lost;
  lost.decoded.assign(target.begin(), target.end());
  for (size_t i = 0; i < raw.size() / bytes_of(form.element); ++i) {
    const double x = value_at(form.element, raw.data(), i);
    const double off = value_at(form.element, lost.decoded.data(), i) - x;
    lost.difference += off * off;
    lost.value += x * x;
  }
  return lost;
}

}  // namespace kvbm::test
