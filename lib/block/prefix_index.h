// Maps an identity's hash to the slots that may hold it. Fixed capacity, no tombstones, no rehash.
//
// Layout: chunks of one cache line in the manner of F14 (Bronson and Shi, "Open-sourcing F14", 2019): twelve one-byte
// tags, a count of entries that hash to this chunk and lie further on, and twelve slot numbers. A search reads a chunk,
// compares its twelve tags at once and goes on only while the count is not zero.
// Threads: readers take no lock; they see candidates, and verify each by the slot itself. An entry never moves, so a
// block that is present throughout a search is found. Insertion and removal run under the partition's lock, which also
// makes "look, then insert" of one key one step. Batches are sorted by partition, so that a batch takes each lock once.
// Budget: one cache miss a search, no allocation after construction.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/ids.h"
#include "base/prefetch.h"
#include "base/thread/mutex.h"

namespace kvbm::block {

struct alignas(64) IndexChunk {
  static constexpr unsigned kEntries = 12;
  // tags[0]: tags 0-7. tags[1]: tags 8-11 in the low half, count of overflows in the high half.
  std::atomic<uint64_t> tags[2]{};
  std::atomic<uint32_t> slots[kEntries]{};
};
static_assert(sizeof(IndexChunk) == 64);

class PrefixIndex {
 public:
  static constexpr uint32_t kMaxPartitions = 8;
  static constexpr size_t kMaxBatch = 64;

  // Home of a hash, computed once and kept for prefetching. Without initialisers: batches are arrays of it.
  struct Place {
    uint32_t partition;
    uint32_t chunk;  // within the partition
    uint8_t tag;     // never 0
  };
  enum class Listed : uint8_t { fresh, there, full };

  explicit PrefixIndex(uint32_t slots);

  [[nodiscard]] Place place(uint64_t low, FamilyId family) const noexcept {
    // One 64x64->128 multiply, folded: keys are uniform by contract, but those of tests and engines may not be.
    const unsigned __int128 product =
        static_cast<unsigned __int128>(low ^ (family * 0x9E3779B97F4A7C15ULL)) * 0xA0761D6478BD642FULL;
    const uint64_t hash = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    Place at;
    at.partition = static_cast<uint32_t>(hash & partition_mask_);
    at.chunk = static_cast<uint32_t>((((hash >> 8) & 0xFFFFFFFFULL) * chunks_per_partition_) >> 32);
    const auto tag = static_cast<uint8_t>(hash >> 56);
    at.tag = tag == 0 ? uint8_t{1} : tag;
    return at;
  }
  void prefetch(const Place& at) const noexcept { __builtin_prefetch(home(at)); }
  void prefetch_for_write(const Place& at) const noexcept { kvbm::prefetch_for_write(home(at)); }

  // Calls visit(slot) for each candidate until it returns true; true if one did. Thread: any.
  template <class Visit>
  bool search(const Place& at, Visit&& visit) const noexcept;

  // The lock under which a key of this place is looked up and inserted as one step.
  [[nodiscard]] Mutex& lock_of(const Place& at) noexcept { return locks_[at.partition].mutex; }
  // Calls each(i) for every i < n <= kMaxBatch under the lock of place_of(i), by partition and in order within one.
  template <class PlaceOf, class Each>
  void by_partition(size_t n, PlaceOf&& place_of, Each&& each) KVBM_NO_TSA;
  // Inserts `slot` if no entry in its chunk has the tag and none lies further on: so its key cannot be listed. For new
  // keys this nearly always succeeds. Lock: lock_of(at).
  [[nodiscard]] bool insert_alone(const Place& at, SlotId slot) noexcept;
  // Searches as above and inserts `slot` when no visit returned true. Lock: lock_of(at).
  template <class Visit>
  [[nodiscard]] Listed find_or_insert(const Place& at, SlotId slot, Visit&& visit) noexcept;
  // Lock: lock_of(at). False when the partition is full.
  [[nodiscard]] bool insert(const Place& at, SlotId slot) noexcept;
  // Removes the entry that names `slot`; false if there is none. Lock: lock_of(at).
  bool remove(const Place& at, SlotId slot) noexcept;

  [[nodiscard]] size_t bytes() const noexcept;

 private:
  struct alignas(64) Partition {
    Mutex mutex;
  };

  [[nodiscard]] IndexChunk* base(const Place& at) const noexcept {
    return chunks_.get() + static_cast<size_t>(at.partition) * chunks_per_partition_;
  }
  [[nodiscard]] IndexChunk* home(const Place& at) const noexcept { return base(at) + at.chunk; }
  // Writers hold the partition's lock, and readers accept either value: no read-modify-write is needed.
  static void add(std::atomic<uint64_t>& word, uint64_t what) noexcept {
    word.store(word.load(std::memory_order_relaxed) + what, std::memory_order_release);
  }
  static void put(IndexChunk& chunk, unsigned entry, uint8_t tag, SlotId slot) noexcept {
    chunk.slots[entry].store(slot, std::memory_order_relaxed);
    add(chunk.tags[entry / 8], static_cast<uint64_t>(tag) << (entry % 8 * 8));
  }
  // One bit per tag that equals `tag`.
  [[nodiscard]] static uint32_t match(uint64_t first, uint64_t second, uint8_t tag) noexcept;

  uint32_t partition_mask_ = 0;
  uint32_t chunks_per_partition_ = 1;
  std::unique_ptr<IndexChunk[]> chunks_;
  std::unique_ptr<Partition[]> locks_;
};

}  // namespace kvbm::block

#include "block/prefix_index_inl.h"
