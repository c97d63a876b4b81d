// Converts elements and small numbers to and from float, one value at a time, by integer arithmetic only. The vector
// kernels must equal this bit for bit. Formulas: codec/README.md, "Lossy leaves".
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "codec/leaf/leaf_form.h"

namespace kvbm::codec {

// A power of two as a float, -126 <= n <= 127.
constexpr float power_of_two(int n) noexcept { return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23); }

constexpr float half_to_float(uint16_t h) noexcept {
  const uint32_t sign = (h & 0x8000U) << 16;
  const uint32_t magnitude = h & 0x7FFFU;
  if (magnitude >= 0x7C00U) return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
  if (magnitude >= 0x400U) return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
  const float tiny = static_cast<float>(magnitude) * power_of_two(-24);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(tiny) | sign);
}

// Rounds to nearest, ties to even; too large values become infinite. Never called with a NaN.
constexpr uint16_t float_to_half(float f) noexcept {
  const auto bits = std::bit_cast<uint32_t>(f);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude >= 0x477FF000U) return static_cast<uint16_t>(sign | 0x7C00U);
  if (magnitude >= 0x38800000U) {
    return static_cast<uint16_t>(sign | (magnitude - (112U << 23) + 0xFFFU + (magnitude >> 13 & 1U)) >> 13);
  }
  // A float near 0.5 has the unit 2^-24, that of the denormal halves, so adding rounds to it.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
}

// 8-bit floats with `kMantissa` bits of mantissa and no infinities or NaNs.
template <int kMantissa>
struct SmallFloat {
  static constexpr int kBias = kMantissa == 3 ? 7 : 15;
  static constexpr uint32_t kShift = 23 - kMantissa;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  static constexpr uint32_t kLeastNormal = static_cast<uint32_t>(128 - kBias) << 23;  // bits of 2^(1 - bias)
  static constexpr float kDenormalUnit = power_of_two(1 - kBias - kMantissa);
  static constexpr float kDenormalShift = power_of_two(24 - kBias - kMantissa);

  static constexpr uint8_t encode(float f) noexcept {
    const auto bits = std::bit_cast<uint32_t>(f);
    const uint32_t sign = bits >> 24 & 0x80U;
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude >= kLeastNormal) {
      const uint32_t half = (1U << (kShift - 1)) - 1 + (magnitude >> kShift & 1U);
      return static_cast<uint8_t>(sign | (magnitude - kRebias + half) >> kShift);
    }
    const float shifted = std::bit_cast<float>(magnitude) + kDenormalShift;
    return static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kDenormalShift)));
  }

  static constexpr float decode(uint8_t code) noexcept {
    const uint32_t sign = static_cast<uint32_t>(code & 0x80U) << 24;
    const uint32_t magnitude = code & 0x7FU;
    if (magnitude >= 1U << kMantissa) return std::bit_cast<float>(sign | ((magnitude << kShift) + kRebias));
    const float tiny = static_cast<float>(magnitude) * kDenormalUnit;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(tiny) | sign);
  }
};

// Returns the nearest whole number, ties to even, of |v| < 2^22: adding 1.5 * 2^23 leaves it in the low bits.
inline int32_t nearest(float v) noexcept {
  return static_cast<int32_t>(std::bit_cast<uint32_t>(v + 12582912.0F) - 0x4B400000U);
}

template <Element kElement>
inline constexpr size_t kElementBytes = kElement == Element::fp32 ? 4 : 2;

template <Element kElement>
float read_value(const std::byte* raw, size_t i) noexcept {
  if constexpr (kElement == Element::fp32) return std::bit_cast<float>(load_le<uint32_t>(raw + 4 * i));
  const auto bits = load_le<uint16_t>(raw + 2 * i);
  if constexpr (kElement == Element::fp16) return half_to_float(bits);
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// bf16: rounds to nearest, ties away from zero.
template <Element kElement>
float write_value(std::byte* raw, size_t i, float f) noexcept {
  if constexpr (kElement == Element::fp32) {
    store_le(raw + 4 * i, std::bit_cast<uint32_t>(f));
    return f;
  } else if constexpr (kElement == Element::fp16) {
    const uint16_t half = float_to_half(f);
    store_le(raw + 2 * i, half);
    return half_to_float(half);
  } else {
    const uint32_t rounded = (std::bit_cast<uint32_t>(f) + 0x8000U) & 0xFFFF0000U;
    store_le(raw + 2 * i, static_cast<uint16_t>(rounded >> 16));
    return std::bit_cast<float>(rounded);
  }
}

}  // namespace kvbm::codec
