// A block table of several pools. Slots of n pools over m slots: m / n in each, in order.
#include "block/slot_pool.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <thread>

#include "block_fixture.h"

namespace kvbm::block::slot_pool_test {
namespace {

constexpr uint32_t kSlots = 256;
constexpr uint32_t kPools = 4;
size_t pool_of(SlotId slot) { return slot / (kSlots / kPools); }

std::array<size_t, kPools> by_pool(std::span<const SlotId> slots) {
  std::array<size_t, kPools> n{};
  for (const SlotId slot : slots) ++n[pool_of(slot)];
  return n;
}

void release(BlockTable& table, std::span<const SlotId> slots, uint32_t tick = 1) { table.release(slots, tick); }

TEST(SlotPool, free_slots_of_all_pools_are_used_before_anything_is_evicted) {
  auto table = make_table(kSlots, "lru", kPools);
  std::vector<Evicted> evicted;
  for (uint32_t i = 0; i < kSlots; i += 8) release(*table, store(*table, keys_of(i, 8), i, Lineage::none, 0, &evicted));
  EXPECT_TRUE(evicted.empty());
  EXPECT_EQ(table->counters().free, 0U);
  EXPECT_EQ(present(*table, keys_of(0, kSlots)), kSlots);
  release(*table, store(*table, keys_of(1000, 8), 999, Lineage::none, 0, &evicted));
  EXPECT_EQ(evicted.size(), 8U);
}

TEST(SlotPool, one_thread_evicts_from_all_of_them_alike) {
  auto table = make_table(kSlots, "lru", kPools);
  release(*table, store(*table, keys_of(0, kSlots), 1));
  std::vector<SlotId> all;
  for (uint32_t i = 0; i < 20 * kSlots; i += 4) {
    const auto slots = store(*table, keys_of(10000 + i, 4), 2 + i);
    release(*table, slots, 2 + i);
    all.insert(all.end(), slots.begin(), slots.end());
  }
  const auto n = by_pool(all);
  for (const size_t each : n) EXPECT_NEAR(static_cast<double>(each), 5.0 * kSlots, kSlots / kPools / 2.0);
}

TEST(SlotPool, a_chain_goes_from_its_end_as_far_as_nothing_else_keeps_it) {
  auto made = BlockTable::create(
      {.slots = 32, .policy = "prefix", .make = &policy::make_eviction_policy, .marks = {}, .pools = 1});
  ASSERT_TRUE(made.ok());
  BlockTable* const table = made.value().get();
  const auto chain = store(*table, keys_of(0, 32), 1, Lineage::chain);
  const SlotId kept = chain[5];
  table->release(std::span(chain).first(5), 1);
  table->release(std::span(chain).subspan(6), 1);
  std::vector<SlotId> room(26);
  ASSERT_EQ(table->allocate(0, room, nullptr, 2), Code::ok);
  EXPECT_EQ(std::vector<SlotId>(room.rbegin(), room.rend()), std::vector<SlotId>(chain.begin() + 6, chain.end()));
  EXPECT_EQ(present(*table, keys_of(0, 32)), 6U);
  SlotId one = kNoSlot;
  EXPECT_EQ(table->allocate(0, {&one, 1}, nullptr, 2), Code::no_room);
  table->release({&kept, 1}, 3);
  ASSERT_EQ(table->allocate(0, {&one, 1}, nullptr, 4), Code::ok);
  EXPECT_EQ(one, kept);
  EXPECT_EQ(present(*table, keys_of(0, 32)), 5U);
}

// A policy that wants a parent evicted with its last child, and reports the parent as chosen before it is evicted.
class ParentsGoNext final : public PlainLru {
 public:
  ParentsGoNext(std::span<policy::Facts> facts, const policy::Residents& residents, std::function<void()> chosen)
      : PlainLru(facts, residents), chosen_(std::move(chosen)) {}
  [[nodiscard]] bool hears_hints() const noexcept override { return true; }  // else policy/hinted.cc wraps it
  bool evicts_next(SlotId slot, uint32_t) override {
    erased(slot);
    chosen_();
    return true;
  }

