// A block table over a plain LRU policy, and keys by number.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "block/block_table.h"
#include "policy/eviction.h"

namespace kvbm::block {

// Evicts the least recently used slot by the facts, found by a search over all: slow, and obviously right.
class PlainLru : public policy::EvictionPolicy {
 public:
  PlainLru(std::span<policy::Facts> facts, const policy::Residents& residents)
      : facts_(facts), residents_(residents), mine_(facts.size()) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "plain-lru"; }
  void inserted(std::span<const SlotId> slots, uint32_t tick) override {
    for (const SlotId slot : slots) available(slot, tick);
  }
  void available(SlotId slot, uint32_t) override {
    facts_[slot].queue = 1;
    mine_[slot] = true;
  }
  SlotId evict(uint32_t) override {
    SlotId best = kNoSlot;
    for (SlotId slot = 0; slot < facts_.size(); ++slot) {
      if (!mine_[slot] || facts_[slot].queue == 0) continue;
      if (!residents_.evictable(slot)) {
        erased(slot);
        continue;
      }
      if (best == kNoSlot || facts_[slot].last_use < facts_[best].last_use) best = slot;
    }
    if (best != kNoSlot) erased(best);
    return best;
  }
  void erased(SlotId slot) override {
    facts_[slot].queue = 0;
    mine_[slot] = false;
  }
  std::vector<std::unique_ptr<policy::EvictionPolicy>> divide(std::span<const Part> parts) override {
    std::vector<std::unique_ptr<policy::EvictionPolicy>> made;
    for (const Part& part : parts) made.push_back(std::make_unique<PlainLru>(part.facts, *part.residents));
    return made;
  }
  [[nodiscard]] size_t bytes() const noexcept override { return 0; }

 private:
  std::span<policy::Facts> facts_;
  const policy::Residents& residents_;
  std::vector<bool> mine_;  // a table with limited accounts has several policies over the same facts
};

// First in, first out, in constant time: for tests with many blocks. Uses the facts' links.
class PlainFifo final : public policy::EvictionPolicy {
 public:
  PlainFifo(std::span<policy::Facts> facts, const policy::Residents& residents)
      : facts_(facts), residents_(residents) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "plain-fifo"; }
  void inserted(std::span<const SlotId> slots, uint32_t tick) override {
    for (size_t i = slots.size(); i > 0; --i) available(slots[i - 1], tick);  // leaves first
  }
  void available(SlotId slot, uint32_t) override {
    facts_[slot].queue = 1;
    facts_[slot].next = kNoSlot;
    facts_[slot].prev = tail_;
    (tail_ == kNoSlot ? head_ : facts_[tail_].next) = slot;
    tail_ = slot;
  }
  SlotId evict(uint32_t) override {
    while (head_ != kNoSlot) {
      const SlotId slot = head_;
      erased(slot);
      if (residents_.evictable(slot)) return slot;
    }
    return kNoSlot;
  }
  void erased(SlotId slot) override {
    if (facts_[slot].queue == 0) return;
    const SlotId next = facts_[slot].next;
    const SlotId prev = facts_[slot].prev;
    (prev == kNoSlot ? head_ : facts_[prev].next) = next;
    (next == kNoSlot ? tail_ : facts_[next].prev) = prev;
    facts_[slot].queue = 0;
  }
  std::vector<std::unique_ptr<policy::EvictionPolicy>> divide(std::span<const Part> parts) override {
    std::vector<std::unique_ptr<policy::EvictionPolicy>> made;
    for (const Part& part : parts) made.push_back(std::make_unique<PlainFifo>(part.facts, *part.residents));
    return made;
  }
  [[nodiscard]] size_t bytes() const noexcept override { return 0; }

 private:
  std::span<policy::Facts> facts_;
  const policy::Residents& residents_;
  SlotId head_ = kNoSlot;
  SlotId tail_ = kNoSlot;
};

// A policy that cannot be divided.
class WholeLru final : public PlainLru {
 public:
  using PlainLru::PlainLru;
  std::vector<std::unique_ptr<policy::EvictionPolicy>> divide(std::span<const Part>) override { return {}; }
};

inline std::unique_ptr<policy::EvictionPolicy> make_plain(std::string_view name, std::span<policy::Facts> facts,
                                                          const policy::Residents& residents) {
  if (name == "lru") return std::make_unique<PlainLru>(facts, residents);
  if (name == "fifo") return std::make_unique<PlainFifo>(facts, residents);
  if (name == "whole") return std::make_unique<WholeLru>(facts, residents);
  return nullptr;
}

inline std::unique_ptr<BlockTable> make_table(uint32_t slots, const char* policy = "lru", uint32_t pools = 1) {
  auto made = BlockTable::create({.slots = slots, .policy = policy, .make = &make_plain, .marks = {}, .pools = pools});
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

inline Key key_of(uint64_t n) {
  Key key;
  std::memcpy(key.bytes.data(), &n, sizeof n);
  const uint64_t high = ~n;
  std::memcpy(key.bytes.data() + 8, &high, sizeof high);
  return key;
}

inline std::vector<Key> keys_of(uint64_t first, size_t n) {
  std::vector<Key> keys;
  for (size_t i = 0; i < n; ++i) keys.push_back(key_of(first + i));
  return keys;
}

// Allocates, completes and publishes; the returned slots are held.
inline std::vector<SlotId> store(BlockTable& table, const std::vector<Key>& keys, uint32_t tick,
                                 Lineage lineage = Lineage::none, FamilyId family = 0,
                                 std::vector<Evicted>* evicted = nullptr, AccountId account = kSharedAccount) {
  std::vector<SlotId> slots(keys.size());
  EXPECT_EQ(table.allocate(account, slots, evicted, tick), Code::ok);
  EXPECT_EQ(table.complete(slots), Code::ok);
  Publication what;
  what.family = family;
  what.keys = keys;
  what.lineage = lineage;
  what.tick = tick;
  EXPECT_EQ(table.publish(slots, what, {}), Code::ok);
  return slots;
}

inline size_t present(BlockTable& table, const std::vector<Key>& keys, FamilyId family = 0) {
  std::vector<uint8_t> found(keys.size());
  table.probe(family, keys, found);
  size_t n = 0;
  for (const uint8_t hit : found) n += hit;
  return n;
}

}  // namespace kvbm::block
