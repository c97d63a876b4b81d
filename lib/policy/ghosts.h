// A bounded history of evicted blocks: their last use and their class.
//
// Sets of 8 entries of 8 bytes, one cache line, found by fingerprint; the oldest of a full set is replaced. Blocks are
// identified by a fingerprint of 24 bits and the set number, so a look-up finds a wrong entry with a probability of
// about 8 / 2^24. That costs a misjudged block, never wrong data.
// Budget: at most max(65,536, 2 x capacity) entries: 16 bytes a block of a large cache, so that all metadata stays
// within 96. Pages of them are allocated as blocks are evicted.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/memory/zeroed_array.h"
#include "base/prefetch.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace kvbm::policy {

struct Ghost {
  bool known = false;
  uint8_t kind = 0;
  uint32_t last_use = 0;
};

class Ghosts {
 public:
  static constexpr size_t kWays = 8;
  static constexpr size_t kLeast = 65536;

  explicit Ghosts(size_t capacity) : sets_(std::bit_floor(std::max(2 * capacity, kLeast) / kWays)) {}

  void prefetch(uint64_t name) const noexcept { prefetch_for_write(&sets_[set(name)]); }

  // Removes and returns the entry of a block.
  Ghost take(uint64_t name) noexcept {
    Set& at = sets_[set(name)];
    const uint32_t found = at.having(fingerprint(name));
    if (found == 0) return {};
    const auto i = static_cast<size_t>(std::countr_zero(found));
    const Ghost ghost = at.ghost(i);
    at.tags[i] = 0;
    return ghost;
  }

  // Returns the entry that was replaced; not known if there was room.
  Ghost put(uint64_t name, uint32_t last_use, uint8_t kind, uint32_t now) noexcept {
    Set& at = sets_[set(name)];
    const uint32_t empty = at.having(0);
    const auto i = static_cast<size_t>(std::countr_zero(empty != 0 ? empty : at.oldest(now)));
    const Ghost gone = at.ghost(i);
    at.tags[i] = fingerprint(name) << 8 | kind;
    at.last_uses[i] = last_use;
    return gone;
  }

  // Entries in the order of memory, for a walk over all.
  [[nodiscard]] size_t size() const noexcept { return sets_.size() * kWays; }
  [[nodiscard]] Ghost at(size_t i) const noexcept { return sets_[i / kWays].ghost(i % kWays); }
  [[nodiscard]] size_t bytes() const noexcept { return sets_.bytes(); }

 private:
  struct alignas(64) Set {
    std::array<uint32_t, kWays> tags;  // fingerprint << 8 | kind; 0 = empty
    std::array<uint32_t, kWays> last_uses;
    [[nodiscard]] Ghost ghost(size_t i) const noexcept {
      return {tags[i] != 0, static_cast<uint8_t>(tags[i]), last_uses[i]};
    }

    // Avoids branches: neither the position of the entry nor that of the oldest one is predictable.
#if defined(__SSE2__)
    // One bit per entry with this fingerprint; 0 = empty.
    [[nodiscard]] uint32_t having(uint32_t wanted) const noexcept {
      const __m128i want = _mm_set1_epi32(static_cast<int>(wanted));
      return bits(_mm_cmpeq_epi32(_mm_srli_epi32(load(&tags[0]), 8), want),
                  _mm_cmpeq_epi32(_mm_srli_epi32(load(&tags[4]), 8), want));
    }
    // One bit per entry of the greatest age.
    [[nodiscard]] uint32_t oldest(uint32_t now) const noexcept {
      // With the sign flipped, a signed comparison orders unsigned ages.
      const __m128i turned = _mm_set1_epi32(static_cast<int>(now ^ 0x80000000U));
      const __m128i low = _mm_sub_epi32(turned, load(&last_uses[0]));
      const __m128i high = _mm_sub_epi32(turned, load(&last_uses[4]));
      __m128i most = greater(low, high);
      most = greater(most, _mm_shuffle_epi32(most, _MM_SHUFFLE(1, 0, 3, 2)));
      most = greater(most, _mm_shuffle_epi32(most, _MM_SHUFFLE(2, 3, 0, 1)));
      return bits(_mm_cmpeq_epi32(low, most), _mm_cmpeq_epi32(high, most));
    }

   private:
    static __m128i load(const uint32_t* at) noexcept { return _mm_load_si128(reinterpret_cast<const __m128i*>(at)); }
    static uint32_t bits(__m128i low, __m128i high) noexcept {
      return static_cast<uint32_t>(_mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128())));
    }
    static __m128i greater(__m128i a, __m128i b) noexcept {
      const __m128i first = _mm_cmpgt_epi32(a, b);
      return _mm_or_si128(_mm_and_si128(first, a), _mm_andnot_si128(first, b));
    }
#else
    [[nodiscard]] uint32_t having(uint32_t wanted) const noexcept {
      uint32_t found = 0;
      for (uint32_t i = 0; i < kWays; ++i) found |= uint32_t{tags[i] >> 8 == wanted} << i;
      return found;
    }
    [[nodiscard]] uint32_t oldest(uint32_t now) const noexcept {
      uint32_t most = 0;
      for (const uint32_t last_use : last_uses) most = std::max(most, now - last_use);
      uint32_t found = 0;
      for (uint32_t i = 0; i < kWays; ++i) found |= uint32_t{now - last_uses[i] == most} << i;
      return found;
    }
#endif
  };
  static_assert(sizeof(Set) == 64);

  [[nodiscard]] size_t set(uint64_t name) const noexcept { return static_cast<size_t>(name) & (sets_.size() - 1); }
  [[nodiscard]] static uint32_t fingerprint(uint64_t name) noexcept {
    const auto high = static_cast<uint32_t>(name >> 40);
    return high == 0 ? 1 : high;
  }

  ZeroedArray<Set> sets_;
};

}  // namespace kvbm::policy
