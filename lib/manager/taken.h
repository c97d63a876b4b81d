// What other nodes have given lately stays for a while, so that the blocks of one put do not go for its later ones,
// whatever the policy thinks of what is new: a prefix without its first block is nothing.
//
// The newest ones are kept, half of the host at most, for kKeptNs each; they go earlier, the oldest first, where an
// allocation would fail without it. Lock: mutex_, a leaf. Thread: any.
#pragma once

#include <cstdint>
#include <deque>
#include <span>

#include "base/clock.h"
#include "base/mutex.h"
#include "block/block_table.h"

namespace kvbm::manager {

class TakenBlocks {
 public:
  static constexpr uint64_t kKeptNs = 10'000'000'000;

  explicit TakenBlocks(block::BlockTable& table) : table_(table) {}

  // Takes over a reference of each. True: from now on somebody must call expire() in time, until it gives kNever.
  bool keep(std::span<const SlotId> slots, uint64_t now_ns, uint32_t tick);
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
  Mutex mutex_;
  std::deque<Kept> kept_ KVBM_GUARDED_BY(mutex_);  // by time
  bool awaited_ KVBM_GUARDED_BY(mutex_) = false;   // expire() will be called
};

}  // namespace kvbm::manager
