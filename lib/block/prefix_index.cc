#include "block/prefix_index.h"

#include <algorithm>
#include <bit>

namespace kvbm::block {
namespace {

// Keys spread over partitions binomially. With 2,048 slots a partition and a load of 0.56 at most,
// a partition overflows 20 standard deviations out.
constexpr uint32_t kSlotsPerPartition = 2048;
// At six entries of twelve a chunk overflows in one case of a hundred. At eight it does in one of fifteen, and counting
// overflows shows in the cost of churn.
constexpr uint32_t kLoadPercent = 56;
constexpr uint64_t kOneOverflow = 1ULL << 32;

}  // namespace

PrefixIndex::PrefixIndex(uint32_t slots) {
  const uint32_t partitions = std::clamp(std::bit_floor(std::max(slots / kSlotsPerPartition, 1U)), 1U, kMaxPartitions);
  partition_mask_ = partitions - 1;
  const uint64_t entries = (static_cast<uint64_t>(slots) * 100 / kLoadPercent) / partitions + IndexChunk::kEntries;
  chunks_per_partition_ = static_cast<uint32_t>(entries / IndexChunk::kEntries + 1);
  chunks_ = std::make_unique<IndexChunk[]>(static_cast<size_t>(partitions) * chunks_per_partition_);
  locks_ = std::make_unique<Partition[]>(partitions);
}

bool PrefixIndex::insert(const Place& at, SlotId slot) noexcept {
  IndexChunk* const first = base(at);
  uint32_t position = at.chunk;
  for (uint32_t probes = 0; probes < chunks_per_partition_; ++probes) {
    IndexChunk& chunk = first[position];
    const uint64_t low = chunk.tags[0].load(std::memory_order_relaxed);
    const uint64_t high = chunk.tags[1].load(std::memory_order_relaxed);
    if (const uint32_t free = match(low, high, 0); free != 0) {
      put(chunk, static_cast<unsigned>(__builtin_ctz(free)), at.tag, slot);
      return true;
    }
    // Counted before the entry exists, so that a search never stops short of it.
    add(chunk.tags[1], kOneOverflow);
    if (++position == chunks_per_partition_) position = 0;
  }
  for (uint32_t i = 0; i < chunks_per_partition_; ++i) {
    add(first[i].tags[1], -kOneOverflow);
  }
  return false;
}

bool PrefixIndex::remove(const Place& at, SlotId slot) noexcept {
  IndexChunk* const first = base(at);
  uint32_t position = at.chunk;
  for (uint32_t probes = 0; probes < chunks_per_partition_; ++probes) {
    IndexChunk& chunk = first[position];
    const uint64_t low = chunk.tags[0].load(std::memory_order_acquire);
    const uint64_t high = chunk.tags[1].load(std::memory_order_acquire);
    for (uint32_t bits = match(low, high, at.tag); bits != 0; bits &= bits - 1) {
      const auto entry = static_cast<unsigned>(__builtin_ctz(bits));
      if (chunk.slots[entry].load(std::memory_order_relaxed) != slot) continue;
      add(chunk.tags[entry / 8], -(static_cast<uint64_t>(at.tag) << (entry % 8 * 8)));
      for (uint32_t back = at.chunk; back != position;) {
        add(first[back].tags[1], -kOneOverflow);
        if (++back == chunks_per_partition_) back = 0;
      }
      return true;
    }
    if ((high >> 32) == 0) return false;
    if (++position == chunks_per_partition_) position = 0;
  }
  return false;
}

size_t PrefixIndex::bytes() const noexcept {
  const size_t partitions = partition_mask_ + 1;
  return partitions * (chunks_per_partition_ * sizeof(IndexChunk) + sizeof(Partition));
}

}  // namespace kvbm::block
