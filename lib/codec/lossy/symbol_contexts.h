// Assigns the numbers of each channel (or row) to one of the four contexts of a symbol plane: quarters of the units, by
// the mean magnitude of their numbers.
#pragma once

#include "codec/lossy/quantize_kernel.h"

namespace kvbm::codec {

constexpr uint32_t magnitude_of(std::byte q) noexcept {
  const int v = static_cast<int8_t>(q);
  return static_cast<uint32_t>(v < 0 ? -v : v);
}

// Writes two bits for each unit, first unit lowest, into `packed`, which must be zero: its quarter by sums[unit] /
// step. Overwrites `sums`.
void rank_contexts(uint32_t units, uint32_t step, uint32_t* sums, std::byte* packed) noexcept;
// Writes 16 times the context of each unit.
void unpack_contexts(uint32_t units, const std::byte* packed, std::byte* of_units) noexcept;

// Calls rank_contexts() with the mean magnitudes; `sums`: a word for each unit.
void choose_contexts(const ScaleMap& map, const std::byte* q, uint32_t* sums, std::byte* packed) noexcept;

// Writes 16 times the context of each value, zeros up to a whole group of 64; `of_units`: a byte for each unit.
void spread_contexts(const ScaleMap& map, const std::byte* packed, std::byte* of_units, std::byte* contexts) noexcept;

}  // namespace kvbm::codec
