// Slots by kind and by the epoch of their last use, so that all of one kind and age are found at
// once. Lists are circular through heads that share the links' numbering, so a slot leaves its
// list without anyone knowing which it is in, and whole lists are joined in O(1).
//
// Invariant: facts.queue == 1 for exactly the members. Epochs older than the ring join its oldest.
// Locks: none. Budget: kKinds x kEpochs heads of 8 bytes = 64 KiB; no allocation after construction.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/eviction.h"
#include "policy/return_curve.h"

namespace kvbm::policy {

class BucketQueue {
 public:
  static constexpr uint32_t kEpochs = 512;
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit BucketQueue(std::span<Facts> facts) : facts_(facts), heads_(kKinds * kEpochs) {
    for (uint32_t list = 0; list < heads_.size(); ++list) clear(list);
  }

  [[nodiscard]] uint32_t epoch_ticks() const noexcept { return 1U << shift_; }
  [[nodiscard]] size_t bytes() const noexcept { return heads_.size() * sizeof(Head) + sizeof occupied_; }

  // At the front of its list: a parent that comes after its child goes before what is left.
  void push(SlotId slot, size_t kind, uint32_t last_use, uint32_t now) noexcept {
    advance(now);
    const uint32_t back = std::min((now >> shift_) - (last_use >> shift_), kEpochs - 1);
    const uint32_t list = list_of(kind, back);
    occupied_[kind][(list % kEpochs) / 64] |= uint64_t{1} << (list % 64);
    const uint32_t second = heads_[list].next;
    facts_[slot].next = second;
    facts_[slot].prev = head(list);
    facts_[slot].queue = 1;
    heads_[list].next = slot;
    prev(second) = slot;
  }

  void remove(SlotId slot) noexcept {
    Facts& facts = facts_[slot];
    next(facts.prev) = facts.next;
    prev(facts.next) = facts.prev;
    facts.queue = 0;
  }

  // kNoSlot when the list is empty.
  [[nodiscard]] SlotId front(uint32_t list) const noexcept {
    const uint32_t slot = heads_[list].next;
    return slot < facts_.size() ? slot : kNoSlot;
  }

  // Bit k: kind k may have members; a clear bit is certain.
  [[nodiscard]] uint32_t kinds() const noexcept {
    uint32_t mask = 0;
    for (size_t kind = 0; kind < kKinds; ++kind) {
      uint64_t any = 0;
      for (const uint64_t word : occupied_[kind]) any |= word;
      mask |= (any != 0 ? 1U : 0U) << kind;
    }
    return mask;
  }

  // A list with members whose age is in the bucket, oldest first; kNone when there is none.
  [[nodiscard]] uint32_t find(size_t kind, size_t bucket, uint32_t now) noexcept {
    advance(now);
    const uint32_t begin = (bucket_start(bucket) + epoch_ticks() - 1) >> shift_;
    const uint32_t ending = bucket + 1 < kAges ? (bucket_start(bucket + 1) + epoch_ticks() - 1) >> shift_ : kEpochs;
    for (uint32_t back = std::min(ending, kEpochs); back > begin;) {
      const uint32_t list = list_of(kind, back - 1);
      const uint32_t bit = list % 64;
      uint64_t& word = occupied_[kind][(list % kEpochs) / 64];
      if ((word >> bit) == 0) {  // nothing from here to the word's end
        back -= std::min(64 - bit, back - begin);
        continue;
      }
      if ((word >> bit & 1) != 0) {
        if (front(list) != kNoSlot) return list;
        word &= ~(uint64_t{1} << bit);
      }
      back -= 1;
    }
    return kNone;
  }

  // Doubles the epoch: every member is queued again, O(members); at most 20 times in a life.
  template <class KindOf>
  void coarsen(uint32_t now, KindOf kind_of) noexcept {
    advance(now);
    uint32_t chain = kNoSlot;  // through next, last of the queue first
    for (uint32_t list = 0; list < heads_.size(); ++list) {
      for (uint32_t slot = heads_[list].next; slot < facts_.size();) {
        const uint32_t after = facts_[slot].next;
        facts_[slot].next = chain;
        chain = slot;
        slot = after;
      }
      clear(list);
    }
    occupied_ = {};
    shift_ += 1;
    epoch_ = now >> shift_;
    while (chain != kNoSlot) {
      const uint32_t slot = chain;
      chain = facts_[slot].next;
      push(slot, kind_of(slot), facts_[slot].last_use.load(std::memory_order_relaxed), now);
    }
  }

 private:
  struct Head {
    uint32_t next;
    uint32_t prev;
  };

  [[nodiscard]] uint32_t head(uint32_t list) const noexcept { return static_cast<uint32_t>(facts_.size()) + list; }
  [[nodiscard]] uint32_t& next(uint32_t i) noexcept {
    return i < facts_.size() ? facts_[i].next : heads_[i - facts_.size()].next;
  }
  [[nodiscard]] uint32_t& prev(uint32_t i) noexcept {
    return i < facts_.size() ? facts_[i].prev : heads_[i - facts_.size()].prev;
  }
  void clear(uint32_t list) noexcept { heads_[list] = {head(list), head(list)}; }
  [[nodiscard]] uint32_t list_of(size_t kind, uint32_t back) const noexcept {
    return static_cast<uint32_t>(kind) * kEpochs + (epoch_ - back) % kEpochs;
  }

  // Moves to the epoch of `now`: the ring position it takes over holds the oldest, which joins the next oldest.
  void advance(uint32_t now) noexcept {
    const uint32_t wanted = now >> shift_;
    if (static_cast<int32_t>(wanted - epoch_) <= 0) return;
    const uint32_t steps = std::min(wanted - epoch_, kEpochs);
    epoch_ = wanted - steps;
    for (uint32_t step = 0; step < steps; ++step) {
      epoch_ += 1;
      for (uint32_t kind = 0; kind < kKinds; ++kind) join(kind, epoch_ % kEpochs, (epoch_ + 1) % kEpochs);
    }
  }

  void join(uint32_t kind, uint32_t from_position, uint32_t to_position) noexcept {
    uint64_t& word = occupied_[kind][from_position / 64];
    const uint64_t mask = uint64_t{1} << (from_position % 64);
    if ((word & mask) == 0) return;
    word &= ~mask;
    const uint32_t from = kind * kEpochs + from_position;
    const uint32_t to = kind * kEpochs + to_position;
    if (front(from) == kNoSlot) return;
    const uint32_t first = heads_[from].next;
    const uint32_t last = heads_[from].prev;
    const uint32_t second = heads_[to].next;
    heads_[to].next = first;
    prev(first) = head(to);
    next(last) = second;
    prev(second) = last;
    clear(from);
    occupied_[kind][to_position / 64] |= uint64_t{1} << (to_position % 64);
  }

  std::span<Facts> facts_;
  std::vector<Head> heads_;
  std::array<std::array<uint64_t, kEpochs / 64>, kKinds> occupied_{};
  uint32_t epoch_ = 0;
  uint32_t shift_ = 3;
};

}  // namespace kvbm::policy
