#include "replay/policies.h"

#include <gtest/gtest.h>

#include "unit/policy/forest.h"
#include "unit/policy/lives.h"

namespace kvbm::replay::policies_test {
namespace {

using policy::Forest;

// The policies that the library lacks.
std::span<const std::string_view> compared() { return policy_names().subspan(policy::eviction_policy_names().size()); }

TEST(ReplayPolicies, are_the_librarys_and_three_more) {
  ASSERT_EQ(compared().size(), 3U);
  std::vector<policy::Facts> facts(1);
  Forest forest("lru", 1);
  for (const std::string_view name : policy_names()) {
    const auto made = make_policy(name, facts, forest);
    ASSERT_NE(made, nullptr) << name;
    EXPECT_EQ(made->name(), name);
  }
  EXPECT_EQ(make_policy("newest", facts, forest), nullptr);
  for (const std::string_view name : compared()) {
    EXPECT_EQ(policy::make_eviction_policy(name, facts, forest), nullptr) << name;
  }
}

TEST(ReplayPolicies, give_each_evictable_slot_once_and_leaves_first) {
  for (const std::string_view name : compared()) {
    for (uint64_t seed = 1; seed <= 20; ++seed) policy::random_life(name, seed, 3 + seed * 5, 4000, &make_policy);
    EXPECT_EQ(policy::random_life(name, 7, 64, 30'000, &make_policy),
              policy::random_life(name, 7, 64, 30'000, &make_policy))
        << name;
  }
}

TEST(ReplayPolicies, evict_the_same_slots_when_they_go_on_with_the_parent) {
  for (const std::string_view name : compared()) {
    EXPECT_EQ(policy::life_of_chains(name, false, &make_policy).evicted,
              policy::life_of_chains(name, true, &make_policy).evicted)
        << name;
  }
}

TEST(ReplayPolicies, keep_to_their_own_slots_over_the_same_facts) {
  for (const std::string_view name : compared()) policy::two_over_the_same_facts(name, &make_policy);
}

TEST(ReplayPolicies, remember_no_more_than_their_history) {
  for (const std::string_view name : compared()) {
    const size_t capacity = 40'000;
    Forest forest(name, capacity, &make_policy);
    EXPECT_LE(forest.policy->bytes(), 4 * capacity * 16 + 256 * 1024) << name;
  }
}

TEST(ReplayPolicies, sieve_passes_over_what_was_used_once) {
  Forest forest("sieve", 3, &make_policy);
  for (SlotId slot = 0; slot < 3; ++slot) forest.insert(slot, kNoSlot, slot);
  forest.hit(0);
  EXPECT_EQ(forest.policy->evict(forest.tick), 1U);
}

}  // namespace
}  // namespace kvbm::replay::policies_test
