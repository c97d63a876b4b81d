// Inserts a slot that becomes `available` into a list that is ordered by last use.
#pragma once

#include <span>

#include "policy/eviction.h"
#include "policy/slot_list.h"

namespace kvbm::policy {

// A parent is inserted at the front or near it after its last child was evicted, a slot after a hold at the back. At
// most this many steps are walked between, to stay O(1).
inline constexpr int kReturnSteps = 16;

inline void return_by_last_use(SlotList& list, std::span<Facts> facts, SlotId slot) noexcept {
  const uint32_t used = facts[slot].last_use.load(std::memory_order_relaxed);
  const auto newer_or_equal = [&](SlotId other) {
    return static_cast<int32_t>(facts[other].last_use.load(std::memory_order_relaxed) - used) >= 0;
  };
  if (list.empty() || !newer_or_equal(list.back())) return list.push_back(slot);
  SlotId where = list.front();
  for (int step = 0; step < kReturnSteps && !newer_or_equal(where); ++step) where = list.after(where);
  list.insert_before(where, slot);
}

}  // namespace kvbm::policy
