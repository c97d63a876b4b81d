// Blocks with resident children may be evicted once a lower tier has them.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "block_fixture.h"

namespace kvbm::block {
namespace {

constexpr uint8_t kBelow = 4;

std::unique_ptr<BlockTable> make_real(uint32_t slots, const char* policy, uint32_t pools = 1) {
  const auto make = [](std::string_view name, std::span<policy::Facts> facts, const policy::Residents& residents) {
    return policy::make_eviction_policy(name, facts, residents);
  };
  auto made = BlockTable::create({.slots = slots, .policy = policy, .make = make, .marks = {}, .pools = pools});
  EXPECT_TRUE(made.ok());
  return std::move(made).value();
}

// Stores a chain and holds its last block. No block of it may be evicted, except one that a lower tier has.
std::vector<SlotId> hold_end(BlockTable& table, uint32_t n, uint64_t first = 0) {
  const auto slots = store(table, keys_of(first, n), 1, Lineage::chain);
  table.release(std::span(slots).first(n - 1));
  return slots;
}

TEST(Followed, a_block_goes_whatever_follows_it_once_a_tier_below_has_it) {
  for (const char* policy : {"prefix", "lru", "fifo", "lfu", "tinylfu"}) {
    SCOPED_TRACE(policy);
    auto table = make_real(4, policy);
    table->set_below_flags(kBelow);
    const auto slots = hold_end(*table, 4);
    std::vector<SlotId> one(1);
    std::vector<Evicted> evicted;
    EXPECT_EQ(table->allocate(0, one, &evicted), Code::no_room);
    table->set_flags(slots[1], 1);
    EXPECT_EQ(table->allocate(0, one, &evicted), Code::no_room) << "another flag";
    // Holds the block while its write is in progress, as an offloader does.
    table->retain(std::span(slots).subspan(1, 1));
    table->set_flags(slots[1], kBelow);
    EXPECT_EQ(table->allocate(0, one, &evicted), Code::no_room) << "held";
    table->release(std::span(slots).subspan(1, 1));
    ASSERT_EQ(table->allocate(0, one, &evicted), Code::ok);
    ASSERT_EQ(evicted.size(), 1U);
    EXPECT_EQ(evicted[0].identity.key, key_of(1));
    EXPECT_EQ(one[0], slots[1]);
    EXPECT_EQ(present(*table, keys_of(0, 4)), 3U);
    EXPECT_EQ(table->info(slots[0]).children, 0U);
    std::vector<SlotId> two(1);
    ASSERT_EQ(table->allocate(0, two, &evicted), Code::ok) << "nothing follows the first any more";
    EXPECT_EQ(evicted[1].identity.key, key_of(0));
  }
}

TEST(Followed, nothing_that_lies_only_here_goes_before_what_follows_it) {
  auto table = make_table(4);
  table->set_below_flags(0);
  const auto slots = hold_end(*table, 4);
  for (const SlotId slot : slots) table->set_flags(slot, kBelow);
  std::vector<SlotId> one(1);
  EXPECT_EQ(table->allocate(0, one, nullptr), Code::no_room) << "the tier below is out of use";
  table->set_below_flags(kBelow);
  EXPECT_EQ(table->allocate(0, one, nullptr), Code::ok);
}

TEST(Followed, what_no_other_block_follows_goes_first) {
  auto table = make_table(6);
  table->set_below_flags(kBelow);
  const auto slots = hold_end(*table, 3);
  for (const SlotId slot : slots) table->set_flags(slot, kBelow);
  table->release(store(*table, keys_of(100, 3), 2));
  std::vector<SlotId> four(4);
  std::vector<Evicted> evicted;
  ASSERT_EQ(table->allocate(0, four, &evicted), Code::ok);
  for (size_t i = 0; i < 3; ++i) EXPECT_GE(evicted[i].identity.key.low(), 100U);
  EXPECT_EQ(evicted[3].identity.key, key_of(1)) << "the deeper one first";
}

// A child counts for its own parent only, not for another block that got the parent's slot after its eviction.
TEST(Followed, a_child_does_not_count_for_what_has_come_in_its_parents_place) {
  for (const uint32_t pools : {1U, 2U}) {
    auto table = make_real(4, "prefix", pools);
    table->set_below_flags(kBelow);
    const auto slots = hold_end(*table, 4);
    table->retain(std::span(slots).subspan(1, 1));
    table->set_flags(slots[1], kBelow);
    table->release(std::span(slots).subspan(1, 1));
    const auto fresh = store(*table, keys_of(50, 1), 2);
    ASSERT_EQ(fresh[0], slots[1]);
    // The new block in the slot counts its own children only. A block of the old chain still names the slot as its
    // parent, and erasing that block must not lower the count.
    EXPECT_EQ(table->erase(0, keys_of(3, 1)), 1U);
    EXPECT_EQ(table->erase(0, keys_of(2, 1)), 1U);
    table->release(std::span(slots).subspan(3, 1));
    EXPECT_EQ(table->info(fresh[0]).children, 0U);
    EXPECT_EQ(table->underflows(), 0U);
    table->release(fresh);
    EXPECT_EQ(table->erase_all(), 2U);
    EXPECT_EQ(table->counters().free, 4U);
  }
}

TEST(Followed, of_an_account_at_its_limit_its_own_go) {
  auto table = make_table(8);
  table->set_below_flags(kBelow);
  const auto others = hold_end(*table, 4, 100);
  for (const SlotId slot : others) table->set_flags(slot, kBelow);
  ASSERT_EQ(table->set_limit(3, 3, OverQuota::evict), Code::ok);
  const auto mine = store(*table, keys_of(0, 3), 1, Lineage::chain, 0, nullptr, 3);
  for (const SlotId slot : mine) table->set_flags(slot, kBelow);
  table->release(std::span(mine).first(2));
  std::vector<SlotId> one(1);
  std::vector<Evicted> evicted;
  ASSERT_EQ(table->allocate(3, one, &evicted), Code::ok);
  ASSERT_EQ(evicted.size(), 1U);
  EXPECT_LT(evicted[0].identity.key.low(), 3U);
  EXPECT_EQ(table->account_use(3).used, 3U);
}

TEST(Followed, are_selected_to_be_written_down_where_nothing_else_is_and_go_after_that) {
  auto table = make_table(4);
  table->set_below_flags(kBelow);
  const auto slots = hold_end(*table, 4);
  std::vector<SlotId> cold(4);
  EXPECT_EQ(table->select_cold(cold, 2), 0U);
  cold.resize(table->select_cold(cold, 2, kSharedAccount, true));
  ASSERT_EQ(cold.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(table->identity(cold[i]).key, key_of(i)) << "parents first";
  for (size_t i = 0; i < 2; ++i) table->set_flags(cold[i], kBelow);
  std::vector<Evicted> evicted;
  EXPECT_EQ(table->evict_held(cold, &evicted), 2U);
  EXPECT_EQ(table->counters().free, 2U);
  EXPECT_EQ(table->info(cold[2]).references, 0U);
}

// Threads store chains in pieces, and a lower tier gets their blocks meanwhile. In the end no reference is left.
void churn(uint32_t pools, const char* policy) {
  auto table = make_real(96, policy, pools);
  table->set_below_flags(kBelow);
  std::array<std::thread, 3> threads;
  std::atomic<uint64_t> stored{0};
  for (size_t t = 0; t < threads.size(); ++t) {
    threads[t] = std::thread([&, t] {
      SlotId last = kNoSlot;
      for (uint32_t i = 0; i < 4000; ++i) {
        std::vector<SlotId> slots(1 + i % 5);
        if (table->allocate(0, slots, nullptr, i) != Code::ok) continue;
        EXPECT_EQ(table->complete(slots), Code::ok);
        const auto keys = keys_of((t + 1) << 32 | i * 8, slots.size());
        EXPECT_EQ(table->publish(slots, {.keys = keys, .lineage = Lineage::chain, .first_parent = last, .tick = i}, {}),
                  Code::ok);
        stored += slots.size();
        for (size_t k = 0; k < slots.size(); ++k) {
          if ((i + k) % 7 != 0) table->set_flags(slots[k], kBelow);
        }
        if (last != kNoSlot) table->release({&last, 1});
        last = slots.back();
        table->release(std::span(slots).first(slots.size() - 1));
        if (i % 50 != 0) continue;
        table->release({&last, 1});
        last = kNoSlot;
        if (i % 500 == 0) (void)table->erase(0, keys);
      }
      if (last != kNoSlot) table->release({&last, 1});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(stored, 20'000U);
  table->erase_all();
  EXPECT_EQ(table->counters().free, 96U);
  EXPECT_EQ(table->underflows(), 0U);
}

TEST(Followed, threads_leave_nothing_over) {
  churn(1, "prefix");
  churn(4, "prefix");
  churn(1, "lru");
}

}  // namespace
}  // namespace kvbm::block
