// Scales of a lossy leaf, their permitted range, and the kernels for them: common to quantised and delta leaves.
#pragma once

#include "codec/leaf/frame.h"
#include "codec/lossy/quantize_kernel.h"
#include "codec/lossy/quantize_number.h"
#include "codec/lossy/symbol_plane.h"

namespace kvbm::codec {

// Outside of these limits a leaf is not quantised, so that no product is ever a denormal, infinite, or too large for
// fp16.
inline constexpr float kLeast = power_of_two(-50);
inline constexpr float kMost = power_of_two(50);
inline constexpr float kMostHalf = power_of_two(15);
inline constexpr uint32_t kLeastScale = 60U << 7;          // bf16 bits of 2^-67: not above kLeast / 57344
inline constexpr uint32_t kMostScale = (53U + 127U) << 7;  // 2^53: more than a step of a delta leaf can be

// The kernels in use.
const QuantizeKernel& quantize_kernel() noexcept;
const SymbolKernel& symbol_kernel() noexcept;

constexpr bool is_float(Element element) noexcept {
  return element == Element::bf16 || element == Element::fp16 || element == Element::fp32;
}
constexpr uint32_t groups_of(uint32_t values) noexcept { return (values + kQuantizeGroup - 1) / kQuantizeGroup; }

// Uses channels if rows are known; else rows of 64 values with a scale each.
ScaleMap map_of(const LeafForm& form, size_t raw_bytes) noexcept;
void find_maxima(const ScaleMap& map, const std::byte* raw, uint32_t* maxima) noexcept;
// True if a leaf with these maxima can be quantised: no NaN or infinity, nothing tiny or huge. `most_half`: limit for
// fp16.
bool in_range(const ScaleMap& map, const uint32_t* maxima, float most_half) noexcept;
// A scale in stored form: the bits of `exact` as bf16, rounded up.
constexpr uint16_t scale_bits(float exact) noexcept {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(exact) + 0xFFFFU) >> 16);
}
constexpr float scale_of(uint16_t bits) noexcept { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
// Returns false if one of the scales can never have been written by a coder.
bool read_scales(uint32_t units, const std::byte* stored, float* scale) noexcept;

}  // namespace kvbm::codec
