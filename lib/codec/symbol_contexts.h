// Which of the four contexts of a symbol plane the numbers of a channel (or row) belong to: quarters of them, by the mean
// magnitude of their numbers.
#pragma once

#include "codec/quantize_kernel.h"

namespace kvbm::codec {

// Writes two bits for each unit, first unit lowest, into `packed`, which is zero; `sums`: a word for each unit.
void choose_contexts(const ScaleMap& map, const std::byte* q, uint32_t* sums, std::byte* packed) noexcept;

// 16 times the context of each value, zeros up to a whole group of 64; `of_units`: a byte for each unit.
void spread_contexts(const ScaleMap& map, const std::byte* packed, std::byte* of_units, std::byte* contexts) noexcept;

}  // namespace kvbm::codec
