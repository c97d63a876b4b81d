// Quantisation in plain C++: for any form of leaf, and as a cross-check in tests.
#include <bit>
#include <cstring>

#include "codec/lossy/quantize_kernel.h"
#include "codec/lossy/quantize_number.h"

// Turns off fused multiply-add: the compiler must not merge a product and a sum into one rounding, because every kernel
// must give equal bits.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("fp-contract=off")
#endif

namespace kvbm::codec {
namespace {

template <Element kElement>
void maxima_of(const ScaleMap& map, const std::byte* raw, uint32_t* maxima) noexcept {
  std::fill_n(maxima, map.units(), 0U);
  each_row(map, [&](uint32_t at, uint32_t n, uint32_t unit, uint32_t) {
    for (uint32_t i = 0; i < n; ++i) {
      uint32_t& most = maxima[unit + (map.by_row ? 0 : i)];
      most = std::max(most, std::bit_cast<uint32_t>(read_value<kElement>(raw, at + i)) & 0x7FFFFFFFU);
    }
  });
}

template <Number kNumber>
uint8_t code_of(float v) noexcept {
  if constexpr (kNumber == Number::e4m3) return SmallFloat<3>::encode(v);
  if constexpr (kNumber == Number::e5m2) return SmallFloat<2>::encode(v);
  return static_cast<uint8_t>(nearest(v));
}

template <Number kNumber>
float value_of(uint8_t code) noexcept {
  if constexpr (kNumber == Number::e4m3) return SmallFloat<3>::decode(code);
  if constexpr (kNumber == Number::e5m2) return SmallFloat<2>::decode(code);
  return static_cast<float>(static_cast<int8_t>(code));
}

// Returns a * a + sum, rounded once, as vectors do it. A sum of two doubles is rounded to odd, so that only the
// rounding to a float changes it (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
float add_square(float a, float sum) noexcept {
  const double square = static_cast<double>(a) * static_cast<double>(a);  // exact
  const double other = sum;
  const double near = square + other;
  const double back = near - square;
  const double lost = (square - (near - back)) + (other - back);
  auto bits = std::bit_cast<uint64_t>(near);
  const bool finite = (bits >> 52 & 0x7FFU) != 0x7FFU;
  // Both are non-negative: larger bits are a larger number.
  if (finite && lost != 0 && (bits & 1) == 0) bits += lost > 0 ? 1 : uint64_t{0} - 1;
  return static_cast<float>(std::bit_cast<double>(bits));
}

template <Element kElement>
void add_sums(uint32_t values, const std::byte* raw, const std::byte* decoded, Sums& sums) noexcept {
  LaneSums lanes;
  for (uint32_t i = 0; i < values; ++i) {
    const float x = read_value<kElement>(raw, i);
    const float off = read_value<kElement>(decoded, i) - x;
    const uint32_t lane = LaneSums::lane_of(kElement, i % kQuantizeGroup);
    lanes.difference[lane] = add_square(off, lanes.difference[lane]);
    lanes.value[lane] = add_square(x, lanes.value[lane]);
  }
  lanes.add_to(sums);
}

template <Element kElement, Number kNumber>
void quantize_as(const ScaleMap& map, const std::byte* raw, const float* reciprocal, const float* scale, std::byte* q,
                 std::byte* decoded, Sums& sums) noexcept {
  each_row(map, [&](uint32_t at, uint32_t n, uint32_t unit, uint32_t) {
    for (uint32_t i = 0; i < n; ++i) {
      const uint32_t u = unit + (map.by_row ? 0 : i);
      const float x = read_value<kElement>(raw, at + i);
      const uint8_t code = code_of<kNumber>(x * reciprocal[u]);
      q[at + i] = static_cast<std::byte>(code);
      write_value<kElement>(decoded, at + i, value_of<kNumber>(code) * scale[u]);
    }
  });
  add_sums<kElement>(map.values, raw, decoded, sums);
  const uint32_t groups = (map.values + kQuantizeGroup - 1) / kQuantizeGroup;
  std::memset(q + map.values, 0, groups * kQuantizeGroup - map.values);
}

template <Element kElement, Number kNumber>
void dequantize_as(const ScaleMap& map, const std::byte* q, const float* scale, std::byte* raw) noexcept {
  each_row(map, [&](uint32_t at, uint32_t n, uint32_t unit, uint32_t) {
    for (uint32_t i = 0; i < n; ++i) {
      const float s = scale[unit + (map.by_row ? 0 : i)];
      write_value<kElement>(raw, at + i, value_of<kNumber>(static_cast<uint8_t>(q[at + i])) * s);
    }
  });
}

// Calls f.template operator()<element>() or <element, number>().
template <class F>
void with_element(Element element, F f) noexcept {
  if (element == Element::fp16) return f.template operator()<Element::fp16>();
  if (element == Element::fp32) return f.template operator()<Element::fp32>();
  f.template operator()<Element::bf16>();
}
template <class F>
void with_number(Element element, Number number, F f) noexcept {
  with_element(element, [&]<Element kElement>() {
    if (number == Number::e4m3) return f.template operator()<kElement, Number::e4m3>();
    if (number == Number::e5m2) return f.template operator()<kElement, Number::e5m2>();
    f.template operator()<kElement, Number::integer>();
  });
}

bool maxima(const ScaleMap& map, const std::byte* raw, uint32_t* maxima) noexcept {
  with_element(map.element, [&]<Element kElement>() { maxima_of<kElement>(map, raw, maxima); });
  return true;
}

bool quantize(const ScaleMap& map, Number number, const std::byte* raw, const float* reciprocal, const float* scale,
              std::byte* q, std::byte* decoded, std::byte* /*scratch*/, LeafHasher& hash, Sums& sums) noexcept {
  with_number(map.element, number, [&]<Element kElement, Number kNumber>() {
    quantize_as<kElement, kNumber>(map, raw, reciprocal, scale, q, decoded, sums);
    hash.add({decoded, map.values * kElementBytes<kElement>});
  });
  return true;
}

bool dequantize(const ScaleMap& map, Number number, const std::byte* q, const float* scale, std::byte* raw,
                std::byte* /*scratch*/) noexcept {
  with_number(map.element, number,
              [&]<Element kElement, Number kNumber>() { dequantize_as<kElement, kNumber>(map, q, scale, raw); });
  return true;
}

// Eight numbers are `bits` bytes.
void pack(const std::byte* q, uint32_t groups, uint32_t bits, std::byte* packed) noexcept {
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  for (uint32_t at = 0; at < groups * kQuantizeGroup; at += 8, packed += bits) {
    uint64_t word = 0;
    for (uint32_t i = 0; i < 8; ++i) word |= (static_cast<uint64_t>(q[at + i]) & mask) << (bits * i);
    for (uint32_t i = 0; i < bits; ++i) packed[i] = static_cast<std::byte>(word >> 8 * i);
  }
}

void unpack(const std::byte* packed, uint32_t groups, uint32_t bits, std::byte* q) noexcept {
  for (uint32_t at = 0; at < groups * kQuantizeGroup; at += 8, packed += bits) {
    uint64_t word = 0;
    for (uint32_t i = 0; i < bits; ++i) word |= static_cast<uint64_t>(packed[i]) << 8 * i;
    for (uint32_t i = 0; i < 8; ++i) {
      const auto top = static_cast<int8_t>(word >> (bits * i) << (8 - bits));
      q[at + i] = static_cast<std::byte>(top >> (8 - bits));
    }
  }
}

constexpr QuantizeKernel kKernel{"portable", maxima, quantize, dequantize, pack, unpack};

}  // namespace

const QuantizeKernel& portable_quantize_kernel() noexcept { return kKernel; }

}  // namespace kvbm::codec
