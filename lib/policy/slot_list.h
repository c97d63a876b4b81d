// A doubly linked list of slots through the links of their facts, oldest at the front.
//
// Invariant: facts[slot].queue == id for exactly the members, so a slot is in one list at most.
// Locks: none; the policy's caller serialises. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "policy/eviction.h"

namespace kvbm::policy {

class SlotList {
 public:
  SlotList(std::span<Facts> facts, uint8_t id) noexcept : facts_(facts), id_(id) {}

  [[nodiscard]] bool empty() const noexcept { return front_ == kNoSlot; }
  [[nodiscard]] size_t size() const noexcept { return size_; }
  [[nodiscard]] SlotId front() const noexcept { return front_; }
  [[nodiscard]] SlotId back() const noexcept { return back_; }
  [[nodiscard]] SlotId after(SlotId slot) const noexcept { return facts_[slot].next; }
  [[nodiscard]] bool has(SlotId slot) const noexcept { return facts_[slot].queue == id_; }

  void push_back(SlotId slot) noexcept { insert_before(kNoSlot, slot); }
  void push_front(SlotId slot) noexcept { insert_before(front_, slot); }

  // `where` = kNoSlot inserts at the back.
  void insert_before(SlotId where, SlotId slot) noexcept {
    Facts& facts = facts_[slot];
    const SlotId before = where == kNoSlot ? back_ : facts_[where].prev;
    facts.prev = before;
    facts.next = where;
    facts.queue = id_;
    (before == kNoSlot ? front_ : facts_[before].next) = slot;
    (where == kNoSlot ? back_ : facts_[where].prev) = slot;
    size_ += 1;
  }

  void remove(SlotId slot) noexcept {
    Facts& facts = facts_[slot];
    (facts.prev == kNoSlot ? front_ : facts_[facts.prev].next) = facts.next;
    (facts.next == kNoSlot ? back_ : facts_[facts.next].prev) = facts.prev;
    facts.queue = 0;
    size_ -= 1;
  }

 private:
  std::span<Facts> facts_;
  SlotId front_ = kNoSlot;
  SlotId back_ = kNoSlot;
  size_t size_ = 0;
  uint8_t id_;
};

}  // namespace kvbm::policy
