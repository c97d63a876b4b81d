// What a batch of steps left to do under the lock of a pool, gathered so that each lock is taken once: by ending
// references without any lock, or under the lock of another pool, where parents live elsewhere than their children.
#pragma once

#include <cstddef>

#include "base/ids.h"
#include "block/slot.h"

namespace kvbm::block {

struct Woken {
  static constexpr size_t kMost = 64;
  SlotId available[kMost];  // evictable again, and the policy wants to hear
  SlotId freed[kMost];      // nobody's any more; on the way to the free list
  Parent left[kMost];       // each has one child less: all that a pool leaves to another
  size_t n_available = 0;
  size_t n_freed = 0;
  size_t n_left = 0;

  [[nodiscard]] bool full() const { return n_available == kMost || n_freed == kMost; }
  [[nodiscard]] bool empty() const { return n_available + n_freed + n_left == 0; }
};

}  // namespace kvbm::block
