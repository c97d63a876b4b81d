// A caller's policy in C, under a block table: no block is lost to it, whatever is done with its choices.
#include "capi/plugin/plugin_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "block/block_table.h"
#include "policy/hints.h"
#include "unit/block/block_fixture.h"

namespace kvbm::capi::plugin_policy_test {
namespace {

using block::BlockTable;

// LRU as a caller would write it, strictly by kvbm_plugin.h. It holds each slot that was reported and that it has not
// returned, and counts a complaint for each other call.
struct StrictLru {
  std::vector<uint32_t> slots;
  uint32_t last_tick = 0;
  int complaints = 0;
  uint32_t says = kItsChoice;  // the answer of evict

  static constexpr uint32_t kItsChoice = UINT32_MAX - 1;

  void tick(uint32_t now) {
    complaints += now < last_tick ? 1 : 0;
    last_tick = now;
  }
  bool has(uint32_t slot) const { return std::find(slots.begin(), slots.end(), slot) != slots.end(); }
  bool remove(uint32_t slot) {
    const auto at = std::find(slots.begin(), slots.end(), slot);
    if (at == slots.end()) return false;
    slots.erase(at);
    return true;
  }
};
StrictLru& lru(void* policy) { return *static_cast<StrictLru*>(policy); }

const kvbm_policy_table_t kTable = {
    sizeof(kvbm_policy_table_t),
    0,
    "strict",
    [](void* user, uint32_t) { return user; },
    [](void*) {},
    [](void* policy, const uint32_t* slots, const uint64_t*, size_t n, uint32_t tick) {
      lru(policy).tick(tick);
      for (size_t i = 0; i < n; ++i) {
        lru(policy).complaints += lru(policy).has(slots[i]) ? 1 : 0;
        lru(policy).slots.push_back(slots[i]);
      }
    },
    [](void* policy, const uint32_t* slots, size_t n, uint32_t tick) {
      lru(policy).tick(tick);
      for (size_t i = 0; i < n; ++i) {
        lru(policy).complaints += lru(policy).remove(slots[i]) ? 0 : 1;
        lru(policy).slots.push_back(slots[i]);
      }
    },
    [](void* policy, int (*may_evict)(const void*, uint32_t), const void* asker, uint32_t tick) {
      lru(policy).tick(tick);
      if (lru(policy).says != StrictLru::kItsChoice) {
        lru(policy).remove(lru(policy).says);
        return lru(policy).says;
      }
      for (const uint32_t slot : lru(policy).slots) {
        if (may_evict(asker, slot) == 0) continue;
        lru(policy).remove(slot);
        return slot;
      }
      return UINT32_MAX;
    },
    [](void* policy, uint32_t slot) { lru(policy).complaints += lru(policy).remove(slot) ? 0 : 1; }};

std::unique_ptr<BlockTable> table_of(uint32_t slots, StrictLru& policy) {
  auto made = BlockTable::create(
      {.slots = slots,
       .policy = "strict",
       .make = [&policy](std::string_view, std::span<policy::Facts> facts, const policy::Residents& residents) {
         return make_plugin_policy(kTable, &policy, facts, residents);
       }});
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

// Expects that all slots without a hold can be allocated at once.
void expect_all_can_go(BlockTable& table, uint32_t tick) {
  std::vector<SlotId> all(table.slots());
  EXPECT_EQ(table.allocate(block::kSharedAccount, all, nullptr, tick), Code::ok);
}

TEST(PluginPolicy, choices_that_are_kept_by_a_demotion_come_back) {
  StrictLru policy;
  auto table = table_of(16, policy);
  const auto keys = block::keys_of(0, 16);
  table->release(block::store(*table, keys, 1), 1);
  for (uint32_t round = 2; round < 6; ++round) {
    std::vector<SlotId> cold(8);
    ASSERT_EQ(table->select_cold(cold, round), 8U);
    EXPECT_EQ(policy.slots.size(), 8U);
    std::vector<SlotId> held(16);
    ASSERT_EQ(table->acquire_each(0, keys, held, round), 16U);  // a match holds all while they are written below
    EXPECT_EQ(table->evict_held(cold, nullptr, round), 0U);
    table->release(held);  // and brings no tick of its own
    EXPECT_EQ(policy.slots.size(), 16U);
  }
  expect_all_can_go(*table, 7);
  EXPECT_EQ(policy.complaints, 0);
  EXPECT_EQ(table->counters().policy_refused, 0U);
}

BlockTable* raced = nullptr;
std::vector<SlotId> taken;

// Lets a reader take the choice between the policy's answer and the eviction.
class Racing final : public policy::EvictionPolicy {
 public:
  explicit Racing(std::unique_ptr<policy::EvictionPolicy> inner) : inner_(std::move(inner)) {}
  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] bool hears_uses() const noexcept override { return true; }
  void inserted(std::span<const SlotId> slots, uint32_t tick) override { inner_->inserted(slots, tick); }
  void used(std::span<const SlotId> slots, uint32_t tick) override { inner_->used(slots, tick); }
  void available(SlotId slot, uint32_t tick) override { inner_->available(slot, tick); }
  SlotId evict(uint32_t tick) override {
    const SlotId slot = inner_->evict(tick);
    if (slot != kNoSlot && raced != nullptr && taken.size() < 4) {
      EXPECT_TRUE(raced->acquire_weak(slot, raced->generation(slot)));
      taken.push_back(slot);
    }
    return slot;
  }
  void erased(SlotId slot) override { inner_->erased(slot); }
  [[nodiscard]] uint64_t refused() const noexcept override { return inner_->refused(); }
  [[nodiscard]] size_t bytes() const noexcept override { return inner_->bytes(); }

 private:
  std::unique_ptr<policy::EvictionPolicy> inner_;
};

TEST(PluginPolicy, choices_that_a_lookup_takes_before_they_go_come_back) {
  StrictLru policy;
  auto made = BlockTable::create(
      {.slots = 16,
       .policy = "strict",
       .make = [&policy](std::string_view, std::span<policy::Facts> facts, const policy::Residents& residents) {
         return std::make_unique<Racing>(make_plugin_policy(kTable, &policy, facts, residents));
       }});
  ASSERT_TRUE(made.ok());
  BlockTable& table = *made.value();
  table.release(block::store(table, block::keys_of(0, 16), 1), 1);
  raced = &table;
  std::vector<SlotId> one(1);
  ASSERT_EQ(table.allocate(block::kSharedAccount, one, nullptr, 2), Code::ok);
  raced = nullptr;
  ASSERT_EQ(taken.size(), 4U);
  for (const SlotId slot : taken) EXPECT_FALSE(policy.has(slot));
  table.release(one, 2);
  table.release(taken, 3);
  for (const SlotId slot : taken) EXPECT_TRUE(policy.has(slot));
  taken.clear();
  expect_all_can_go(table, 4);
  EXPECT_EQ(policy.complaints, 0);
}

TEST(PluginPolicy, a_choice_that_may_not_go_is_put_back_when_it_may_and_counted) {
  StrictLru policy;
  auto table = table_of(8, policy);
  const auto slots = block::store(*table, block::keys_of(0, 8), 1);
  table->release(std::span(slots).subspan(1), 1);
  policy.says = slots[0];  // which is held
  std::vector<SlotId> one(1);
  ASSERT_EQ(table->allocate(block::kSharedAccount, one, nullptr, 2), Code::ok);
  EXPECT_EQ(table->counters().policy_refused, 1U);
  EXPECT_FALSE(policy.has(slots[0]));
  ASSERT_EQ(table->allocate(block::kSharedAccount, one, nullptr, 2), Code::ok);
  EXPECT_EQ(table->counters().policy_refused, 2U);
  table->release(std::span(slots).first(1), 3);
  EXPECT_TRUE(policy.has(slots[0]));
  policy.says = 8;  // no slot at all
  ASSERT_EQ(table->allocate(block::kSharedAccount, one, nullptr, 4), Code::ok);
  EXPECT_EQ(table->counters().policy_refused, 3U);
  policy.says = UINT32_MAX;  // none, though there are some: it is helped out, and that is no wrong choice
  std::vector<SlotId> rest(5);
  EXPECT_EQ(table->allocate(block::kSharedAccount, rest, nullptr, 5), Code::ok);
  EXPECT_EQ(table->counters().policy_refused, 3U);
  EXPECT_EQ(policy.complaints, 0);
}

TEST(PluginPolicy, a_policy_does_not_get_the_slots_of_another_account) {
  StrictLru policy;
  auto table = table_of(8, policy);
  const auto shared = block::store(*table, block::keys_of(0, 4), 1);
  table->release(shared, 1);
  ASSERT_EQ(table->set_limit(1, 4, block::OverQuota::evict), Code::ok);
  const auto mine =
      block::store(*table, block::keys_of(100, 4), 2, block::Lineage::none, 0, nullptr, block::AccountId{1});
  table->release(mine, 2);
  policy.says = shared[0];  // one caller's data stands behind both instances
  std::vector<SlotId> one(1);
  ASSERT_EQ(table->allocate(1, one, nullptr, 3), Code::ok);
  EXPECT_NE(std::find(mine.begin(), mine.end(), one[0]), mine.end());
  EXPECT_EQ(table->counters().policy_refused, 1U);
}

TEST(PluginPolicy, hints_are_honoured_without_its_knowing) {
  StrictLru policy;
  auto table = table_of(8, policy);
  const auto keys = block::keys_of(0, 8);
  auto slots = block::store(*table, keys, 1);
  table->set_priority(std::span(slots).first(2), policy::kHintKeep, 1);
  table->set_priority(std::span(slots).subspan(7), policy::kHintOneShot, 1);
  EXPECT_EQ(policy.slots.size(), 5U);
  table->release(slots, 1);
  std::vector<block::Evicted> gone;
  std::vector<SlotId> six(6);
  ASSERT_EQ(table->allocate(block::kSharedAccount, six, &gone, 2), Code::ok);
  EXPECT_EQ(gone.front().identity.key, keys[7]);
  for (const block::Evicted& one : gone) {
    EXPECT_NE(one.identity.key, keys[0]);
    EXPECT_NE(one.identity.key, keys[1]);
  }
  std::vector<SlotId> two(2);
  ASSERT_EQ(table->allocate(block::kSharedAccount, two, &gone, 3), Code::ok);
  EXPECT_EQ(policy.complaints, 0);
}

}  // namespace
}  // namespace kvbm::capi::plugin_policy_test
