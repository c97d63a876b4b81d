// Blocks that a prefix needs of each part of a model: attention every block, a sliding window those it reaches, a
// recurrent state the last.
#pragma once

#include <algorithm>
#include <cstddef>

#include "manager/namespaces/namespace.h"

namespace kvbm::manager {

// Returns the number of trailing blocks that a window or state part needs; 0 for parts that need all.
inline size_t tail_blocks(const PartPlan& plan) noexcept {
  if (plan.kind == layout::ComponentKind::state) return 1;
  if (plan.kind == layout::ComponentKind::sliding_window) return std::max<size_t>(1, plan.window_blocks);
  return 0;
}

// Returns the longest L of n blocks such that every part has the blocks that a prefix of L blocks needs of it.
// plan(p) is the p-th of `parts` plans; present(p, i) is true if its block i exists.
template <class Plan, class Present>
size_t longest_prefix(size_t parts, size_t n, const Plan& plan, const Present& present) noexcept {
  size_t length = n;
  for (size_t p = 0; p < parts; ++p) {
    if (tail_blocks(plan(p)) != 0) continue;
    size_t reach = 0;
    while (reach < length && present(p, reach)) ++reach;
    length = reach;
  }
  const auto tails_present = [&] {
    for (size_t p = 0; p < parts; ++p) {
      const size_t reach = tail_blocks(plan(p));
      for (size_t i = length - std::min(length, reach); i < length; ++i) {
        if (!present(p, i)) return false;
      }
    }
    return true;
  };
  while (length != 0 && !tails_present()) --length;
  return length;
}

}  // namespace kvbm::manager
