// Planar blocks in plain C++.
#include <cstring>

#include "codec/lossless/planar_kernel.h"

namespace kvbm::codec {
namespace {

// Table for pdep, one byte of the mask at a time: the low bits that the byte takes, at their places. A byte with n ones
// has 2^n such values, and all bytes together 3^8.
struct DepositTable {
  struct Byte {
    uint16_t first = 0;  // index of its first value
    uint8_t low = 0;     // mask of that many bits
    uint8_t ones = 0;
  };
  Byte of[256];
  uint8_t value[6561] = {};
};
constexpr DepositTable make_deposits() noexcept {
  DepositTable table{};
  uint32_t next = 0;
  for (uint32_t mask = 0; mask < 256; ++mask) {
    DepositTable::Byte& of = table.of[mask];
    of.first = static_cast<uint16_t>(next);
    // The submasks of a mask in ascending order are its deposits of 0, 1, 2 ..
    for (uint32_t sub = 0;; sub = (sub - mask) & mask) {
      table.value[next++] = static_cast<uint8_t>(sub);
      if (sub == mask) break;
    }
    for (uint32_t left = mask; left != 0; left &= left - 1) {
      of.low = static_cast<uint8_t>(of.low << 1 | 1);
      ++of.ones;
    }
  }
  return table;
}
constexpr DepositTable kDeposits = make_deposits();

inline uint64_t deposit(uint64_t bits, uint64_t mask) noexcept {
  uint64_t out = 0;
#pragma GCC unroll 8
  for (uint32_t at = 0; at < 64; at += 8) {
    const DepositTable::Byte of = kDeposits.of[mask >> at & 0xFF];
    out |= uint64_t{kDeposits.value[of.first + (bits & of.low)]} << at;
    bits >>= of.ones;
  }
  return out;
}

// Deposits bit by bit, for at most four: a table's eight bytes are not worth it then.
inline uint64_t deposit_few(uint64_t bits, uint64_t mask) noexcept {
  uint64_t out = 0;
  uint64_t left = mask;
#pragma GCC unroll 4
  for (uint32_t i = 0; i < 4; ++i) {
    const uint64_t place = left & (0 - left);
    out |= place & (0 - (bits >> i & 1));
    left ^= place;
  }
  return __builtin_expect(left == 0, 1) ? out : deposit(bits, mask);
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

constexpr uint32_t kTogether = 2;

#include "codec/lossless/planar_words.inc"

// Returns the codes of all elements 8j + k as word k, element 8j + k in its byte j: eight transpositions of 8 by 8
// bits, side by side in words. Codes stay in this order when they are written word by word; classes are brought into it
// once a leaf.
template <uint32_t kLevels>
inline void transpose(const uint64_t* planes, uint64_t* words) noexcept {
  for (uint32_t b = 0; b < 8; ++b) words[b] = b < kLevels ? planes[kLevels - 1 - b] : 0;
#pragma GCC unroll 3
  for (uint32_t apart = 4; apart != 0; apart /= 2) {
    const uint64_t mask = apart == 4   ? 0x0F0F0F0F0F0F0F0FULL
                          : apart == 2 ? 0x3333333333333333ULL
                                       : 0x5555555555555555ULL;
#pragma GCC unroll 8
    for (uint32_t b = 0; b < 8; ++b) {
      if ((b & apart) != 0) continue;
      const uint64_t moved = (words[b] >> apart ^ words[b + apart]) & mask;
      words[b + apart] ^= moved;
      words[b] ^= moved << apart;
    }
  }
}

// A class and a code of at most 6 bits fit in one byte; longer codes use two lookups.
template <uint32_t kLevels>
class Symbols {
 public:
  explicit Symbols(const PlanarPlan& plan) noexcept : first_(plan.classes) {
    const uint32_t groups = (plan.blocks + plan.group_blocks - 1) / plan.group_blocks;
    for (uint32_t i = 0; i < groups * plan.period * kBlock; ++i) {
      const uint32_t k = plan.classes[i] / kMaxSymbols;
      const uint32_t to = i / kBlock * kBlock + i % 8 * 8 + i % kBlock / 8;
      classes_[to] = static_cast<uint8_t>(kOneByte ? k << kLevels : k);
    }
    for (uint32_t k = 0; k < kMaxClasses; ++k) {
      for (uint32_t code = 0; code < 1U << kLevels; ++code) {
        symbol_[k << kLevels | code] = plan.symbol[k * kMaxSymbols + plan.rank[code]];
      }
    }
  }

  void of(const uint64_t* planes, const uint8_t* classes, uint8_t* __restrict top) const noexcept {
    uint64_t words[8];
    transpose<kLevels>(planes, words);
    const uint8_t* const of = classes_ + (classes - first_);
#pragma GCC unroll 8
    for (uint32_t k = 0; k < 8; ++k) {
      uint64_t codes = words[k];
      if constexpr (kOneByte) codes |= load_word(reinterpret_cast<const std::byte*>(of) + size_t{8} * k);
#pragma GCC unroll 8
      for (uint32_t j = 0; j < 8; ++j, codes >>= 8) {
        const uint32_t more = kOneByte ? 0 : uint32_t{of[8 * k + j]} << kLevels;
        top[8 * j + k] = symbol_[more | (codes & 0xFF)];
      }
    }
  }

 private:
  static constexpr bool kOneByte = kLevels <= 6;
  static_assert(kMaxClasses == 4);
  const uint8_t* first_;
  uint8_t classes_[kMaxVectors * kBlock];
  uint8_t symbol_[kMaxClasses << kLevels];
};

#include "codec/lossless/planar_signs.inc"

constexpr PlanarKernel kKernel{"portable", encode_blocks, decode_blocks, sample_block, count_symbols,
                               fold_signs, unfold_signs,  pack_low,      unpack_low};

}  // namespace

const PlanarKernel* planar_portable() noexcept { return &kKernel; }

}  // namespace kvbm::codec
