// Planar blocks in plain C++.
#include <cstring>

#include "codec/planar_kernel.h"

namespace kvbm::codec {
namespace {

// One by one: few elements are undecided after the first levels, and what pdep does can be had in no few steps.
inline uint64_t deposit(uint64_t bits, uint64_t mask) noexcept {
  if (mask == ~uint64_t{0}) return bits;
  uint64_t out = 0;
  for (; mask != 0; mask &= mask - 1, bits >>= 1) out |= (0 - (bits & 1)) & mask & (0 - mask);
  return out;
}

inline uint64_t extract(uint64_t word, uint64_t mask) noexcept {
  if (mask == ~uint64_t{0}) return word;
  uint64_t out = 0;
  for (uint32_t at = 0; mask != 0; mask &= mask - 1, ++at) out |= (word >> __builtin_ctzll(mask) & 1) << at;
  return out;
}

inline uint32_t count(uint64_t v) noexcept {
  v -= v >> 1 & 0x5555555555555555ULL;
  v = (v & 0x3333333333333333ULL) + (v >> 2 & 0x3333333333333333ULL);
  return static_cast<uint32_t>(((v + (v >> 4)) & 0x0F0F0F0F0F0F0F0FULL) * 0x0101010101010101ULL >> 56);
}

#include "codec/planar_words.inc"

template <uint32_t kLevels>
inline void codes_of(const uint64_t* planes, uint8_t* codes) noexcept {
  for (uint32_t j = 0; j < kBlock; j += 8) {
    uint64_t eight = 0;
#pragma GCC unroll 8
    for (uint32_t l = 0; l < kLevels; ++l) eight = eight << 1 | kSpread.of[planes[l] >> j & 0xFF];
    store_word(reinterpret_cast<std::byte*>(codes) + j, eight);
  }
}

template <uint32_t kLevels>
inline void symbols_of(const PlanarPlan& /*plan*/, const Direct& direct, const uint8_t* classes, const uint8_t* codes,
                       uint8_t* top) noexcept {
  look_up(direct, classes, codes, top);
}

constexpr PlanarKernel kKernel{"portable", encode_blocks, decode_blocks, sample_block, count_symbols};

}  // namespace

const PlanarKernel* planar_portable() noexcept { return &kKernel; }

}  // namespace kvbm::codec
