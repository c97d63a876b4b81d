// Least frequently used; counts uses before an eviction too while the history remembers them. Of equally used blocks
// the oldest is evicted.
#include <algorithm>
#include <vector>

#include "policy/ghosts.h"
#include "policy/policies.h"
#include "policy/slot_list.h"

namespace kvbm::policy {
namespace {

class Lfu final : public EvictionPolicy {
 public:
  Lfu(std::span<Facts> facts, const Residents& residents)
      : facts_(facts), residents_(residents), ghosts_(facts.size()) {
    for (uint8_t level = 0; level < kLevels; ++level) lists_.emplace_back(facts, static_cast<uint8_t>(level + 1));
  }

  std::string_view name() const noexcept override { return "lfu"; }
  void inserted(std::span<const SlotId> slots, uint32_t) override {
    for (size_t i = slots.size(); i > 0; --i) {
      const SlotId slot = slots[i - 1];
      const Ghost ghost = ghosts_.take(residents_.name(slot));
      facts_[slot].aux = !ghost.known ? 0U : ghost.kind + 1U;
      list(slot).push_back(slot);
    }
  }
  void available(SlotId slot, uint32_t) override { list(slot).push_front(slot); }
  SlotId evict(uint32_t tick) override {
    for (SlotList& level : lists_) {
      while (!level.empty()) {
        const SlotId slot = level.front();
        level.remove(slot);
        if (!residents_.evictable(slot)) continue;
        SlotList& now = list(slot);
        if (&now != &level) {
          now.push_back(slot);
          continue;
        }
        const uint32_t last = facts_[slot].last_use.load(std::memory_order_relaxed);
        (void)ghosts_.put(residents_.name(slot), last, static_cast<uint8_t>(count(slot)), tick);
        return slot;
      }
    }
    return kNoSlot;
  }
  void erased(SlotId slot) override {
    if (facts_[slot].queue != 0) lists_[facts_[slot].queue - 1U].remove(slot);
  }
  size_t bytes() const noexcept override { return sizeof *this + ghosts_.bytes() + lists_.size() * sizeof(SlotList); }

 private:
  static constexpr uint8_t kLevels = 64;  // larger counts are equal

  [[nodiscard]] uint32_t count(SlotId slot) const noexcept {
    return std::min<uint32_t>(facts_[slot].aux + facts_[slot].uses.load(std::memory_order_relaxed), kLevels - 1);
  }
  [[nodiscard]] SlotList& list(SlotId slot) noexcept { return lists_[count(slot)]; }

  std::span<Facts> facts_;
  const Residents& residents_;
  Ghosts ghosts_;
  std::vector<SlotList> lists_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lfu(std::span<Facts> facts, const Residents& residents) {
  return std::make_unique<Lfu>(facts, residents);
}

}  // namespace kvbm::policy
