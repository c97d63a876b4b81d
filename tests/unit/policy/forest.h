// A forest of blocks in slots, for tests of eviction policies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/crypto/random.h"
#include "policy/eviction.h"
#include "policy/hinted.h"

namespace kvbm::policy {

// A forest of blocks in slots, with holds, that obeys the contract of eviction.h.
class Forest final : public Residents {
 public:
  Forest(std::string_view name, size_t capacity, const MakePolicy& make = &make_eviction_policy)
      : facts(capacity), slots_(capacity), policy(make(name, facts, *this)) {}
  // Wraps a policy without hints like the block table does.
  void honour_hints() { policy = with_hints(std::move(policy), facts, *this); }

  bool evictable(SlotId slot) const noexcept override {
    return slots_[slot].resident && slots_[slot].children == 0 && slots_[slot].holds == 0;
  }
  uint64_t name(SlotId slot) const noexcept override { return SeededRandom(slots_[slot].block).next(); }
  bool resident(SlotId slot) const { return slots_[slot].resident; }
  size_t evictables() const {
    size_t n = 0;
    for (SlotId slot = 0; slot < slots_.size(); ++slot) n += evictable(slot) ? 1 : 0;
    return n;
  }
  SlotId free_slot() const {
    for (SlotId slot = 0; slot < slots_.size(); ++slot) {
      if (!slots_[slot].resident) return slot;
    }
    return kNoSlot;
  }
  void insert(SlotId slot, SlotId parent, uint64_t block, uint8_t priority = 0) {
    slots_[slot] = {block, parent, 0, 0, true};
    if (parent != kNoSlot) slots_[parent].children += 1;
    facts[slot].last_use = tick;
    facts[slot].uses = 0;
    facts[slot].priority = priority;
    facts[slot].depth = parent == kNoSlot ? 0 : facts[parent].depth + 1;
    policy->inserted(std::span(&slot, 1), tick);
  }
  // Inserts a chain in one call: each slot is a child of the one before.
  void insert_chain(std::span<const SlotId> slots, SlotId parent, uint64_t first_block) {
    for (const SlotId slot : slots) {
      slots_[slot] = {first_block++, parent, 0, 0, true};
      if (parent != kNoSlot) slots_[parent].children += 1;
      facts[slot].last_use = tick;
      facts[slot].uses = 0;
      facts[slot].priority = 0;
      facts[slot].depth = parent == kNoSlot ? 0 : facts[parent].depth + 1;
      parent = slot;
    }
    policy->inserted(slots, tick);
  }
  void hit(SlotId slot) {
    facts[slot].last_use = tick;
    facts[slot].uses = static_cast<uint16_t>(facts[slot].uses + 1);
    if (policy->hears_uses()) policy->used(std::span(&slot, 1), tick);
  }
  void hint(SlotId slot, uint8_t priority) {
    facts[slot].priority = priority;
    policy->hinted(slot, tick);
  }
  void hold(SlotId slot) { slots_[slot].holds += 1; }
  void release(SlotId slot) {
    slots_[slot].holds -= 1;
    offer(slot);
  }
  bool held(SlotId slot) const { return slots_[slot].holds > 0; }
  void leave(SlotId slot) {
    slots_[slot].resident = false;
    const SlotId parent = slots_[slot].parent;
    if (parent == kNoSlot) return;
    slots_[parent].children -= 1;
    offer(parent);
  }
  // Like leave(). Returns the parent if it has no other children or holds and the policy evicts it next.
  SlotId leave_with_parent(SlotId slot) {
    const SlotId parent = slots_[slot].parent;
    const bool only = parent != kNoSlot && resident(parent) && slots_[parent].children == 1 && !held(parent);
    if (!only || !policy->evicts_next(parent, tick)) {
      leave(slot);
      return kNoSlot;
    }
    slots_[slot].resident = false;
    slots_[parent].children = 0;
    return parent;
  }

  uint32_t tick = 1;
  std::vector<Facts> facts;

 private:
  struct Slot {
    uint64_t block = 0;
    SlotId parent = kNoSlot;
    uint32_t children = 0;
    uint32_t holds = 0;
    bool resident = false;
  };
  void offer(SlotId slot) {
    if (evictable(slot) && facts[slot].queue == 0) policy->available(slot, tick);
  }
  std::vector<Slot> slots_;

 public:
  std::unique_ptr<EvictionPolicy> policy;
};

}  // namespace kvbm::policy
