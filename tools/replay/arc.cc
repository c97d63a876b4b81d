// ARC (Megiddo and Modha, FAST 2003): a recency and a frequency list share the space; returns of blocks that either
// evicted lately move the border. The two histories are in one bounded table.
#include <algorithm>

#include "policy/ghosts.h"
#include "policy/recency.h"
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

class Arc final : public EvictionPolicy {
 public:
  Arc(std::span<Facts> facts, const Residents& residents)
      : facts_(facts), residents_(residents), recent_(facts, 1), frequent_(facts, 2), ghosts_(facts.size()) {}

  std::string_view name() const noexcept override { return "arc"; }
  bool hears_uses() const noexcept override { return true; }

  void inserted(std::span<const SlotId> slots, uint32_t tick) override {
    for (size_t i = slots.size(); i > 0; --i) {
      const SlotId slot = slots[i - 1];
      const Ghost ghost = ghosts_.take(residents_.name(slot));
      // The original remembers as many blocks as there are slots; this is approximated by the evictions since.
      const bool known = ghost.known && evictions_ - ghost.last_use <= facts_.size();
      if (known) adapt(ghost.kind == kRecent);
      facts_[slot].aux = known ? 1 : 0;
      (known ? frequent_ : recent_).push_back(slot);
    }
    (void)tick;
  }
  void used(std::span<const SlotId> slots, uint32_t) override {
    for (size_t i = slots.size(); i > 0; --i) {
      erased(slots[i - 1]);
      facts_[slots[i - 1]].aux = 1;
      frequent_.push_back(slots[i - 1]);
    }
  }
  void available(SlotId slot, uint32_t) override {
    policy::return_by_last_use(facts_[slot].aux != 0 ? frequent_ : recent_, facts_, slot);
  }
  SlotId evict(uint32_t) override {
    while (!recent_.empty() || !frequent_.empty()) {
      const bool recent = !recent_.empty() && (frequent_.empty() || recent_.size() > target_);
      SlotList& list = recent ? recent_ : frequent_;
      const SlotId slot = list.front();
      list.remove(slot);
      if (!residents_.evictable(slot)) continue;
      evictions_ += 1;
      (void)ghosts_.put(residents_.name(slot), evictions_, recent ? kRecent : kFrequent, evictions_);
      remembered_[recent ? 0 : 1] = remembered_[recent ? 0 : 1] * kFade + 1;
      return slot;
    }
    return kNoSlot;
  }
  void erased(SlotId slot) override {
    if (recent_.has(slot)) recent_.remove(slot);
    if (frequent_.has(slot)) frequent_.remove(slot);
  }
  size_t bytes() const noexcept override { return sizeof *this + ghosts_.bytes(); }

 private:
  static constexpr uint8_t kRecent = 0;
  static constexpr uint8_t kFrequent = 1;
  static constexpr double kFade = 0.9999;  // the histories' sizes are estimated by recent evictions

  void adapt(bool recent) noexcept {
    const double own = std::max(remembered_[recent ? 0 : 1], 1.0);
    const double step = std::max(remembered_[recent ? 1 : 0] / own, 1.0);
    const double moved = static_cast<double>(target_) + (recent ? step : -step);
    target_ = static_cast<size_t>(std::clamp(moved, 0.0, static_cast<double>(facts_.size())));
  }

  std::span<Facts> facts_;
  const Residents& residents_;
  SlotList recent_;
  SlotList frequent_;
  Ghosts ghosts_;
  size_t target_ = 0;
  uint32_t evictions_ = 0;
  double remembered_[2] = {0, 0};
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_arc(std::span<Facts> facts, const Residents& residents) {
  return std::make_unique<Arc>(facts, residents);
}

}  // namespace kvbm::replay
