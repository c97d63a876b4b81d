// Keeps blocks recently received from other nodes for a while, so that a put's first blocks are not evicted for its
// later ones: a prefix without its first block is useless. The policy's opinion of new blocks does not matter here.
//
// The newest blocks are kept, half of the host at most, for kKeptNs each. The oldest are released earlier if an
// allocation would fail otherwise. Beyond the half, blocks with children are released first: their children keep
// them. The parts of one put arrive in any order, so a block may be here before its parent. It is joined to the
// parent when it is its turn to be released; until then it is not among the blocks released first. Lock: mutex_, held
// over calls of the block table. Thread: any.
//
// Blocks that nodes gave because they were full are not offered to other nodes when they are evicted here: otherwise
// full nodes would pass blocks round forever. lost() counts such evictions of blocks that no tier of this node has.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/function.h"
#include "base/thread/mutex.h"
#include "block/block_table.h"

namespace kvbm::manager {

class ReceivedBlocks {
 public:
  static constexpr uint64_t kKeptNs = 10'000'000'000;

  // Returns the key of the parent of a registered block that the caller holds; no bytes: it has none.
  using ParentKey = UniqueFunction<Key(SlotId)>;

  ReceivedBlocks(block::BlockTable& table, ParentKey parent_key);

  // Takes over a reference to each. True: from now on the caller must call expire() in time, until it returns kNever.
  bool keep(std::span<const SlotId> slots, uint64_t now_ns, uint32_t tick);
  // Marks blocks as received from other nodes, not from clients of a shared tier set. The caller holds references.
  void given(std::span<const SlotId> slots) noexcept;
  [[nodiscard]] bool any_given() const noexcept { return any_given_.load(std::memory_order_acquire); }
  // Counts evicted blocks that are lost. `own`: on-tier flags of this node's own tiers.
  void evicted(std::span<const block::Evicted> gone, uint8_t own) noexcept;
  [[nodiscard]] uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }
  // Counts calls that released blocks.
  [[nodiscard]] uint64_t releases() const noexcept { return releases_.load(std::memory_order_acquire); }
  // Releases the oldest blocks, few at a time: the end of a chain can be evicted first. `seen`: releases() before the
  // allocation that failed. If another thread has released some since, releases none, because an allocation may succeed
  // now. False: no block was kept.
  bool release_some(uint64_t seen, uint32_t tick);
  void release_all(uint32_t tick) {
    MutexLock lock(mutex_);
    drop(SIZE_MAX, tick);
  }
  // Releases the blocks of a family, which were erased.
  void let_go_of(FamilyId family, uint32_t tick);
  // Releases blocks that have been kept for kKeptNs. Returns the time of the next one; kNever: none is left.
  uint64_t expire(uint64_t now_ns, uint32_t tick);

 private:
  struct Kept {
    SlotId slot = kNoSlot;
    uint64_t until_ns = 0;
    bool apart = false;  // its parent was missing when it was looked for
  };
  // Releases the oldest `n`.
  void drop(size_t n, uint32_t tick) KVBM_REQUIRES(mutex_);
  void trim(uint32_t tick) KVBM_REQUIRES(mutex_);
  [[nodiscard]] Kept take_end() KVBM_REQUIRES(mutex_);
  // Makes a block the child of its parent if it arrived first. False: the parent is not here.
  bool join(SlotId slot, uint32_t tick) KVBM_REQUIRES(mutex_);

  block::BlockTable& table_;
  ParentKey parent_key_;
  const size_t most_;
  const size_t most_ends_;
  // By slot: generation + 1 at the time when it had a block that a node gave; 0: it never had.
  const std::unique_ptr<std::atomic<uint32_t>[]> given_;
  std::atomic<bool> any_given_{false};
  std::atomic<uint64_t> lost_{0};
  std::atomic<uint64_t> releases_{0};  // changed under mutex_
  Mutex mutex_;
  std::deque<Kept> ends_ KVBM_GUARDED_BY(mutex_);  // older blocks that have no children, or had no parent here
  std::deque<Kept> kept_ KVBM_GUARDED_BY(mutex_);  // by time
  bool awaited_ KVBM_GUARDED_BY(mutex_) = false;   // expire() will be called
};

}  // namespace kvbm::manager
