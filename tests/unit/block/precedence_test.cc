#include <atomic>
#include <thread>
#include <vector>

#include "block_fixture.h"

namespace kvbm::block::precedence_test {
namespace {

// Answers as its constructor's argument says, and records the questions.
class Told final : public Precedence {
 public:
  explicit Told(std::vector<bool> gives) : gives_(std::move(gives)) {}
  bool gives_way(SlotId there, size_t i) noexcept override {
    asked.push_back({there, i});
    return gives_[i];
  }
  std::vector<std::pair<SlotId, size_t>> asked;

 private:
  const std::vector<bool> gives_;
};

std::vector<SlotId> complete_slots(BlockTable& table, size_t n) {
  std::vector<SlotId> slots(n);
  EXPECT_EQ(table.allocate(0, slots, nullptr), Code::ok);
  for (const SlotId slot : slots) table.set_payload_bytes(slot, 100);
  EXPECT_EQ(table.complete(slots), Code::ok);
  return slots;
}

SlotId found(BlockTable& table, uint32_t key) {
  SlotId slot = kNoSlot;
  table.acquire_each(0, std::vector<Key>{key_of(key)}, {&slot, 1}, kNoUse);
  if (slot != kNoSlot) table.release({&slot, 1});
  return slot;
}

TEST(Precedence, what_gives_way_loses_its_name_and_stays_with_its_holders) {
  auto table = make_table(8);
  const auto first = store(*table, keys_of(0, 3), 1, Lineage::chain);
  auto mine = complete_slots(*table, 3);
  Told told({false, true, false});
  const std::vector<Key> keys = keys_of(0, 3);
  std::vector<Code> codes(3);
  EXPECT_EQ(table->publish(mine, {.keys = keys, .lineage = Lineage::chain, .precedence = &told}, codes), Code::ok);
  ASSERT_EQ(told.asked.size(), 3U);
  for (const auto& [there, i] : told.asked) EXPECT_EQ(there, first[i]);
  EXPECT_EQ(codes, (std::vector<Code>{Code::exists, Code::ok, Code::exists}));
  EXPECT_EQ(mine[0], first[0]);
  EXPECT_NE(mine[1], first[1]);
  EXPECT_EQ(found(*table, 1), mine[1]);
  EXPECT_TRUE(table->info(first[1]).withdrawn);
  EXPECT_EQ(table->info(first[1]).references, 1U);
  EXPECT_EQ(table->parent(mine[1]), first[0]);
  table->release(mine);
  table->release(first);
  // The withdrawn block stays resident until its child is erased.
  EXPECT_EQ(table->state(first[1]), SlotState::registered);
  EXPECT_EQ(table->erase(0, keys), 3U);
  EXPECT_EQ(table->counters().free, 8U);
  EXPECT_EQ(table->counters().registered, 0U);
}

TEST(Precedence, the_next_process_does_not_find_what_gave_way_and_is_held) {
  std::vector<uint64_t> marks(4);
  auto made = BlockTable::create({.slots = 4, .policy = "lru", .make = &make_plain, .marks = marks});
  ASSERT_TRUE(made.ok());
  const auto table = std::move(made).value();
  const auto first = store(*table, keys_of(0, 1), 1);
  table->keep(first[0], 77);
  EXPECT_EQ(marks[first[0]], 77U);
  auto mine = complete_slots(*table, 1);
  Told told({true});
  EXPECT_EQ(table->publish(mine, {.keys = keys_of(0, 1), .precedence = &told}, {}), Code::ok);
  EXPECT_EQ(marks[first[0]], SlotMarks::kEnded);
  table->keep(first[0], 78);
  EXPECT_EQ(marks[first[0]], SlotMarks::kEnded);
  table->keep(mine[0], 79);
  EXPECT_EQ(marks[mine[0]], 79U);
  table->release(first);
  table->release(mine);
}

TEST(Precedence, a_key_repeated_in_a_batch_gives_way_to_the_last) {
  auto table = make_table(4);
  auto mine = complete_slots(*table, 2);
  const std::vector<SlotId> slots = mine;
  Told told({true, true});
  const std::vector<Key> keys{key_of(1), key_of(1)};
  std::vector<Code> codes(2);
  EXPECT_EQ(table->publish(mine, {.keys = keys, .precedence = &told}, codes), Code::ok);
  EXPECT_EQ(codes, (std::vector<Code>{Code::ok, Code::ok}));
  EXPECT_EQ(mine, slots);
  EXPECT_EQ(found(*table, 1), slots[1]);
  table->release(mine);
  EXPECT_EQ(table->state(slots[0]), SlotState::reset);
  EXPECT_EQ(table->counters().registered, 1U);
  EXPECT_EQ(table->counters().payload_bytes, 100U);
}

TEST(Precedence, payloads_are_summed_with_what_is_registered) {
  auto table = make_table(4);
  auto slots = complete_slots(*table, 2);
  EXPECT_EQ(table->counters().payload_bytes, 0U);
  EXPECT_EQ(table->publish(slots, {.keys = keys_of(0, 2)}, {}), Code::ok);
  EXPECT_EQ(table->counters().payload_bytes, 200U);
  EXPECT_EQ(table->payload_bytes(std::vector<SlotId>{slots[0], kNoSlot, slots[1]}), 200U);
  std::vector<SlotId> other(1);
  ASSERT_EQ(table->allocate(0, other, nullptr), Code::ok);
  table->set_payload_bytes(other[0], 7);
  EXPECT_EQ(table->payload_bytes(std::vector<SlotId>{slots[0], kNoSlot, other[0]}), 107U);
  table->release(slots);
  EXPECT_EQ(table->erase(0, keys_of(0, 1)), 1U);
  EXPECT_EQ(table->counters().payload_bytes, 100U);
  table->release(other);
  std::vector<SlotId> all(4);
  ASSERT_EQ(table->allocate(0, all, nullptr), Code::ok);
  EXPECT_EQ(table->counters().payload_bytes, 0U);
}

// Each stored block gives way to each new one. In the end one is found, and no slot is lost.
TEST(Precedence, threads_that_take_each_others_place_lose_no_slot) {
  class Always final : public Precedence {
   public:
    bool gives_way(SlotId, size_t) noexcept override { return true; }
  };
  constexpr size_t kThreads = 4;
  auto table = make_table(64);
  std::atomic<uint64_t> erased{0};
  const auto work = [&](size_t id) {
    Always always;
    for (int round = 0; round < 2000; ++round) {
      auto mine = complete_slots(*table, 2);
      const std::vector<Key> keys = keys_of(static_cast<uint32_t>(round % 3), 2);
      EXPECT_EQ(table->publish(mine, {.keys = keys, .precedence = &always}, {}), Code::ok);
      if (id == 0 && round % 5 == 0) erased += table->erase(0, keys);
      std::vector<SlotId> slots(2);
      table->acquire_each(0, keys, slots, kNoUse);
      for (const SlotId slot : slots) {
        if (slot != kNoSlot) table->release({&slot, 1});
      }
      table->release(mine);
    }
  };
  std::vector<std::thread> threads;
  for (size_t id = 0; id < kThreads; ++id) threads.emplace_back(work, id);
  for (std::thread& thread : threads) thread.join();
  const size_t left = table->erase_all();
  EXPECT_LE(left, 4U);
  EXPECT_GT(erased.load(), 0U);
  EXPECT_EQ(table->counters().free, 64U);
  EXPECT_EQ(table->counters().registered, 0U);
  EXPECT_EQ(table->counters().payload_bytes, 0U);
}

}  // namespace
}  // namespace kvbm::block::precedence_test
