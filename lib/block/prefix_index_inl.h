// Tag comparison and search of PrefixIndex, inlined into the lookup loops.
#pragma once

#include "block/prefix_index.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace kvbm::block {

inline uint32_t PrefixIndex::match(uint64_t first, uint64_t second, uint8_t tag) noexcept {
#if defined(__SSE2__)
  const __m128i tags = _mm_set_epi64x(static_cast<long long>(second), static_cast<long long>(first));
  const __m128i equal = _mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & 0xFFFU;
#else
  uint32_t bits = 0;
  for (unsigned i = 0; i < 8; ++i) bits |= static_cast<uint32_t>(((first >> (8 * i)) & 0xFF) == tag) << i;
  for (unsigned i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(((second >> (8 * i)) & 0xFF) == tag) << (8 + i);
  return bits;
#endif
}

template <class Visit>
bool PrefixIndex::search(const Place& at, Visit&& visit) const noexcept {
  const IndexChunk* const first = base(at);
  uint32_t position = at.chunk;
  for (uint32_t probes = 0; probes < chunks_per_partition_; ++probes) {
    const IndexChunk& chunk = first[position];
    // Acquire pairs with the release of insert: a tag that is seen has its slot number in place.
    const uint64_t low = chunk.tags[0].load(std::memory_order_acquire);
    const uint64_t high = chunk.tags[1].load(std::memory_order_acquire);
    for (uint32_t bits = match(low, high, at.tag); bits != 0; bits &= bits - 1) {
      const auto entry = static_cast<unsigned>(__builtin_ctz(bits));
      if (visit(chunk.slots[entry].load(std::memory_order_relaxed))) return true;
    }
    if ((high >> 32) == 0) return false;
    if (++position == chunks_per_partition_) position = 0;
  }
  return false;
}

}  // namespace kvbm::block
