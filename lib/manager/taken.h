// What other nodes have given lately stays for a while, so that the blocks of one put do not go for its later ones,
// whatever the policy thinks of what is new: a prefix without its first block is nothing.
//
// The newest ones are kept, half of the host at most, for kKeptNs each; they go earlier, the oldest first, where an
// allocation would fail without it. Of what is beyond the half, blocks that others follow go first: what follows keeps
// them. The parts of one put land in any order, so a block may be here before its parent: it is joined to it when its turn
// to go comes, and until then it is not among those that go first.
// Locks: trim_mutex_, then mutex_, a leaf. Thread: any.
//
// What nodes gave because they had no room for it is offered to nobody when it goes from here in its turn: nodes that are
// all full would pass blocks round for ever. How many went so is counted (lost()), as far as none of this node's own
// tiers has them.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/function.h"
#include "base/mutex.h"
#include "block/block_table.h"

namespace kvbm::manager {

class TakenBlocks {
 public:
  static constexpr uint64_t kKeptNs = 10'000'000'000;

  // The key of the parent of a registered block that the caller holds; no bytes: it has none.
  using ParentKey = UniqueFunction<Key(SlotId)>;

  TakenBlocks(block::BlockTable& table, ParentKey parent_key);

  // Takes over a reference of each. True: from now on somebody must call expire() in time, until it gives kNever.
  bool keep(std::span<const SlotId> slots, uint64_t now_ns, uint32_t tick);
  // They came from other nodes, not from clients of a shared tier set. The caller holds references.
  void given(std::span<const SlotId> slots) noexcept;
  [[nodiscard]] bool any_given() const noexcept { return any_given_.load(std::memory_order_acquire); }
  // Blocks that have been evicted. `own`: flags of slots whose record this node's own tiers have.
  void evicted(std::span<const block::Evicted> gone, uint8_t own) noexcept;
  [[nodiscard]] uint64_t lost() const noexcept { return lost_.load(std::memory_order_relaxed); }
  // Ends the oldest of them, few at a time: where they are a chain, its end is the first that can go. False: none was
  // kept.
  bool let_go_some(uint32_t tick);
  void let_go_all(uint32_t tick) { drop(SIZE_MAX, tick); }
  // Ends those whose time is over. When the next one's is; kNever: none is left.
  uint64_t expire(uint64_t now_ns, uint32_t tick);

 private:
  struct Kept {
    SlotId slot = kNoSlot;
    uint64_t until_ns = 0;
    bool apart = false;  // its parent was not here when it was looked for
  };
  // Ends the oldest `n`.
  void drop(size_t n, uint32_t tick);
  void trim(uint32_t tick) KVBM_EXCLUDES(trim_mutex_);
  [[nodiscard]] Kept take_end() KVBM_REQUIRES(mutex_);
  // Makes a block the child of its parent where it came before it. False: the parent is not here.
  bool join(SlotId slot, uint32_t tick) KVBM_REQUIRES(trim_mutex_);

  block::BlockTable& table_;
  ParentKey parent_key_;
  const size_t most_;
  const size_t most_ends_;
  // By slot: the generation in which it had a block that a node gave, and one; 0: it never had.
  const std::unique_ptr<std::atomic<uint32_t>[]> given_;
  std::atomic<bool> any_given_{false};
  std::atomic<uint64_t> lost_{0};
  Mutex trim_mutex_;
  Mutex mutex_;
  std::deque<Kept> ends_ KVBM_GUARDED_BY(mutex_);  // older ones that nothing follows, or that were apart
  std::deque<Kept> kept_ KVBM_GUARDED_BY(mutex_);  // by time
  bool awaited_ KVBM_GUARDED_BY(mutex_) = false;   // expire() will be called
};

}  // namespace kvbm::manager
