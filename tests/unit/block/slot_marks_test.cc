// Marks of a table, in memory that outlives it, for the blocks that the next process may find.
#include "block/slot_marks.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "block_fixture.h"

namespace kvbm::block::slot_marks_test {
namespace {

constexpr uint64_t kValue = 1000;

struct Marked {
  explicit Marked(uint32_t slots) : words(slots, 0) {
    auto made = BlockTable::create({.slots = slots, .policy = "lru", .make = &make_plain, .marks = words});
    EXPECT_TRUE(made.ok());
    table = std::move(made).value();
  }
  // Stores and keeps: the mark of key n is kValue + n. The slots are held.
  std::vector<SlotId> keep(uint64_t first, size_t n, Lineage lineage = Lineage::none) {
    auto slots = store(*table, keys_of(first, n), 1, lineage);
    for (size_t i = 0; i < n; ++i) table->keep(slots[i], kValue + first + i);
    return slots;
  }
  [[nodiscard]] ptrdiff_t values() const {
    return std::count_if(words.begin(), words.end(), [](uint64_t w) { return w >= kValue; });
  }
  std::vector<uint64_t> words;
  std::unique_ptr<BlockTable> table;
};

TEST(SlotMarks, a_table_takes_a_mark_for_each_slot_or_none) {
  std::vector<uint64_t> words(7);
  EXPECT_EQ(BlockTable::create({.slots = 8, .policy = "lru", .make = &make_plain, .marks = words}).status().code(),
            Code::invalid_argument);
  auto without = make_table(8);
  without->keep(store(*without, keys_of(1, 1), 1)[0], kValue);  // nowhere to say it
}

TEST(SlotMarks, a_block_has_its_mark_while_it_is_resident) {
  Marked m(4);
  const auto slots = m.keep(0, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(m.words[slots[i]], kValue + i);
  m.table->release(slots);
  EXPECT_EQ(m.values(), 4);  // evictable is still resident
}

TEST(SlotMarks, a_slot_has_none_before_its_new_owner_may_write_to_it) {
  Marked m(4);
  m.table->release(m.keep(0, 4));
  std::vector<SlotId> fresh(3);
  ASSERT_EQ(m.table->allocate(kSharedAccount, fresh, nullptr, 2), Code::ok);
  for (const SlotId slot : fresh) EXPECT_EQ(m.words[slot], SlotMarks::kNone);
  EXPECT_EQ(m.values(), 1);
}

TEST(SlotMarks, an_evicted_block_has_none_though_its_slot_is_not_used_again) {
  Marked m(4);
  const auto held = m.keep(0, 4);
  EXPECT_EQ(m.table->evict_held(held, nullptr), 4U);
  EXPECT_EQ(m.values(), 0);
  Marked limited(4);
  ASSERT_EQ(limited.table->set_limit(1, 4, OverQuota::evict), Code::ok);
  const auto mine = store(*limited.table, keys_of(0, 4), 1, Lineage::none, 0, nullptr, 1);
  for (const SlotId slot : mine) limited.table->keep(slot, kValue);
  limited.table->release(mine);
  ASSERT_EQ(limited.table->set_limit(1, 1, OverQuota::evict), Code::ok);
  EXPECT_EQ(limited.values(), 1);
}

TEST(SlotMarks, a_forgotten_block_loses_it_at_once_though_it_is_held) {
  for (int how = 0; how < 3; ++how) {
    Marked m(4);
    const auto slots = m.keep(0, 4, Lineage::chain);
    const size_t erased = how == 0   ? m.table->erase(0, keys_of(0, 4))
                          : how == 1 ? m.table->erase_family(0)
                                     : m.table->erase_all();
    EXPECT_EQ(erased, 4U);
    EXPECT_EQ(m.values(), 0);
    for (const SlotId slot : slots) {
      m.table->keep(slot, kValue);  // too late: the block is erased
      EXPECT_EQ(m.words[slot], SlotMarks::kEnded);
    }
    m.table->release(slots);
    EXPECT_EQ(std::count(m.words.begin(), m.words.end(), SlotMarks::kNone), 4);
    EXPECT_EQ(m.keep(10, 4).size(), 4U);
    EXPECT_EQ(m.values(), 4);  // the slots are as new ones
  }
}

TEST(SlotMarks, what_has_no_name_or_a_private_one_gets_none) {
  Marked m(4);
  m.table->release(m.keep(0, 1));
  std::vector<SlotId> slots(2);
  ASSERT_EQ(m.table->allocate(kSharedAccount, slots, nullptr), Code::ok);
  m.table->keep(slots[0], kValue);
  ASSERT_EQ(m.table->complete(slots), Code::ok);
  m.table->keep(slots[1], kValue);
  const auto keys = keys_of(0, 2);
  Publication what;
  what.keys = keys;
  what.duplicates = DuplicateMode::keep;
  const SlotId duplicate = slots[0];
  ASSERT_EQ(m.table->publish(slots, what, {}), Code::ok);
  m.table->keep(duplicate, kValue);
  EXPECT_EQ(m.values(), 1);  // the resident block's
  m.table->abandon(slots);
}

// However the two meet: when the erasing has returned, there is no mark, and none comes.
TEST(SlotMarks, keeping_and_forgetting_at_once_end_without_one) {
  Marked m(1);
  std::atomic<uint32_t> round{0};
  std::atomic<uint32_t> kept{0};
  SlotId slot = kNoSlot;
  constexpr uint32_t kRounds = 2000;
  std::thread keeper([&] {
    for (uint32_t r = 1; r <= kRounds; ++r) {
      while (round.load() < r) std::this_thread::yield();
      m.table->keep(slot, kValue);
      kept.store(r);
    }
  });
  uint64_t wrong = 0;
  for (uint32_t r = 1; r <= kRounds; ++r) {
    slot = store(*m.table, keys_of(0, 1), r)[0];
    round.store(r);
    if (r % 2 == 0) std::this_thread::yield();
    m.table->erase_all();
    if (std::atomic_ref(m.words[slot]).load() >= kValue) ++wrong;
    while (kept.load() < r) std::this_thread::yield();
    if (std::atomic_ref(m.words[slot]).load() >= kValue) ++wrong;
    m.table->release({&slot, 1});
  }
  keeper.join();
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace kvbm::block::slot_marks_test
