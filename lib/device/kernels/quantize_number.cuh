// Converts elements and small numbers to and from float, one value at a time, as codec/lossy/quantize_number.h does.
// Each operation is rounded by itself, whatever the compiler's options for fused ones. A test compares all values.
#pragma once

#include "device/kernels/coded_plain.cuh"

namespace kvbm::device::kernels {

// Values of codec::Element and codec::Mode that are quantised here.
constexpr uint32_t kElementBf16 = 1;
constexpr uint32_t kElementFp16 = 2;
constexpr uint32_t kElementFp32 = 3;
constexpr uint32_t kModeE4m3 = 16;
constexpr uint32_t kModeE5m2 = 17;
constexpr uint32_t kModeInt8 = 18;
constexpr uint32_t kModeInt6 = 19;
constexpr uint32_t kModeInt4 = 20;

__device__ inline float half_as_float(uint32_t h) {
  const uint32_t sign = (h & 0x8000U) << 16;
  const uint32_t magnitude = h & 0x7FFFU;
  if (magnitude >= 0x7C00U) return __uint_as_float(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
  if (magnitude >= 0x400U) return __uint_as_float(sign | ((magnitude << 13) + (112U << 23)));
  const float tiny = __fmul_rn(__uint2float_rn(magnitude), __uint_as_float(103U << 23));  // 2^-24
  return __uint_as_float(__float_as_uint(tiny) | sign);
}

// Rounds to nearest, ties to even; values that are too large become infinite. Never called with a NaN.
__device__ inline uint32_t float_as_half(float f) {
  const uint32_t bits = __float_as_uint(f);
  const uint32_t sign = bits >> 16 & 0x8000U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude >= 0x477FF000U) return sign | 0x7C00U;
  if (magnitude >= 0x38800000U) return sign | (magnitude - (112U << 23) + 0xFFFU + (magnitude >> 13 & 1U)) >> 13;
  const float shifted = __fadd_rn(__uint_as_float(magnitude), 0.5F);  // its unit is that of the denormal halves
  return sign | (__float_as_uint(shifted) - 0x3F000000U);
}

// Converts to 8-bit floats of `mantissa` bits, 3 (e4m3) or 2 (e5m2), without infinities and NaNs.
__device__ inline uint32_t small_of(float f, uint32_t mantissa) {
  const uint32_t bias = mantissa == 3 ? 7 : 15;
  const uint32_t shift = 23 - mantissa;
  const uint32_t bits = __float_as_uint(f);
  const uint32_t sign = bits >> 24 & 0x80U;
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude >= (128 - bias) << 23) {
    const uint32_t half = (1U << (shift - 1)) - 1 + (magnitude >> shift & 1U);
    return sign | ((magnitude - ((127 - bias) << 23) + half) >> shift & 0xFFU);
  }
  const uint32_t unit = (151 - bias - mantissa) << 23;  // 2^(24 - bias - mantissa)
  const float shifted = __fadd_rn(__uint_as_float(magnitude), __uint_as_float(unit));
  return sign | ((__float_as_uint(shifted) - unit) & 0xFFU);
}

__device__ inline float float_of_small(uint32_t code, uint32_t mantissa) {
  const uint32_t bias = mantissa == 3 ? 7 : 15;
  const uint32_t sign = (code & 0x80U) << 24;
  const uint32_t magnitude = code & 0x7FU;
  if (magnitude >= 1U << mantissa) {
    return __uint_as_float(sign | ((magnitude << (23 - mantissa)) + ((127 - bias) << 23)));
  }
  const float unit = __uint_as_float((128 - bias - mantissa) << 23);  // 2^(1 - bias - mantissa)
  return __uint_as_float(__float_as_uint(__fmul_rn(__uint2float_rn(magnitude), unit)) | sign);
}

// Returns the byte for `v`, which is value * reciprocal; value_of() returns the number that a byte stands for.
__device__ inline uint32_t number_of(uint32_t mode, float v) {
  if (mode == kModeE4m3) return small_of(v, 3);
  if (mode == kModeE5m2) return small_of(v, 2);
  // Rounds to the nearest whole number, ties to even: adding 1.5 * 2^23 leaves it in the low bits.
  return (__float_as_uint(__fadd_rn(v, 12582912.0F)) - 0x4B400000U) & 0xFFU;
}
__device__ inline float value_of(uint32_t mode, uint32_t number) {
  if (mode == kModeE4m3) return float_of_small(number, 3);
  if (mode == kModeE5m2) return float_of_small(number, 2);
  return __int2float_rn(static_cast<int>(number ^ 0x80U) - 0x80);
}

__device__ inline uint32_t element_width(uint32_t element) {
  return element == kElementFp32 ? 4 : element == kElementBf16 || element == kElementFp16 ? 2 : 1;
}

// Converts bits of an element to float; element_of_float() converts back: bf16 to nearest, ties away from zero.
__device__ inline float float_of_element(uint32_t element, uint32_t bits) {
  if (element == kElementFp32) return __uint_as_float(bits);
  if (element == kElementFp16) return half_as_float(bits);
  return __uint_as_float(bits << 16);
}
__device__ inline uint32_t element_of_float(uint32_t element, float f) {
  if (element == kElementFp32) return __float_as_uint(f);
  if (element == kElementFp16) return float_as_half(f);
  return (__float_as_uint(f) + 0x8000U) >> 16;
}

}  // namespace kvbm::device::kernels
