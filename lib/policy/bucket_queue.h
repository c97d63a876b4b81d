// Queues slots by kind and by the epoch of their last use, so that all of one kind and age are found at once. Lists are
// circular through heads that share the links' numbering. So a slot can be removed without knowing its list, and whole
// lists are joined in O(1).
//
// Invariant: facts.queue == 1 for exactly the members. Epochs older than the ring join its oldest.
// Locks: none. Budget: kKinds x kEpochs heads of 8 bytes = 96 KiB; no allocation after construction.
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
    map_ages();
  }

  [[nodiscard]] uint32_t epoch_ticks() const noexcept { return 1U << shift_; }
  [[nodiscard]] size_t bytes() const noexcept { return heads_.size() * sizeof(Head); }
  // Grows whenever the ages of queued slots change.
  [[nodiscard]] uint32_t epoch() const noexcept { return epoch_; }

  // Returns the list that a push would go to. Call after advance().
  [[nodiscard]] uint32_t list_at(size_t kind, uint32_t last_use, uint32_t now) const noexcept {
    return list_of(kind, epochs_back(last_use, now));
  }

  // Adds a slot at the front of its list: a parent is evicted right after its child. Returns the bucket of its age.
  size_t push(SlotId slot, size_t kind, uint32_t last_use, uint32_t now) noexcept {
    return push({&slot, 1}, kind, last_use, now);
  }

  // Adds many of one kind and last use, each in front of the one before.
  size_t push(std::span<const SlotId> slots, size_t kind, uint32_t last_use, uint32_t now) noexcept {
    advance(now);
    const uint32_t back = epochs_back(last_use, now);
    const uint32_t list = list_of(kind, back);
    occupied_[kind][(list % kEpochs) / 64] |= uint64_t{1} << (list % 64);
    uint32_t second = heads_[list].next;
    prev(second) = slots.front();
    for (size_t i = 0; i < slots.size(); ++i) {
      Facts& facts = facts_[slots[i]];
      facts.next = second;
      facts.prev = i + 1 < slots.size() ? slots[i + 1] : head(list);
      facts.queue = 1;
      second = slots[i];
    }
    heads_[list].next = second;
    return bucket_of_[back];
  }

  void remove(SlotId slot) noexcept {
    Facts& facts = facts_[slot];
    next(facts.prev) = facts.next;
    prev(facts.next) = facts.prev;
    facts.queue = 0;
  }

  // Returns kNoSlot if the list is empty.
  [[nodiscard]] SlotId front(uint32_t list) const noexcept {
    const uint32_t slot = heads_[list].next;
    return slot < facts_.size() ? slot : kNoSlot;
  }

  // Finds a list with members of an age in the bucket, oldest first; kNone if there is none. Call after advance().
  [[nodiscard]] uint32_t find(size_t kind, size_t bucket) noexcept {
    const uint32_t begin = first_of_[bucket];
    const uint32_t ending = first_of_[bucket + 1];
    for (uint32_t back = ending; back > begin;) {
      const uint32_t list = list_of(kind, back - 1);
      const uint32_t bit = list % 64;
      uint64_t& word = occupied_[kind][(list % kEpochs) / 64];
      if ((word >> bit) == 0) {  // nothing from here to the end of the word
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

  // Moves to the epoch of `now`. Its ring position held the oldest epoch, which joins the next oldest.
  void advance(uint32_t now) noexcept {
    const uint32_t wanted = now >> shift_;
    if (static_cast<int32_t>(wanted - epoch_) <= 0) return;
    const uint32_t steps = std::min(wanted - epoch_, kEpochs);
    epoch_ = wanted - steps;
    for (uint32_t step = 0; step < steps; ++step) {
      epoch_ += 1;
      for (uint32_t kind = 0; kind < kKinds; ++kind) {
        join(kind * kEpochs + epoch_ % kEpochs, kind * kEpochs + (epoch_ + 1) % kEpochs);
      }
    }
  }

  // Doubles the epoch by joining lists in pairs: O(lists), whatever the number of members.
  void coarsen(uint32_t now) noexcept {
    advance(now);
    const uint32_t doubled = epoch_ >> 1;
    for (uint32_t kind = 0; kind < kKinds; ++kind) {
      std::array<Head, kEpochs> chains{};  // by age in epochs, each from its first to its last member
      for (uint32_t back = 0; back < kEpochs; ++back) {
        const uint32_t list = list_of(kind, back);
        chains[back] = heads_[list];
        clear(list);
      }
      occupied_[kind] = {};
      for (uint32_t back = 0; back < kEpochs; ++back) {  // the older of a pair is later, so it gets to the front
        if (chains[back].next >= facts_.size()) continue;
        const uint32_t list = kind * kEpochs + ((epoch_ - back) >> 1) % kEpochs;
        put_front(list, chains[back].next, chains[back].prev);
      }
    }
    epoch_ = doubled;
    shift_ += 1;
    map_ages();
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
  [[nodiscard]] uint32_t epochs_back(uint32_t last_use, uint32_t now) const noexcept {
    const auto behind = static_cast<int32_t>((now >> shift_) - (last_use >> shift_));  // a use may be ahead of `now`
    return std::min(static_cast<uint32_t>(std::max(behind, 0)), kEpochs - 1);
  }
  void clear(uint32_t list) noexcept { heads_[list] = {head(list), head(list)}; }
  [[nodiscard]] uint32_t list_of(size_t kind, uint32_t back) const noexcept {
    return static_cast<uint32_t>(kind) * kEpochs + (epoch_ - back) % kEpochs;
  }

  // Adds a chain of members that are already linked to each other.
  void put_front(uint32_t list, uint32_t first, uint32_t last) noexcept {
    const uint32_t second = heads_[list].next;
    heads_[list].next = first;
    prev(first) = head(list);
    next(last) = second;
    prev(second) = last;
    occupied_[list / kEpochs][(list % kEpochs) / 64] |= uint64_t{1} << (list % 64);
  }

  void join(uint32_t from, uint32_t to) noexcept {
    uint64_t& word = occupied_[from / kEpochs][(from % kEpochs) / 64];
    const uint64_t mask = uint64_t{1} << (from % 64);
    if ((word & mask) == 0) return;
    word &= ~mask;
    if (front(from) == kNoSlot) return;
    const Head chain = heads_[from];
    clear(from);
    put_front(to, chain.next, chain.prev);
  }

  // Maps epochs to the buckets in which they begin.
  void map_ages() noexcept {
    for (size_t bucket = 0; bucket <= kAges; ++bucket) {
      const uint32_t first = bucket < kAges ? (bucket_start(bucket) + epoch_ticks() - 1) >> shift_ : kEpochs;
      first_of_[bucket] = static_cast<uint16_t>(std::min(first, kEpochs));
      for (uint32_t back = first_of_[bucket]; back < kEpochs; ++back) {
        bucket_of_[back] = static_cast<uint8_t>(std::min(bucket, kAges - 1));
      }
    }
  }

  std::span<Facts> facts_;
  std::vector<Head> heads_;
  std::array<std::array<uint64_t, kEpochs / 64>, kKinds> occupied_{};
  std::array<uint16_t, kAges + 1> first_of_{};
  std::array<uint8_t, kEpochs> bucket_of_{};
  uint32_t epoch_ = 0;
  uint32_t shift_ = 3;
};

}  // namespace kvbm::policy
