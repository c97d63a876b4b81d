#include "policy/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/crypto/random.h"
#include "policy/admission.h"
#include "policy/hints.h"
#include "unit/policy/forest.h"

namespace kvbm::policy::eviction_test {
namespace {

// Makes random inserts, hits, holds, releases, erasures and evictions. Returns the evicted slots.
std::vector<SlotId> random_life(std::string_view name, uint64_t seed, size_t capacity, int steps) {
  Forest forest(name, capacity);
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

TEST(Eviction, every_policy_gives_each_evictable_slot_once_and_leaves_first) {
  for (const std::string_view name : eviction_policy_names()) {
    for (uint64_t seed = 1; seed <= 20; ++seed) random_life(name, seed, 3 + seed * 5, 4000);
  }
}

TEST(Eviction, the_same_operations_evict_the_same_slots) {
  for (const std::string_view name : eviction_policy_names()) {
    EXPECT_EQ(random_life(name, 7, 64, 30'000), random_life(name, 7, 64, 30'000)) << name;
  }
}

struct Chains {
  std::vector<SlotId> evicted;
  size_t followed = 0;  // parents that went in the same step as their child
};

// Runs random chains of up to 70 blocks with hits and holds. With `follow`, each eviction continues with the parent.
Chains life_of_chains(std::string_view name, bool follow) {
  constexpr size_t kCapacity = 3000;
  Forest forest(name, kCapacity);
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

TEST(Eviction, going_on_with_the_parent_evicts_the_same_slots) {
  for (const std::string_view name : eviction_policy_names()) {
    const Chains apart = life_of_chains(name, false);
    const Chains together = life_of_chains(name, true);
    EXPECT_EQ(apart.evicted, together.evicted) << name;
    if (name == kDefaultPolicy) {
      EXPECT_GT(together.followed, together.evicted.size() / 2);
    }
  }
}

TEST(Eviction, an_unknown_name_makes_no_policy) {
  std::vector<Facts> facts(1);
  Forest forest("lru", 1);
  EXPECT_EQ(make_eviction_policy("newest", facts, forest), nullptr);
  EXPECT_EQ(eviction_policy_names().size(), 8U);
}

TEST(Eviction, memory_beyond_the_facts_is_bounded_by_history) {
  for (const std::string_view name : eviction_policy_names()) {
    const size_t capacity = 40'000;
    Forest forest(name, capacity);
    EXPECT_LE(forest.policy->bytes(), 4 * capacity * 16 + 256 * 1024) << name;
  }
}

TEST(Eviction, only_the_default_and_lazy_policies_need_no_word_of_hits) {
  std::vector<Facts> facts(1);
  Forest forest("lru", 1);
  EXPECT_FALSE(make_eviction_policy(kDefaultPolicy, facts, forest)->hears_uses());
}

struct AllEvictable final : Residents {
  [[nodiscard]] bool evictable(SlotId) const noexcept override { return true; }
  [[nodiscard]] uint64_t name(SlotId slot) const noexcept override { return names[slot]; }
  std::vector<uint64_t> names;
};

// Each account has a policy, and all share the facts: none may touch, or give away, a slot that another knows.
TEST(Eviction, policies_over_the_same_facts_keep_to_their_own_slots) {
  for (const std::string_view name : eviction_policy_names()) {
    constexpr SlotId kSlots = 256;
    std::vector<Facts> facts(kSlots);
    AllEvictable residents;
    residents.names.resize(kSlots);
    const std::array policies = {make_eviction_policy(name, facts, residents),
                                 make_eviction_policy(name, facts, residents)};
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
}

TEST(Lru, evicts_the_least_recently_used) {
  Forest forest("lru", 3);
  for (SlotId slot = 0; slot < 3; ++slot) {
    ++forest.tick;
    forest.insert(slot, kNoSlot, slot);
  }
  ++forest.tick;
  forest.hit(0);
  EXPECT_EQ(forest.policy->evict(forest.tick), 1U);
}

TEST(Fifo, evicts_the_first_in_whatever_was_used) {
  Forest forest("fifo", 3);
  for (SlotId slot = 0; slot < 3; ++slot) forest.insert(slot, kNoSlot, slot);
  forest.hit(0);
  EXPECT_EQ(forest.policy->evict(forest.tick), 0U);
}

TEST(Lfu, evicts_the_least_used) {
  Forest forest("lfu", 3);
  for (SlotId slot = 0; slot < 3; ++slot) forest.insert(slot, kNoSlot, slot);
  forest.hit(0);
  forest.hit(1);
  EXPECT_EQ(forest.policy->evict(forest.tick), 2U);
}

TEST(Sieve, passes_over_what_was_used_once) {
  Forest forest("sieve", 3);
  for (SlotId slot = 0; slot < 3; ++slot) forest.insert(slot, kNoSlot, slot);
  forest.hit(0);
  EXPECT_EQ(forest.policy->evict(forest.tick), 1U);
}

TEST(Prefix, one_shot_blocks_leave_first_and_kept_ones_last) {
  Forest forest("prefix", 4);
  forest.insert(0, kNoSlot, 0, kHintKeep);
  forest.insert(1, kNoSlot, 1, kHintNormal);
  forest.insert(2, kNoSlot, 2, kHintOneShot);
  EXPECT_EQ(forest.policy->evict(forest.tick), 2U);
  forest.leave(2);
  EXPECT_EQ(forest.policy->evict(forest.tick), 1U);
  forest.leave(1);
  EXPECT_EQ(forest.policy->evict(forest.tick), 0U);
}

TEST(Admission, after_uses_admits_from_the_wanted_use_on) {
  const auto admission = make_admission("after_uses", {.capacity = 1000, .uses = 2});
  ASSERT_NE(admission, nullptr);
  EXPECT_FALSE(admission->admits(42));
  admission->used(42);
  EXPECT_FALSE(admission->admits(42));
  admission->used(42);
  EXPECT_TRUE(admission->admits(42));
}

TEST(Admission, frequency_forgets_old_uses_and_after_uses_does_not) {
  for (const bool fades : {true, false}) {
    const auto admission = make_admission(fades ? "frequency" : "after_uses", {.capacity = 64, .uses = 2});
    admission->used(42);
    admission->used(42);
    for (int i = 0; i < 1400; ++i) admission->used(7);
    EXPECT_EQ(admission->admits(42), !fades);
  }
}

TEST(Admission, all_and_on_eviction_admit_everything_and_bad_names_and_uses_make_none) {
  EXPECT_TRUE(make_admission("all", {})->admits(1));
  EXPECT_TRUE(make_admission("on_eviction", {})->admits(1));
  EXPECT_EQ(make_admission("some", {}), nullptr);
  EXPECT_EQ(make_admission("after_uses", {.capacity = 64, .uses = 16}), nullptr);
}

}  // namespace
}  // namespace kvbm::policy::eviction_test
