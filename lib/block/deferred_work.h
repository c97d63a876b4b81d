// Work that a batch leaves to be done under the lock of a pool, gathered so that each lock is taken once. It arises
// when references end without any lock, or under another pool's lock if parents are in other pools than their children.
#pragma once

#include <cstddef>

#include "base/ids.h"
#include "block/slot.h"

namespace kvbm::block {

struct DeferredWork {
  static constexpr size_t kMost = 64;
  SlotId available[kMost];  // evictable again, and the policy is to be notified
  SlotId freed[kMost];      // without an owner; to be put on the free list
  Parent left[kMost];       // each lost a child: all that a pool leaves to another
  size_t n_available = 0;
  size_t n_freed = 0;
  size_t n_left = 0;

  [[nodiscard]] bool full() const { return n_available == kMost || n_freed == kMost; }
  [[nodiscard]] bool empty() const { return n_available + n_freed + n_left == 0; }
};

}  // namespace kvbm::block
