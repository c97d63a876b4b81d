// Tag comparison and search of PrefixIndex, inlined into the lookup loops.
#pragma once

#include <algorithm>

#include "base/thread/batch_lock.h"
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
    // Acquire pairs with the release of insert: the slot number of a visible tag is in place.
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

template <class Visit>
PrefixIndex::Listed PrefixIndex::find_or_insert(const Place& at, SlotId slot, Visit&& visit) noexcept {
  if (search(at, visit)) return Listed::there;
  return insert(at, slot) ? Listed::fresh : Listed::full;
}

inline bool PrefixIndex::insert_alone(const Place& at, SlotId slot) noexcept {
  IndexChunk& chunk = *home(at);
  const uint64_t low = chunk.tags[0].load(std::memory_order_relaxed);
  const uint64_t high = chunk.tags[1].load(std::memory_order_relaxed);
  const uint32_t free = match(low, high, 0);
  if ((high >> 32) != 0 || free == 0 || match(low, high, at.tag) != 0) return false;
  put(chunk, static_cast<unsigned>(__builtin_ctz(free)), at.tag, slot);
  return true;
}

template <class PlaceOf, class Each>
void PrefixIndex::by_partition(size_t n, PlaceOf&& place_of, Each&& each) {
  static_assert(kMaxBatch == 64);
  uint64_t members[kMaxPartitions] = {};  // one bit per item
  for (size_t i = 0; i < n; ++i) members[place_of(i).partition] |= uint64_t{1} << i;
  for (uint32_t p = 0; p <= partition_mask_; ++p) kvbm::prefetch_for_write(&locks_[p]);
  // Threads begin at different partitions, so that they do not queue behind each other lock by lock.
  const uint32_t first = n == 0 ? 0 : place_of(0).partition;
  for (uint32_t turn = 0; turn < kMaxPartitions; ++turn) {
    const uint32_t p = (first + turn) % kMaxPartitions;
    if (members[p] == 0) continue;
    BatchLock lock(locks_[p].mutex);
    for (uint64_t bits = members[p]; bits != 0; bits &= bits - 1) {
      each(static_cast<size_t>(__builtin_ctzll(bits)));
    }
  }
}

}  // namespace kvbm::block
