// What other nodes have given lately stays for a while, so that the blocks of one put do not go for its later ones,
// whatever the policy thinks of what is new: a prefix without its first block is nothing.
//
// The newest ones are kept, half of the host at most, for kKeptNs each; they go earlier, the oldest first, where an
// allocation would fail without it. Lock: mutex_, a leaf. Thread: any.
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
#include "base/mutex.h"
#include "block/block_table.h"

namespace kvbm::manager {

class TakenBlocks {
 public:
  static constexpr uint64_t kKeptNs = 10'000'000'000;

  explicit TakenBlocks(block::BlockTable& table)
      : table_(table), given_(std::make_unique<std::atomic<uint32_t>[]>(table.slots())) {}

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
    SlotId slot;
    uint64_t until_ns;
  };
  // Ends the oldest `n`.
  void drop(size_t n, uint32_t tick);

  block::BlockTable& table_;
  // By slot: the generation in which it had a block that a node gave, and one; 0: it never had.
  const std::unique_ptr<std::atomic<uint32_t>[]> given_;
  std::atomic<bool> any_given_{false};
  std::atomic<uint64_t> lost_{0};
  Mutex mutex_;
  std::deque<Kept> kept_ KVBM_GUARDED_BY(mutex_);  // by time
  bool awaited_ KVBM_GUARDED_BY(mutex_) = false;   // expire() will be called
};

}  // namespace kvbm::manager
