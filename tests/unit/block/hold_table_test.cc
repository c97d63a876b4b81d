#include "block/hold_table.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  EXPECT_EQ(holds.create(HoldKind::reading, std::vector<SlotId>{1}, {}, out), Code::at_limit);
  Hold hold;
  EXPECT_EQ(holds.resolve(values[0], &hold), Code::stale_handle);
}

TEST(HoldTable, the_maximum_holds_and_creation_is_all_or_nothing) {
  HoldTable holds({.tag = 1, .max_holds = 2 * HoldTable::kPageHolds});
  std::vector<SlotId> slots(2 * HoldTable::kPageHolds - 1);
  const auto values = make(holds, slots);
  std::vector<HoldValue> out(2);
  EXPECT_EQ(holds.create(HoldKind::reading, std::vector<SlotId>{1, 2}, {}, out), Code::at_limit);
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

Code take(HoldTable& holds, std::vector<HoldValue>& values, std::vector<SlotId>& slots) {
  return holds.take_all(values, HoldKind::writable, slots, [] { return Code::ok; });
}

TEST(HoldTable, what_was_taken_is_no_hold_until_it_is_settled) {
  HoldTable holds({});
  auto values = make(holds, {4, 5}, HoldKind::writable);
  const auto old = values;
  std::vector<SlotId> slots(2);
  ASSERT_EQ(take(holds, values, slots), Code::ok);
  EXPECT_EQ(slots, (std::vector<SlotId>{4, 5}));
  Hold hold;
  std::vector<Hold> ended(2);
  for (const auto& some : {old, values}) {
    EXPECT_EQ(holds.resolve(some[0], &hold), Code::stale_handle);
    EXPECT_EQ(holds.end(some, ended, {}), 0U);
  }
  EXPECT_EQ(holds.live(), 2U);
  const std::vector<SlotId> elsewhere{8};
  holds.settle(std::span(values).first(1), HoldKind::reading, elsewhere);
  EXPECT_EQ(holds.resolve(old[0], &hold), Code::stale_handle);
  EXPECT_EQ(holds.resolve(values[0], &hold), Code::ok);
  EXPECT_EQ(hold.slot, 8U);
  EXPECT_EQ(hold.kind, HoldKind::reading);
  EXPECT_EQ(holds.resolve(values[1], &hold), Code::stale_handle);
  holds.settle(std::span(values).last(1), HoldKind::writable, std::span(slots).last(1));
  EXPECT_EQ(holds.end(values, ended, {}), 2U);
  EXPECT_EQ(holds.live(), 0U);
}

TEST(HoldTable, a_batch_is_taken_whole_or_not_at_all) {
  HoldTable holds({});
  auto values = make(holds, {4, 5, 6}, HoldKind::writable);
  std::vector<Hold> ended(1);
  ASSERT_EQ(holds.end(std::span(values).last(1), ended, {}), 1U);
  const auto old = values;
  std::vector<SlotId> slots(3);
  EXPECT_EQ(take(holds, values, slots), Code::stale_handle);
  EXPECT_EQ(values, old);
  values.pop_back();
  slots.pop_back();
  EXPECT_EQ(holds.take_all(values, HoldKind::reading, slots, [] { return Code::ok; }), Code::wrong_state);
  EXPECT_EQ(holds.take_all(values, HoldKind::writable, slots, [] { return Code::miss; }), Code::miss);
  Hold hold;
  for (const HoldValue value : values) EXPECT_EQ(holds.resolve(value, &hold), Code::ok);
}

TEST(HoldTable, a_new_hold_can_be_taken_and_one_without_generations_stays) {
  HoldTable holds({.tag = 1, .first_generation = HoldTable::kMaxGeneration - 1});
  std::vector<HoldValue> values = make(holds, {4}, HoldKind::writable);
  std::vector<SlotId> slots(1);
  ASSERT_EQ(take(holds, values, slots), Code::ok);
  holds.settle(values, HoldKind::writable, slots);
  const auto last = values;
  EXPECT_EQ(take(holds, values, slots), Code::at_limit);
  EXPECT_EQ(values, last);
  Hold hold;
  EXPECT_EQ(holds.resolve(values[0], &hold), Code::ok);
  std::vector<Hold> ended(1);
  EXPECT_EQ(holds.end(values, ended, {}), 1U);
  // The entry is not reused in the generation in which it could not be taken.
  std::vector<SlotId> all(HoldTable::kPageHolds - 1);
  for (const HoldValue value : make(holds, all)) EXPECT_NE(value & 0xFFFFFFFF, last[0] & 0xFFFFFFFF);
}

TEST(HoldTable, no_hold_of_a_batch_ends_while_it_is_used) {
  HoldTable holds({});
  // Makes the holds in the lanes of several threads, so that batches name lanes in both orders.
  std::vector<HoldValue> values;
  for (SlotId slot = 0; slot < 6; ++slot) {
    std::thread([&] { values.push_back(make(holds, {slot})[0]); }).join();
  }
  std::atomic<bool> stop{false};
  std::atomic<int> ends{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::vector<HoldValue> mine(values);
      if (t == 1) std::reverse(mine.begin(), mine.end());
      std::vector<SlotId> slots(mine.size());
      for (int i = 0; i < 20000 && !stop; ++i) {
        const Code code = holds.use_all(mine, HoldKind::reading, slots, [&] {
          Hold hold;
          const bool all =
              std::all_of(mine.begin(), mine.end(), [&](HoldValue v) { return holds.resolve(v, &hold) == Code::ok; });
          return all ? Code::ok : Code::internal;
        });
        ASSERT_NE(code, Code::internal);
        if (code == Code::stale_handle) break;
      }
      stop = true;
    });
  }
  threads.emplace_back([&] {
    std::vector<Hold> ended(1);
    for (int i = 0; i < 2000; ++i) std::this_thread::yield();
    ends += static_cast<int>(holds.end({&values[3], 1}, ended, {}));
    stop = true;
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ends.load(), 1);
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
