#include "block/pin_table.h"

#include <atomic>
#include <thread>

#include "base/clock.h"
#include "block_fixture.h"

namespace kvbm::block::pin_table_test {
namespace {

struct Pinned : testing::Test {
  std::unique_ptr<BlockTable> table = make_table(4);
  std::vector<SlotId> slots = store(*table, keys_of(0, 4), 1);

  [[nodiscard]] Code room(size_t n) {
    std::vector<SlotId> out(n);
    const Code code = table->allocate(0, out, nullptr, 9);
    if (code == Code::ok) table->abandon(out);
    return code;
  }
};

TEST_F(Pinned, a_pinned_block_outlives_its_references_and_is_evictable_after_unpin) {
  PinTable pins(*table);
  auto id = pins.pin(slots, 1, kNever);
  ASSERT_TRUE(id.ok());
  table->release(slots);
  EXPECT_EQ(room(1), Code::no_room);
  EXPECT_EQ(present(*table, keys_of(0, 4)), 4U);
  EXPECT_EQ(table->info(slots[0]).pins, 1U);
  EXPECT_EQ(pins.unpin(id.value()), Code::ok);
  EXPECT_EQ(pins.unpin(id.value()), Code::stale_handle);
  EXPECT_EQ(room(4), Code::ok);
}

TEST_F(Pinned, pins_end_at_their_deadline_and_not_before) {
  PinTable pins(*table);
  auto late = pins.pin(std::span(slots).first(1), kNoOwner, 200);
  auto soon = pins.pin(std::span(slots).last(1), kNoOwner, 100);
  EXPECT_EQ(pins.next_deadline_ns(), 100U);
  table->release(slots);
  EXPECT_TRUE(pins.expire(99).empty());
  auto ended = pins.expire(100);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].id, soon.value());
  EXPECT_EQ(pins.next_deadline_ns(), 200U);
  EXPECT_TRUE(pins.expire(199).empty());
  EXPECT_EQ(room(4), Code::no_room);
  ended = pins.expire(200);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].id, late.value());
  EXPECT_EQ(pins.next_deadline_ns(), kNever);
}

TEST_F(Pinned, the_death_of_an_owner_ends_its_pins_only) {
  PinTable pins(*table);
  auto a = pins.pin(std::span(slots).first(2), 7, kNever);
  auto b = pins.pin(std::span(slots).last(2), 8, 50);
  table->release(slots);
  const auto ended = pins.owner_died(7);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_EQ(ended[0].id, a.value());
  EXPECT_EQ(ended[0].slots.size(), 2U);
  EXPECT_EQ(pins.size(), 1U);
  EXPECT_EQ(room(2), Code::ok);
  EXPECT_EQ(room(3), Code::no_room);
  EXPECT_EQ(pins.unpin(b.value()), Code::ok);
}

TEST_F(Pinned, a_pin_of_another_table_ends_nothing) {
  PinTable pins(*table);
  PinTable others(*table);
  const auto own = pins.pin(std::span(slots).first(1), 1, kNever);
  const auto other = others.pin(std::span(slots).last(1), 1, kNever);
  EXPECT_EQ(pins.unpin(other.value()), Code::stale_handle);
  EXPECT_EQ(others.unpin(own.value()), Code::stale_handle);
  EXPECT_EQ(pins.size() + others.size(), 2U);
}

TEST_F(Pinned, an_erased_block_keeps_its_slot_while_pinned) {
  PinTable pins(*table);
  auto id = pins.pin(std::span(slots).first(1), 1, kNever);
  table->release(slots);
  EXPECT_EQ(table->erase(0, keys_of(0, 1)), 1U);
  EXPECT_EQ(table->state(slots[0]), SlotState::registered);
  EXPECT_EQ(pins.unpin(id.value()), Code::ok);
  EXPECT_EQ(table->state(slots[0]), SlotState::reset);
}

TEST_F(Pinned, pinning_is_all_or_nothing_and_bounded) {
  PinTable pins(*table);
  EXPECT_EQ(pins.pin({}, 1, kNever).status().code(), Code::invalid_argument);
  for (int i = 0; i < 131'071; ++i) ASSERT_TRUE(pins.pin(std::span(slots).last(1), 1, kNever).ok());
  EXPECT_EQ(pins.pin(slots, 1, kNever).status().code(), Code::at_limit);
  EXPECT_EQ(table->info(slots[0]).pins, 0U);
  EXPECT_EQ(table->info(slots[3]).pins, 131'071U);
}

// Two threads ask for the last pin at the same time.
TEST_F(Pinned, there_are_never_more_pins_than_the_limit) {
  constexpr size_t kMost = 3;
  constexpr int kRounds = 2'000;
  PinTable pins(*table, kMost);
  ASSERT_TRUE(pins.pin(slots, kNoOwner, kNever).ok());
  ASSERT_TRUE(pins.pin(slots, kNoOwner, kNever).ok());
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};
  PinId others = 0;
  const auto ask = [&] {
    const Result<PinId> got = pins.pin(slots, kNoOwner, kNever);
    EXPECT_EQ(got.ok() ? Code::at_limit : got.status().code(), Code::at_limit);
    return got.ok() ? got.value() : 0;
  };
  std::thread other([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (begun.load() != round) std::this_thread::yield();
      others = ask();
      ended.store(round);
    }
  });
  int beyond = 0;
  for (int round = 1; round <= kRounds; ++round) {
    begun.store(round);
    const PinId mine = ask();
    while (ended.load() != round) std::this_thread::yield();
    beyond += pins.size() > kMost ? 1 : 0;
    EXPECT_TRUE(mine != 0 || others != 0);
    for (const PinId id : {mine, others}) EXPECT_EQ(pins.unpin(id), id == 0 ? Code::stale_handle : Code::ok);
  }
  other.join();
  EXPECT_EQ(beyond, 0);
  EXPECT_EQ(table->info(slots[0]).pins, kMost - 1);
}

TEST_F(Pinned, unregistered_slots_cannot_be_pinned) {
  table->release(slots);
  std::vector<SlotId> fresh(1);
  ASSERT_EQ(table->allocate(0, fresh, nullptr), Code::ok);
  PinTable pins(*table);
  EXPECT_EQ(pins.pin(fresh, 1, kNever).status().code(), Code::wrong_state);
}

}  // namespace
}  // namespace kvbm::block::pin_table_test
