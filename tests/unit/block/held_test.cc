// Effects of holds, and that a hold has none after its end.
#include "block/held.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "block_fixture.h"

namespace kvbm::block::held_test {
namespace {

class Held : public ::testing::Test {
 protected:
  static constexpr uint32_t kSlots = 4;

  HoldValue hold(HoldKind kind, SlotId slot) {
    HoldValue value = kNoHold;
    EXPECT_EQ(holds_.create(kind, {&slot, 1}, {}, {&value, 1}), Code::ok);
    return value;
  }
  HoldValue writable() {
    SlotId slot = kNoSlot;
    EXPECT_EQ(table_->allocate(kSharedAccount, {&slot, 1}, nullptr), Code::ok);
    return hold(HoldKind::writable, slot);
  }
  HoldValue reading(uint64_t key) { return hold(HoldKind::reading, store(*table_, keys_of(key, 1), 0)[0]); }
  void release(HoldValue value) {
    Hold was;
    ASSERT_EQ(holds_.end({&value, 1}, {&was, 1}, {}), 1U);
    table_->release({&was.slot, 1});
  }
  uint32_t references(SlotId slot) { return table_->info(slot).references; }

  std::unique_ptr<BlockTable> table_ = make_table(kSlots);
  HoldTable holds_{HoldTable::Options{}};
  std::vector<SlotId> slots_ = std::vector<SlotId>(1);
};

TEST_F(Held, a_reading_hold_gives_more_references_until_it_ends) {
  const HoldValue value = reading(1);
  ASSERT_EQ(retain_held(holds_, *table_, {&value, 1}, slots_), Code::ok);
  EXPECT_EQ(references(slots_[0]), 2U);
  table_->release(slots_);
  release(value);
  EXPECT_EQ(retain_held(holds_, *table_, {&value, 1}, slots_), Code::stale_handle);
  EXPECT_EQ(references(slots_[0]), 0U);
  const HoldValue mine = writable();
  EXPECT_EQ(retain_held(holds_, *table_, {&mine, 1}, slots_), Code::wrong_state);
}

TEST_F(Held, a_batch_with_an_ended_hold_retains_nothing) {
  const std::vector<HoldValue> values{reading(1), reading(2)};
  Hold first;
  ASSERT_EQ(holds_.resolve(values[0], &first), Code::ok);
  release(values[1]);
  std::vector<SlotId> slots(2);
  EXPECT_EQ(retain_held(holds_, *table_, values, slots), Code::stale_handle);
  EXPECT_EQ(references(first.slot), 1U);
}

TEST_F(Held, references_are_refused_before_their_count_overflows) {
  // Takes 4,096 references at a time, because the limit is two million.
  const std::vector<HoldValue> many(4096, reading(1));
  std::vector<SlotId> slots(many.size());
  uint32_t taken = 0;
  Code code = Code::ok;
  while (code == Code::ok && taken < 1U << 24) {
    code = retain_held(holds_, *table_, many, slots);
    if (code == Code::ok) taken += 4096;
  }
  EXPECT_EQ(code, Code::at_limit);
  EXPECT_GT(taken, 2'000'000U);
  const SlotInfo info = table_->info(slots[0]);
  EXPECT_EQ(info.references, 1 + taken);
  EXPECT_EQ(info.children, 0U);
}

TEST_F(Held, a_weak_hold_is_of_the_block_that_the_hold_was_on) {
  const HoldValue value = reading(1);
  std::vector<uint32_t> generations(1);
  ASSERT_EQ(name_held(holds_, *table_, {&value, 1}, slots_, generations), Code::ok);
  EXPECT_EQ(generations[0], table_->generation(slots_[0]));
  release(value);
  EXPECT_EQ(name_held(holds_, *table_, {&value, 1}, slots_, generations), Code::stale_handle);
}

TEST_F(Held, completing_says_the_length_and_is_done_once) {
  const HoldValue value = writable();
  const uint64_t bytes = 100;
  ASSERT_EQ(complete_held(holds_, *table_, {&value, 1}, slots_, {&bytes, 1}, 4096), Code::ok);
  EXPECT_EQ(table_->payload_bytes(slots_[0]), 100U);
  EXPECT_EQ(complete_held(holds_, *table_, {&value, 1}, slots_, {}, 4096), Code::wrong_state);
  EXPECT_EQ(table_->payload_bytes(slots_[0]), 100U);
  release(value);
  EXPECT_EQ(complete_held(holds_, *table_, {&value, 1}, slots_, {}, 4096), Code::stale_handle);
  const HoldValue other = reading(1);
  EXPECT_EQ(complete_held(holds_, *table_, {&other, 1}, slots_, {}, 4096), Code::wrong_state);
}

TEST_F(Held, only_complete_blocks_are_taken) {
  HoldValue value = writable();
  EXPECT_EQ(take_held(holds_, *table_, {&value, 1}, slots_), Code::wrong_state);
  ASSERT_EQ(complete_held(holds_, *table_, {&value, 1}, slots_, {}, 4096), Code::ok);
  const HoldValue old = value;
  ASSERT_EQ(take_held(holds_, *table_, {&value, 1}, slots_), Code::ok);
  EXPECT_NE(value, old);
  Seen seen;
  EXPECT_EQ(look_at(holds_, *table_, old, &seen), Code::stale_handle);
  EXPECT_EQ(look_at(holds_, *table_, value, &seen), Code::stale_handle);
  holds_.settle({&value, 1}, HoldKind::writable, slots_);
  EXPECT_EQ(look_at(holds_, *table_, value, &seen), Code::ok);
  EXPECT_EQ(seen.payload_bytes, 4096U);
  EXPECT_FALSE(seen.partial);
}

TEST_F(Held, an_end_too_many_is_refused_and_counted) {
  const auto block = store(*table_, keys_of(1, 1), 0);
  table_->release(block);
  EXPECT_EQ(table_->underflows(), 0U);
  table_->release(block);
  table_->unpin(block);
  EXPECT_EQ(table_->underflows(), 2U);
  const SlotInfo info = table_->info(block[0]);
  EXPECT_EQ(info.references, 0U);
  EXPECT_EQ(info.children, 0U);
  EXPECT_EQ(info.pins, 0U);
  EXPECT_EQ(present(*table_, keys_of(1, 1)), 1U);
  // A slot that is free, and one that is written to.
  SlotId partial = kNoSlot;
  ASSERT_EQ(table_->allocate(kSharedAccount, {&partial, 1}, nullptr), Code::ok);
  table_->abandon({&partial, 1});
  table_->release({&partial, 1});
  EXPECT_EQ(table_->underflows(), 3U);
  EXPECT_EQ(table_->info(partial).state, SlotState::reset);
  // Every slot can be allocated, each once.
  std::vector<SlotId> all(kSlots);
  ASSERT_EQ(table_->allocate(kSharedAccount, all, nullptr), Code::ok);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (std::vector<SlotId>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace kvbm::block::held_test