 private:
  std::function<void()> chosen_;
};

TEST(SlotPool, a_parent_that_is_taken_as_it_was_chosen_stays_and_comes_up_again) {
  const auto keys = keys_of(0, 3);
  std::function<void()> chosen = [] {};
  const auto make = [&](std::string_view, std::span<policy::Facts> facts, const policy::Residents& residents) {
    return std::unique_ptr<policy::EvictionPolicy>(
        std::make_unique<ParentsGoNext>(facts, residents, [&chosen] { chosen(); }));
  };
  auto made = BlockTable::create({.slots = 3, .policy = "", .make = make, .marks = {}, .pools = 1});
  ASSERT_TRUE(made.ok());
  BlockTable& table = *made.value();
  table.release(store(table, keys, 1, Lineage::chain), 1);
  SlotId taken = kNoSlot;
  chosen = [&] { table.acquire_each(0, std::span(keys).subspan(1, 1), {&taken, 1}, 2); };
  SlotId two[2];
  EXPECT_EQ(table.allocate(0, two, nullptr, 2), Code::no_room);  // the last went, the middle one is in use
  ASSERT_NE(taken, kNoSlot);
  EXPECT_EQ(present(table, keys), 2U);
  chosen = [] {};
  table.release({&taken, 1}, 3);
  EXPECT_EQ(table.allocate(0, two, nullptr, 4), Code::ok);
  EXPECT_EQ(present(table, keys), 1U);
  SlotId third = kNoSlot;
  EXPECT_EQ(table.allocate(0, {&third, 1}, nullptr, 5), Code::ok);
  EXPECT_EQ(present(table, keys), 0U);
}

TEST(SlotPool, an_allocation_larger_than_a_pool_takes_from_several_or_leaves_all_as_it_was) {
  auto table = make_table(kSlots, "lru", kPools);
  std::vector<SlotId> all(kSlots);
  ASSERT_EQ(table->allocate(0, all, nullptr), Code::ok);
  EXPECT_EQ(by_pool(all), (std::array<size_t, kPools>{64, 64, 64, 64}));
  table->abandon(all);
  const auto held = store(*table, keys_of(0, 10), 1);
  EXPECT_EQ(table->allocate(0, all, nullptr), Code::no_room);
  EXPECT_EQ(table->counters().free, kSlots - 10);
  EXPECT_EQ(table->counters().allocated, kSlots + 10U);
  EXPECT_EQ(table->account_use(0).used, 10U);
  release(*table, held);
  EXPECT_EQ(table->allocate(0, all, nullptr), Code::ok);
  EXPECT_EQ(table->counters().evicted, 10U);
}

// Chains of blocks that have their parents in other pools: leaves are evicted first, across pools.
TEST(SlotPool, a_chain_through_several_pools_goes_from_its_end) {
  auto table = make_table(kSlots, "lru", kPools);
  std::vector<SlotId> all(kSlots);
  ASSERT_EQ(table->allocate(0, all, nullptr), Code::ok);
  std::vector<SlotId> chain;  // one slot of each pool in turn
  for (size_t i = 0; i < 32; ++i) chain.push_back(all[i % kPools * 64 + i / kPools]);
  ASSERT_EQ(table->complete(chain), Code::ok);
  Publication what;
  const auto keys = keys_of(0, chain.size());
  what.keys = keys;
  what.lineage = Lineage::chain;
  ASSERT_EQ(table->publish(chain, what, {}), Code::ok);
  release(*table, chain);
  for (size_t left = 32; left > 0; left -= 4) {
    std::vector<SlotId> four(4);
    std::vector<Evicted> evicted;
    ASSERT_EQ(table->allocate(0, four, &evicted, 2), Code::ok);
    ASSERT_EQ(evicted.size(), 4U);
    EXPECT_EQ(present(*table, keys), left - 4);
    std::vector<uint8_t> found(32);
    table->probe(0, keys, found);
    for (size_t i = 0; i < 32; ++i) EXPECT_EQ(found[i] != 0, i < left - 4) << i;
  }
}

TEST(SlotPool, what_only_waited_for_a_child_in_another_pool_is_freed_with_it) {
  auto table = make_table(kSlots, "lru", kPools);
  std::vector<SlotId> all(kSlots);
  ASSERT_EQ(table->allocate(0, all, nullptr), Code::ok);
  std::vector<SlotId> chain{all[0], all[64], all[128], all[65]};
  ASSERT_EQ(table->complete(chain), Code::ok);
  Publication what;
  const auto keys = keys_of(0, 4);
  what.keys = keys;
  what.lineage = Lineage::chain;
  ASSERT_EQ(table->publish(chain, what, {}), Code::ok);
  EXPECT_EQ(table->erase(0, std::span(keys).first(3)), 3U);  // the last keeps them
  table->release(std::span(chain).first(3));
  EXPECT_EQ(table->counters().free, 0U);
  EXPECT_EQ(table->erase(0, std::span(keys).last(1)), 1U);
  table->release(std::span(chain).last(1));
  EXPECT_EQ(table->counters().free, 4U);
  EXPECT_EQ(table->account_use(0).used, kSlots - 4);
}

TEST(SlotPool, a_quota_is_one_over_all_pools) {
  auto table = make_table(kSlots, "lru", kPools);
  ASSERT_EQ(table->set_limit(3, 100, OverQuota::evict), Code::ok);
  for (uint32_t i = 0; i < 400; i += 20) {
    release(*table, store(*table, keys_of(i, 20), 1 + i, Lineage::none, 0, nullptr, 3), 1 + i);
    EXPECT_LE(table->account_use(3).used, 100U);
  }
  EXPECT_EQ(table->account_use(3).used, 100U);
  EXPECT_EQ(present(*table, keys_of(0, 400)), 100U);
  std::vector<Evicted> evicted;
  ASSERT_EQ(table->set_limit(3, 30, OverQuota::reject, &evicted), Code::ok);
  EXPECT_EQ(evicted.size(), 70U);
  EXPECT_EQ(table->account_use(3).used, 30U);
  std::vector<SlotId> one(1);
  EXPECT_EQ(table->allocate(3, one, nullptr), Code::over_quota);
  EXPECT_EQ(table->account_use(3).used, 30U);
  // Another account may evict the rest, which lowers the use of the quota.
  std::vector<SlotId> all(kSlots);
  ASSERT_EQ(table->allocate(0, all, nullptr, 999), Code::ok);
  EXPECT_EQ(table->account_use(3).used, 0U);
}

TEST(SlotPool, what_goes_next_is_chosen_in_every_pool) {
  auto table = make_table(kSlots, "lru", kPools);
  release(*table, store(*table, keys_of(0, kSlots), 1));
  std::vector<SlotId> cold(40);
  ASSERT_EQ(table->select_cold(cold, 2), 40U);
  EXPECT_EQ(by_pool(cold), (std::array<size_t, kPools>{10, 10, 10, 10}));
  std::vector<Evicted> evicted;
  EXPECT_EQ(table->evict_held(cold, &evicted, 2), 40U);
  EXPECT_EQ(evicted.size(), 40U);
  EXPECT_EQ(table->counters().free, 40U);
  std::vector<SlotId> rest(kSlots);
  EXPECT_EQ(table->select_cold(rest, 3), kSlots - 40U);
  table->release(std::span(rest).first(kSlots - 40), 3);
}

TEST(SlotPool, a_policy_that_cannot_be_divided_has_one) {
  auto table = make_table(kSlots, "whole", kPools);
  release(*table, store(*table, keys_of(0, kSlots), 1));
  // The very oldest go, wherever they are.
  std::vector<SlotId> hit(kSlots - 8);
  ASSERT_EQ(table->acquire_each(0, keys_of(8, kSlots - 8), hit, 2), kSlots - 8U);
  release(*table, hit, 2);
  std::vector<Evicted> evicted;
  release(*table, store(*table, keys_of(1000, 8), 3, Lineage::none, 0, &evicted), 3);
  ASSERT_EQ(evicted.size(), 8U);
  EXPECT_EQ(present(*table, keys_of(0, 8)), 0U);
}

TEST(SlotPool, threads_that_allocate_at_the_same_time_lose_nothing) {
  auto table = make_table(kSlots, "fifo", kPools);
  ASSERT_EQ(table->set_limit(5, 60, OverQuota::evict), Code::ok);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 400; ++i) {
        std::vector<SlotId> slots(1 + (i + t) % 7);
        if (table->allocate(t == 3 ? AccountId{5} : kSharedAccount, slots, nullptr, i) != Code::ok) continue;
        if (i % 5 == 0) {
          table->abandon(slots);
          continue;
        }
        ASSERT_EQ(table->complete(slots), Code::ok);
        Publication what;
        const auto keys = keys_of(t * 100000 + i * 8, slots.size());
        what.keys = keys;
        what.lineage = Lineage::chain;
        what.tick = i;
        ASSERT_EQ(table->publish(slots, what, {}), Code::ok);
        table->release(slots, i);
        ASSERT_LE(table->account_use(5).used, 60U);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Counters counters = table->counters();
  EXPECT_EQ(counters.free + counters.registered, kSlots);
  EXPECT_EQ(table->account_use(0).used + table->account_use(5).used, kSlots - counters.free);
  std::vector<SlotId> all(kSlots);
  EXPECT_EQ(table->allocate(0, all, nullptr, 9999), Code::ok);
  EXPECT_EQ(table->account_use(5).used, 0U);
}

}  // namespace
}  // namespace kvbm::block::slot_pool_test
