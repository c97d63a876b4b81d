// Lives of eviction policies that hold for each of them: random requests, checked by the contract of eviction.h.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <string_view>
#include <vector>

#include "base/crypto/random.h"
#include "unit/policy/forest.h"

namespace kvbm::policy {

// Makes random inserts, hits, holds, releases, erasures and evictions. Returns the evicted slots.
inline std::vector<SlotId> random_life(std::string_view name, uint64_t seed, size_t capacity, int steps,
                                       const MakePolicy& make = &make_eviction_policy) {
  Forest forest(name, capacity, make);
  SeededRandom random(seed);
  std::vector<SlotId> evicted;
  for (int step = 0; step < steps; ++step) {
    forest.tick += static_cast<uint32_t>(random.below(3));
    const auto slot = static_cast<SlotId>(random.below(capacity));
    const uint64_t action = random.below(10);
    if (action < 4) {
      SlotId room = forest.free_slot();
      if (room == kNoSlot) {
        const size_t before = forest.evictables();
        const SlotId victim = forest.policy->evict(forest.tick);
        EXPECT_EQ(victim == kNoSlot, before == 0) << name << " seed " << seed << " step " << step;
        if (victim == kNoSlot) continue;
        EXPECT_TRUE(forest.evictable(victim)) << name << " seed " << seed << " step " << step;
        EXPECT_EQ(forest.facts[victim].queue, 0) << name;
        forest.leave(victim);
        evicted.push_back(victim);
        room = victim;
      }
      const SlotId parent = room != slot && forest.resident(slot) ? slot : kNoSlot;
      forest.insert(room, parent, random.below(4 * capacity), random.below(20) == 0 ? 3 : 0);
    } else if (!forest.resident(slot)) {
      continue;
    } else if (action < 7) {
      forest.hit(slot);
    } else if (action == 7) {
      forest.hold(slot);
    } else if (action == 8 && forest.held(slot)) {
      forest.release(slot);
    } else if (action == 9 && forest.evictable(slot) && random.below(4) == 0) {
      forest.policy->erased(slot);
      forest.leave(slot);
    }
  }
  // Evicts until nothing is left: every evictable slot is chosen once, children before their parents.
  for (SlotId slot = 0; slot < capacity; ++slot) {
    while (forest.held(slot)) forest.release(slot);
  }
  size_t left = 0;
  for (SlotId slot = 0; slot < capacity; ++slot) left += forest.resident(slot) ? 1 : 0;
  for (; left > 0; --left) {
    const SlotId victim = forest.policy->evict(++forest.tick);
    EXPECT_NE(victim, kNoSlot) << name << " seed " << seed << ", " << left << " left";
    if (victim == kNoSlot) return evicted;
    EXPECT_TRUE(forest.evictable(victim)) << name << " seed " << seed;
    forest.leave(victim);
    evicted.push_back(victim);
  }
  EXPECT_EQ(forest.policy->evict(forest.tick), kNoSlot) << name;
  return evicted;
}

struct Chains {
  std::vector<SlotId> evicted;
  size_t followed = 0;  // parents that went in the same step as their child
};

// Runs random chains of up to 70 blocks with hits and holds. With `follow`, each eviction continues with the parent.
inline Chains life_of_chains(std::string_view name, bool follow, const MakePolicy& make = &make_eviction_policy) {
  constexpr size_t kCapacity = 3000;
  Forest forest(name, kCapacity, make);
  SeededRandom random(11);
  Chains out;
  std::vector<SlotId> room(kCapacity);
  for (SlotId slot = 0; slot < kCapacity; ++slot) room[slot] = slot;
  for (uint64_t request = 0; request < 4000; ++request) {
    forest.tick += 1;
    const size_t n = 1 + random.below(70);
    const auto below = static_cast<SlotId>(random.below(kCapacity));
    const SlotId parent = random.below(3) == 0 && forest.resident(below) ? below : kNoSlot;
    if (parent != kNoSlot) forest.hold(parent);
    while (room.size() < n) {
      for (SlotId victim = forest.policy->evict(forest.tick); victim != kNoSlot;) {
        room.push_back(victim);
        out.evicted.push_back(victim);
        if (!follow || room.size() == n) {
          forest.leave(victim);
          break;
        }
        victim = forest.leave_with_parent(victim);
        out.followed += victim != kNoSlot ? 1 : 0;
      }
    }
    const std::vector<SlotId> chain(room.end() - static_cast<std::ptrdiff_t>(n), room.end());
    room.resize(room.size() - n);
    forest.insert_chain(chain, parent, random.below(4) == 0 ? request / 2 * 100 : request * 100);
    if (parent != kNoSlot) forest.release(parent);
    for (int i = 0; i < 10; ++i) {
      const auto hit = static_cast<SlotId>(random.below(kCapacity));
      if (forest.resident(hit)) forest.hit(hit);
    }
  }
  return out;
}

struct AllEvictable final : Residents {
  [[nodiscard]] bool evictable(SlotId) const noexcept override { return true; }
  [[nodiscard]] uint64_t name(SlotId slot) const noexcept override { return names[slot]; }
  std::vector<uint64_t> names;
};

// Each account has a policy, and all share the facts: none may touch, or give away, a slot that another knows.
inline void two_over_the_same_facts(std::string_view name, const MakePolicy& make = &make_eviction_policy) {
  constexpr SlotId kSlots = 256;
  std::vector<Facts> facts(kSlots);
  AllEvictable residents;
  residents.names.resize(kSlots);
  const std::array policies = {make(name, facts, residents), make(name, facts, residents)};
  SeededRandom random(1);
  uint32_t tick = 0;
  const auto insert = [&](SlotId slot) {
    residents.names[slot] = random.next();
    facts[slot].last_use = tick;
    facts[slot].uses = 0;
    facts[slot].queue = 0;
    facts[slot].aux = 0;
    policies[slot % 2]->inserted({&slot, 1}, tick);
  };
  for (SlotId slot = 0; slot < kSlots; ++slot) insert(slot);
  for (uint32_t step = 0; step < 20'000; ++step) {
    ++tick;
    const auto hit = static_cast<SlotId>(random.below(kSlots));
    facts[hit].last_use = tick;
    facts[hit].uses = static_cast<uint16_t>(facts[hit].uses + 1);
    if (policies[hit % 2]->hears_uses()) policies[hit % 2]->used({&hit, 1}, tick);
    const SlotId victim = policies[step % 2]->evict(tick);
    ASSERT_NE(victim, kNoSlot) << name;
    ASSERT_EQ(victim % 2, step % 2) << name << " step " << step;
    insert(victim);
  }
}

}  // namespace kvbm::policy
