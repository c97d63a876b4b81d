#include "block/hold_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

namespace kvbm::block::hold_table_test {
namespace {

std::vector<HoldValue> make(HoldTable& holds, const std::vector<SlotId>& slots, HoldKind kind = HoldKind::reading) {
  std::vector<HoldValue> out(slots.size());
  EXPECT_EQ(holds.create(kind, slots, {}, out), Code::ok);
  return out;
}

TEST(HoldTable, a_hold_resolves_to_its_slot_until_it_ends) {
  HoldTable holds({.tag = 9});
  const auto values = make(holds, {5, 6}, HoldKind::writable);
  Hold hold;
  EXPECT_EQ(holds.resolve(values[1], &hold), Code::ok);
  EXPECT_EQ(hold.slot, 6U);
  EXPECT_EQ(hold.kind, HoldKind::writable);
  EXPECT_EQ(values[0] >> 56, 9U);
  std::vector<Hold> ended(2);
  std::vector<Code> codes(2);
  EXPECT_EQ(holds.end(values, ended, codes), 2U);
  EXPECT_EQ(ended[0].slot, 5U);
  EXPECT_EQ(holds.resolve(values[1], &hold), Code::stale_handle);
  EXPECT_EQ(hold.slot, kNoSlot);
  EXPECT_EQ(holds.live(), 0U);
}

TEST(HoldTable, forged_foreign_and_zero_values_are_errors) {
  HoldTable holds({.tag = 9});
  const auto values = make(holds, {5});
  Hold hold;
  EXPECT_EQ(holds.resolve(0, &hold), Code::invalid_argument);
  EXPECT_EQ(holds.resolve(values[0] ^ (1ULL << 60), &hold), Code::foreign_handle);
  EXPECT_EQ(holds.resolve(values[0] ^ (1ULL << 40), &hold), Code::stale_handle);
  EXPECT_EQ(holds.resolve(values[0] | 0xFFFFFFFFULL, &hold), Code::stale_handle);
  EXPECT_EQ(holds.resolve(values[0] + 1, &hold), Code::stale_handle);
  EXPECT_EQ(holds.resolve((9ULL << 56) | 17, &hold), Code::stale_handle);
}

TEST(HoldTable, a_value_that_appears_twice_in_a_batch_ends_once) {
  HoldTable holds({});
  const auto values = make(holds, {5});
  const std::vector<HoldValue> twice{values[0], values[0]};
  std::vector<Hold> ended(2);
  std::vector<Code> codes(2);
  EXPECT_EQ(holds.end(twice, ended, codes), 1U);
  EXPECT_EQ(codes[0], Code::ok);
  EXPECT_EQ(codes[1], Code::stale_handle);
  EXPECT_EQ(ended[1].slot, kNoSlot);
}

TEST(HoldTable, entries_are_reused_first_in_first_out_with_a_new_generation) {
  HoldTable holds({});
  std::vector<SlotId> slots(HoldTable::kPageHolds);
  auto values = make(holds, slots);
  std::vector<Hold> ended(2);
  const std::vector<HoldValue> two{values[7], values[3]};
  EXPECT_EQ(holds.end(two, ended, {}), 2U);
  const auto again = make(holds, {1, 2});
  EXPECT_EQ(again[0] & 0xFFFFFFFF, 7U);
  EXPECT_EQ(again[1] & 0xFFFFFFFF, 3U);
  EXPECT_NE(again[0], values[7]);
}

TEST(HoldTable, an_entry_whose_generation_would_wrap_is_retired) {
  HoldTable holds({.tag = 1, .max_holds = HoldTable::kPageHolds, .first_generation = HoldTable::kMaxGeneration});
  std::vector<SlotId> slots(HoldTable::kPageHolds);
  const auto values = make(holds, slots);
  std::vector<Hold> ended(values.size());
  EXPECT_EQ(holds.end(values, ended, {}), values.size());
  EXPECT_EQ(holds.live(), 0U);
  std::vector<HoldValue> out(1);
  EXPECT_EQ(holds.create(HoldKind::reading, std::vector<SlotId>{1}, {}, out), Code::no_room);
  Hold hold;
  EXPECT_EQ(holds.resolve(values[0], &hold), Code::stale_handle);
}

TEST(HoldTable, the_maximum_holds_and_creation_is_all_or_nothing) {
  HoldTable holds({.tag = 1, .max_holds = 2 * HoldTable::kPageHolds});
  std::vector<SlotId> slots(2 * HoldTable::kPageHolds - 1);
  const auto values = make(holds, slots);
  std::vector<HoldValue> out(2);
  EXPECT_EQ(holds.create(HoldKind::reading, std::vector<SlotId>{1, 2}, {}, out), Code::no_room);
  EXPECT_EQ(holds.live(), slots.size());
  EXPECT_EQ(holds.create(HoldKind::reading, std::vector<SlotId>{1}, {}, out), Code::ok);
}

TEST(HoldTable, weak_holds_carry_their_slots_generation) {
  HoldTable holds({});
  std::vector<HoldValue> out(1);
  EXPECT_EQ(holds.create(HoldKind::weak, std::vector<SlotId>{4}, {}, out), Code::invalid_argument);
  EXPECT_EQ(holds.create(HoldKind::weak, std::vector<SlotId>{4}, std::vector<uint32_t>{77}, out), Code::ok);
  Hold hold;
  EXPECT_EQ(holds.resolve(out[0], &hold), Code::ok);
  EXPECT_EQ(hold.slot_generation, 77U);
}

TEST(HoldTable, renewing_ends_the_old_value) {
  HoldTable holds({});
  auto values = make(holds, {4, 5}, HoldKind::writable);
  const auto old = values;
  std::vector<Code> codes(2);
  EXPECT_EQ(holds.renew(HoldKind::reading, std::vector<SlotId>{8, 5}, values, codes), 2U);
  Hold hold;
  EXPECT_EQ(holds.resolve(old[0], &hold), Code::stale_handle);
  EXPECT_EQ(holds.resolve(values[0], &hold), Code::ok);
  EXPECT_EQ(hold.slot, 8U);
  EXPECT_EQ(hold.kind, HoldKind::reading);
  auto stale = old;
  EXPECT_EQ(holds.renew(HoldKind::reading, std::vector<SlotId>{8, 5}, stale, codes), 0U);
  EXPECT_EQ(codes[0], Code::stale_handle);
  EXPECT_EQ(stale, old);
}

TEST(HoldTable, of_concurrent_ends_of_one_hold_exactly_one_wins) {
  HoldTable holds({});
  std::vector<SlotId> slots(2000);
  for (SlotId i = 0; i < slots.size(); ++i) slots[i] = i;
  for (int round = 0; round < 5; ++round) {
    const auto values = make(holds, slots);
    std::atomic<size_t> wins{0};
    const auto end_all = [&] {
      std::vector<Hold> ended(16);
      for (size_t i = 0; i < values.size(); i += 16) {
        const auto batch = std::span(values).subspan(i, std::min<size_t>(16, values.size() - i));
        wins += holds.end(batch, ended, {});
      }
    };
    std::thread other(end_all);
    end_all();
    other.join();
    EXPECT_EQ(wins.load(), values.size());
    EXPECT_EQ(holds.live(), 0U);
  }
}

TEST(HoldTable, values_made_by_several_threads_are_distinct_and_none_is_lost) {
  HoldTable holds({});
  std::vector<std::vector<HoldValue>> kept(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kept.size(); ++t) {
    threads.emplace_back([&, t] {
      std::vector<SlotId> slots(8, static_cast<SlotId>(t));
      std::vector<HoldValue> out(8);
      std::vector<Hold> ended(8);
      for (int i = 0; i < 500; ++i) {
        ASSERT_EQ(holds.create(HoldKind::reading, slots, {}, out), Code::ok);
        if (i % 10 == 0) {
          kept[t].insert(kept[t].end(), out.begin(), out.end());
        } else {
          ASSERT_EQ(holds.end(out, ended, {}), 8U);
          for (const Hold& hold : ended) ASSERT_EQ(hold.slot, t);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<HoldValue> all;
  for (const auto& some : kept) all.insert(some.begin(), some.end());
  EXPECT_EQ(all.size(), 4U * 50 * 8);
  EXPECT_EQ(holds.live(), all.size());
}

}  // namespace
}  // namespace kvbm::block::hold_table_test
