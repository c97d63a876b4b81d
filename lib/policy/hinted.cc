#include "policy/hinted.h"

#include <utility>

#include "policy/hints.h"
#include "policy/recency.h"
#include "policy/slot_list.h"

namespace kvbm::policy {
namespace {

// Facts::queue of the slots in the lists of this layer; the policies' own numbers are smaller.
constexpr uint8_t kOneShotList = 254;
constexpr uint8_t kKeptList = 255;

// Invariant: a slot in one of the two lists is unknown to the policy beneath. Its `aux` holds the last use that
// determines its place in the list. `aux` is zeroed when it leaves, as for a slot that a policy has never judged.
class Hinted final : public EvictionPolicy {
 public:
  Hinted(std::unique_ptr<EvictionPolicy> policy, std::span<Facts> facts, const Residents& residents)
      : policy_(std::move(policy)),
        facts_(facts),
        residents_(residents),
        one_shot_(facts, kOneShotList),
        kept_(facts, kKeptList) {}

  [[nodiscard]] std::string_view name() const noexcept override { return policy_->name(); }
  [[nodiscard]] bool hears_uses() const noexcept override { return policy_->hears_uses(); }
  [[nodiscard]] bool hears_hints() const noexcept override { return true; }
  std::vector<std::unique_ptr<EvictionPolicy>> divide(std::span<const Part> parts) override {
    auto made = policy_->divide(parts);
    for (size_t i = 0; i < made.size(); ++i)
      made[i] = with_hints(std::move(made[i]), parts[i].facts, *parts[i].residents);
    return made;
  }

  void inserted(std::span<const SlotId> slots, uint32_t tick) override {
    tick = latest(tick);
    for (size_t begin = 0; begin < slots.size();) {
      SlotList* const mine = list_for(slots[begin]);
      size_t end = begin + 1;
      while (end < slots.size() && list_for(slots[end]) == mine) ++end;
      if (mine == nullptr) {
        policy_->inserted(slots.subspan(begin, end - begin), tick);
      } else {
        for (size_t i = end; i > begin; --i) push_back(*mine, slots[i - 1]);  // children are evicted first
      }
      begin = end;
    }
  }

  void used(std::span<const SlotId> slots, uint32_t tick) override {
    tick = latest(tick);
    for (const SlotId& slot : slots) {
      if (kept_.has(slot)) {
        kept_.remove(slot);
        push_back(kept_, slot);
      } else if (list_for(slot) == nullptr) {
        policy_->used({&slot, 1}, tick);
      }
    }
  }

  void hinted(SlotId slot, uint32_t tick) override {
    SlotList* const to = list_for(slot);
    SlotList* const from = list_of(slot);
    if (from == to) return;
    const bool listed = facts_[slot].queue != 0;
    if (from != nullptr) {
      take_off(*from, slot);
    } else {
      policy_->erased(slot);
      facts_[slot].queue = 0;
      facts_[slot].aux = 0;
    }
    if (!listed) return;  // available() will add it when it is evictable
    if (to != nullptr) {
      push_back(*to, slot);
    } else {
      policy_->inserted({&slot, 1}, latest(tick));
    }
  }

  void available(SlotId slot, uint32_t tick) override {
    SlotList* const mine = list_for(slot);
    if (mine == nullptr) return policy_->available(slot, latest(tick));
    return_by_last_use(*mine, facts_, slot);
    facts_[slot].aux = last_use(slot);
  }

  SlotId evict(uint32_t tick) override {
    tick = latest(tick);
    const SlotId first = first_of(one_shot_, 0);
    if (first != kNoSlot) return first;
    for (int put_back = 0;; ++put_back) {
      const SlotId slot = policy_->evict(tick);
      if (slot == kNoSlot) return first_of(kept_, kMostLooks);
      if (facts_[slot].priority != kHintContinue || put_back == kMostPutBack) return slot;
      facts_[slot].priority = kHintNormal;
      policy_->inserted({&slot, 1}, tick);
    }
  }

  void erased(SlotId slot) override {
    SlotList* const mine = list_of(slot);
    if (mine == nullptr) return policy_->erased(slot);
    take_off(*mine, slot);
  }

  [[nodiscard]] uint64_t refused() const noexcept override { return policy_->refused(); }
  [[nodiscard]] size_t bytes() const noexcept override { return sizeof *this + policy_->bytes(); }

 private:
  [[nodiscard]] uint32_t last_use(SlotId slot) const noexcept {
    return facts_[slot].last_use.load(std::memory_order_relaxed);
  }
  // Returns the list that the slot's hint requires, and the list that it is in; null is the policy, or none.
  [[nodiscard]] SlotList* list_for(SlotId slot) noexcept {
    const uint8_t priority = facts_[slot].priority;
    return priority == kHintOneShot ? &one_shot_ : priority == kHintKeep ? &kept_ : nullptr;
  }
  [[nodiscard]] SlotList* list_of(SlotId slot) noexcept {
    return one_shot_.has(slot) ? &one_shot_ : kept_.has(slot) ? &kept_ : nullptr;
  }

  void push_back(SlotList& list, SlotId slot) noexcept {
    list.push_back(slot);
    facts_[slot].aux = last_use(slot);
  }
  void take_off(SlotList& list, SlotId slot) noexcept {
    list.remove(slot);
    facts_[slot].aux = 0;
  }

  // Returns the first evictable slot. One that was used since it got its place moves to the end, at most `looks` times.
  SlotId first_of(SlotList& list, int looks) noexcept {
    while (!list.empty()) {
      const SlotId slot = list.front();
      const bool used = facts_[slot].aux != last_use(slot);
      take_off(list, slot);
      if (!residents_.evictable(slot)) continue;
      if (!used || looks-- <= 0) return slot;
      push_back(list, slot);
    }
    return kNoSlot;
  }

  // The end of a hold may bring no tick or an old one; policies, above all a caller's own, must see ticks that never
  // fall.
  uint32_t latest(uint32_t tick) noexcept {
    if (static_cast<int32_t>(tick - tick_) > 0) tick_ = tick;
    return tick_;
  }

  const std::unique_ptr<EvictionPolicy> policy_;
  std::span<Facts> facts_;
  const Residents& residents_;
  SlotList one_shot_;
  SlotList kept_;
  uint32_t tick_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> with_hints(std::unique_ptr<EvictionPolicy> policy, std::span<Facts> facts,
                                           const Residents& residents) {
  if (policy == nullptr || policy->hears_hints()) return policy;
  return std::make_unique<Hinted>(std::move(policy), facts, residents);
}

}  // namespace kvbm::policy
