// S3-FIFO (Yang et al., SOSP 2023): blocks enter the main queue only if they are used again while in a small queue of
// 10 %. A ghost history readmits blocks that were evicted from the small queue too early.
#include <algorithm>

#include "policy/ghosts.h"
#include "policy/slot_list.h"
#include "replay/policies.h"

namespace kvbm::replay {
namespace {

using policy::EvictionPolicy;
using policy::Facts;
using policy::Ghost;
using policy::Ghosts;
using policy::Residents;
using policy::SlotList;

class S3Fifo final : public EvictionPolicy {
 public:
  S3Fifo(std::span<Facts> facts, const Residents& residents)
      : facts_(facts),
        residents_(residents),
        small_(facts, 1),
        main_(facts, 2),
        ghosts_(facts.size()),
        small_target_(std::max<size_t>(facts.size() / 10, 1)) {}

  std::string_view name() const noexcept override { return "s3fifo"; }
  void inserted(std::span<const SlotId> slots, uint32_t tick) override {
    for (size_t i = slots.size(); i > 0; --i) {
      const SlotId slot = slots[i - 1];
      const Ghost ghost = ghosts_.take(residents_.name(slot));
      // The original's history is as long as the main queue; here it is limited by ticks.
      const bool back = ghost.known && tick - ghost.last_use < horizon_;
      facts_[slot].aux = back ? kMain : 0;
      (back ? main_ : small_).push_back(slot);
    }
    arrivals_ += slots.size();
    horizon_ = static_cast<uint32_t>(
        std::min<uint64_t>(uint64_t{tick} * facts_.size() / std::max<uint64_t>(arrivals_, 1) + 1, UINT32_MAX));
  }
  void available(SlotId slot, uint32_t) override {
    ((facts_[slot].aux & kMain) != 0 ? main_ : small_).push_front(slot);
  }
  SlotId evict(uint32_t tick) override {
    while (!small_.empty() || !main_.empty()) {
      const bool from_small = main_.empty() || small_.size() > small_target_;
      SlotList& list = from_small && !small_.empty() ? small_ : main_;
      const SlotId slot = list.front();
      list.remove(slot);
      if (!residents_.evictable(slot)) continue;
      const bool was_small = &list == &small_;
      if (spared(slot, was_small)) continue;
      if (was_small) {
        (void)ghosts_.put(residents_.name(slot), tick, 0, tick);
      }
      return slot;
    }
    return kNoSlot;
  }
  void erased(SlotId slot) override {
    if (small_.has(slot)) small_.remove(slot);
    if (main_.has(slot)) main_.remove(slot);
  }
  size_t bytes() const noexcept override { return sizeof *this + ghosts_.bytes(); }

 private:
  static constexpr uint32_t kMain = 1;

  // aux: bit 0 in the main queue, bits 1-2 second chances left, the rest uses seen.
  bool spared(SlotId slot, bool was_small) noexcept {
    Facts& facts = facts_[slot];
    const uint32_t uses = facts.uses.load(std::memory_order_relaxed);
    const uint32_t chances = std::min<uint32_t>((facts.aux >> 1 & 3) + ((uses - (facts.aux >> 3)) & 0xFFFF), 3);
    if (chances == 0) return false;
    facts.aux = kMain | (was_small ? 0 : (chances - 1) << 1) | uses << 3;
    main_.push_back(slot);
    return true;
  }

  std::span<Facts> facts_;
  const Residents& residents_;
  SlotList small_;
  SlotList main_;
  Ghosts ghosts_;
  size_t small_target_;
  uint64_t arrivals_ = 0;
  uint32_t horizon_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_s3fifo(std::span<Facts> facts, const Residents& residents) {
  return std::make_unique<S3Fifo>(facts, residents);
}

}  // namespace kvbm::replay
