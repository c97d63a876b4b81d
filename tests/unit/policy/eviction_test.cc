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
#include "unit/policy/lives.h"

namespace kvbm::policy::eviction_test {
namespace {

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
  EXPECT_EQ(eviction_policy_names().size(), 5U);
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

TEST(Eviction, policies_over_the_same_facts_keep_to_their_own_slots) {
  for (const std::string_view name : eviction_policy_names()) two_over_the_same_facts(name);
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
