// SIEVE (Zhang et al., NSDI 2024): first in, first out, but the hand skips slots that were used since its last pass. A
// slot that becomes available is inserted under the hand.
#include "policy/slot_list.h"
#include "replay/policies.h"

namespace kvbm::replay {
namespace {

using policy::EvictionPolicy;
using policy::Facts;
using policy::Residents;
using policy::SlotList;

class Sieve final : public EvictionPolicy {
 public:
  Sieve(std::span<Facts> facts, const Residents& residents) : facts_(facts), residents_(residents), list_(facts, 1) {}

  std::string_view name() const noexcept override { return "sieve"; }
  void inserted(std::span<const SlotId> slots, uint32_t) override {
    for (size_t i = slots.size(); i > 0; --i) {
      facts_[slots[i - 1]].aux = 0;
      list_.push_back(slots[i - 1]);
    }
  }
  void available(SlotId slot, uint32_t) override {
    const SlotId where = hand_ == kNoSlot ? list_.front() : hand_;
    list_.insert_before(where, slot);
    hand_ = slot;
  }
  SlotId evict(uint32_t) override {
    while (!list_.empty()) {
      const SlotId slot = hand_ == kNoSlot ? list_.front() : hand_;
      hand_ = list_.after(slot);
      const uint32_t uses = facts_[slot].uses.load(std::memory_order_relaxed);
      if (!residents_.evictable(slot)) {
        list_.remove(slot);
      } else if (facts_[slot].aux != uses) {
        facts_[slot].aux = uses;  // skipped, once for all its uses
      } else {
        list_.remove(slot);
        return slot;
      }
    }
    return kNoSlot;
  }
  void erased(SlotId slot) override {
    if (!list_.has(slot)) return;
    if (hand_ == slot) hand_ = list_.after(slot);
    list_.remove(slot);
  }
  size_t bytes() const noexcept override { return sizeof *this; }

 private:
  std::span<Facts> facts_;
  const Residents& residents_;
  SlotList list_;
  SlotId hand_ = kNoSlot;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_sieve(std::span<Facts> facts, const Residents& residents) {
  return std::make_unique<Sieve>(facts, residents);
}

}  // namespace kvbm::replay
