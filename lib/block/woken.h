// What ending references left to do under the pool lock, gathered so that the lock is taken once.
#pragma once

#include <cstddef>

#include "block/block_table.h"

namespace kvbm::block {

struct BlockTable::Woken {
  SlotId available[kBatch];  // evictable again, and the policy wants to hear
  SlotId freed[kBatch];      // nobody's any more; on the way to the free list
  size_t n_available = 0;
  size_t n_freed = 0;

  [[nodiscard]] bool full() const { return n_available == kBatch || n_freed == kBatch; }
  [[nodiscard]] bool empty() const { return n_available + n_freed == 0; }
  void clear() { n_available = n_freed = 0; }
};

}  // namespace kvbm::block
