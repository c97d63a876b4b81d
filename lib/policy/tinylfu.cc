// W-TinyLFU (Einziger, Friedman, Manes, ACM TOS 2017): a window of 1 % in front of a segmented LRU (20 % probation, 80
// % protected). The window's oldest replaces probation's oldest only if the sketch has counted more uses of it.
#include <algorithm>

#include "policy/policies.h"
#include "policy/recency.h"
#include "policy/sketch.h"
#include "policy/slot_list.h"

namespace kvbm::policy {
namespace {

class TinyLfu final : public EvictionPolicy {
 public:
  TinyLfu(std::span<Facts> facts, const Residents& residents)
      : facts_(facts),
        residents_(residents),
        window_(facts, 1),
        probation_(facts, 2),
        protected_(facts, 3),
        sketch_(facts.size()),
        window_target_(std::max<size_t>(facts.size() / 100, 1)),
        protected_target_((facts.size() - facts.size() / 100) * 4 / 5) {}

  std::string_view name() const noexcept override { return "tinylfu"; }
  bool hears_uses() const noexcept override { return true; }

  void inserted(std::span<const SlotId> slots, uint32_t) override {
    for (size_t i = slots.size(); i > 0; --i) {
      sketch_.add(residents_.name(slots[i - 1]));
      place(window_, slots[i - 1]);
    }
    // Until the cache is first full, blocks leave the window without a comparison.
    while (!full_ && window_.size() > window_target_) move(window_, probation_);
  }
  void used(std::span<const SlotId> slots, uint32_t) override {
    for (size_t i = slots.size(); i > 0; --i) {
      const SlotId slot = slots[i - 1];
      sketch_.add(residents_.name(slot));
      const bool in_window = facts_[slot].aux == 1;
      erased(slot);
      place(in_window ? window_ : protected_, slot);
    }
    while (protected_.size() > protected_target_) move(protected_, probation_);
  }
  void available(SlotId slot, uint32_t) override {
    SlotList& list = facts_[slot].aux == 1 ? window_ : facts_[slot].aux == 3 ? protected_ : probation_;
    return_by_last_use(list, facts_, slot);
  }
  SlotId evict(uint32_t) override {
    full_ = true;
    const SlotId candidate = usable(window_);
    SlotId victim = usable(probation_);
    if (victim == kNoSlot) victim = usable(protected_);
    if (candidate == kNoSlot || victim == kNoSlot) return taken(candidate == kNoSlot ? victim : candidate);
    if (window_.size() <= window_target_) return taken(victim);
    if (sketch_.count(residents_.name(candidate)) <= sketch_.count(residents_.name(victim))) return taken(candidate);
    move(window_, probation_);
    return taken(victim);
  }
  void erased(SlotId slot) override {
    for (SlotList* list : {&window_, &probation_, &protected_}) {
      if (list->has(slot)) list->remove(slot);
    }
  }
  size_t bytes() const noexcept override { return sizeof *this + sketch_.bytes(); }

 private:
  void place(SlotList& list, SlotId slot) noexcept {
    list.push_back(slot);
    facts_[slot].aux = facts_[slot].queue;  // list that it returns to after a hold
  }
  void move(SlotList& from, SlotList& to) noexcept {
    const SlotId slot = from.front();
    from.remove(slot);
    place(to, slot);
  }
  SlotId taken(SlotId slot) noexcept {
    if (slot != kNoSlot) erased(slot);
    return slot;
  }
  // Returns the first evictable slot; those before it leave the list.
  SlotId usable(SlotList& list) noexcept {
    while (!list.empty() && !residents_.evictable(list.front())) list.remove(list.front());
    return list.front();
  }

  std::span<Facts> facts_;
  const Residents& residents_;
  SlotList window_;
  SlotList probation_;
  SlotList protected_;
  Sketch sketch_;
  size_t window_target_;
  size_t protected_target_;
  bool full_ = false;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_tinylfu(std::span<Facts> facts, const Residents& residents) {
  return std::make_unique<TinyLfu>(facts, residents);
}

}  // namespace kvbm::policy
