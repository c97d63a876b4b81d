// The pace of a load that waits for all that it asks for. That of a weighed one: load_cost.cc.
#include "manager/operation/load.h"

#include <algorithm>

#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

class LoadOperation::Steady final : public Pace {
 public:
  uint64_t batch_bytes(const LoadOperation& load, const Item& first, uint64_t left) override {
    return shrunk(load, first, left / 8, kLeastLandingBytes, kLandingBytes);
  }
  bool may_ask(const LoadOperation& load) override KVBM_REQUIRES(load.mutex_) {
    const tier::HostArena& arena = load.host_.arena();
    const uint64_t most = std::clamp(arena.capacity_bytes() / 8, kSmallWindowBytes, kWindowBytes);
    if (load.landing_ != 0 && load.landing_blocks_ >= arena.slots() / 2) return false;  // other loads need slots, too
    if (load.landing_ == 0) return true;
    return load.landing_bytes_ < shrunk(load, load.below_.front(), load.bytes_left() / 2, kLeastWindowBytes, most);
  }

 private:
  // Returns `bytes` within the limits; of records in a store `most`.
  static uint64_t shrunk(const LoadOperation& load, const Item& item, uint64_t bytes, uint64_t least, uint64_t most) {
    return load.in_store(item.got.from) ? most : std::clamp(bytes, least, most);
  }
};

LoadOperation::Pace& LoadOperation::steady() noexcept {
  static Steady of_all{};
  return of_all;
}

}  // namespace kvbm::manager
