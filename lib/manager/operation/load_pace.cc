// The pace of a load that waits for all that it asks for. That of a weighed one: load_cost.cc.
#include "manager/operation/load.h"

#include <algorithm>

#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

uint64_t LoadOperation::Pace::batch_bytes(const LoadOperation& load, const Item& first, uint64_t left) {
  return load.in_store(first.got.from) ? kLandingBytes : std::clamp(left / 8, kLeastLandingBytes, kLandingBytes);
}

bool LoadOperation::Pace::may_ask(const LoadOperation& load) {
  const tier::HostArena& arena = load.host_.arena();
  if (load.landing_ != 0 && load.landing_blocks_ >= arena.slots() / 2) return false;  // other loads need slots, too
  if (load.landing_ == 0) return true;
  uint64_t window = std::clamp(arena.capacity_bytes() / 8, kSmallWindowBytes, kWindowBytes);
  if (!load.in_store(load.below_.front().got.from)) {
    window = std::clamp(load.bytes_left() / 2, kLeastWindowBytes, window);
  }
  return load.landing_bytes_ < window;
}

LoadOperation::Pace& LoadOperation::steady() noexcept {
  static Pace of_all{};
  return of_all;
}

}  // namespace kvbm::manager
