// Hints, under every policy: one-shot blocks go first, kept ones last, and what goes on gets a second chance.
#include "policy/hints.h"

#include <gtest/gtest.h>

#include "policy/hinted.h"
#include "policy/slot_list.h"
#include "unit/policy/forest.h"

namespace kvbm::policy::hints_test {
namespace {

// Inserts blocks 0 to n - 1 in as many ticks, without parents.
void fill(Forest& forest, SlotId n) {
  for (SlotId slot = 0; slot < n; ++slot) {
    ++forest.tick;
    forest.insert(slot, kNoSlot, slot);
  }
  ++forest.tick;
}

SlotId evict(Forest& forest) {
  const SlotId slot = forest.policy->evict(forest.tick);
  if (slot != kNoSlot) forest.leave(slot);
  return slot;
}

TEST(Hints, one_shot_blocks_leave_first_and_kept_ones_last_under_every_policy) {
  for (const std::string_view name : eviction_policy_names()) {
    Forest forest(name, 8);
    forest.honour_hints();
    for (SlotId slot = 0; slot < 8; ++slot) {
      ++forest.tick;
      forest.insert(slot, kNoSlot, slot, slot < 2 ? kHintKeep : slot < 6 ? kHintNormal : kHintOneShot);
    }
    forest.hit(7);
    for (const SlotId from : {SlotId{6}, SlotId{2}, SlotId{0}}) {
      for (SlotId left = from == 2 ? 4 : 2; left > 0; --left) {
        const SlotId slot = evict(forest);
        EXPECT_GE(slot, from) << name;
        EXPECT_LT(slot, from == 2 ? 6U : from + 2) << name;
      }
    }
    EXPECT_EQ(evict(forest), kNoSlot) << name;
  }
}

TEST(Hints, a_hint_counts_from_when_it_is_given_and_can_be_taken_back) {
  for (const std::string_view name : eviction_policy_names()) {
    Forest forest(name, 6);
    forest.honour_hints();
    fill(forest, 6);
    forest.hint(0, kHintKeep);
    forest.hint(1, kHintKeep);
    forest.hint(5, kHintOneShot);
    forest.hint(4, kHintOneShot);
    forest.hint(4, kHintKeep);
    EXPECT_EQ(evict(forest), 5U) << name;
    forest.hint(1, kHintOneShot);
    EXPECT_EQ(evict(forest), 1U) << name;
    forest.hint(4, kHintNormal);
    for (int left = 3; left > 0; --left) {
      const SlotId slot = evict(forest);
      EXPECT_TRUE(slot == 2 || slot == 3 || slot == 4) << name << " " << slot;
    }
    EXPECT_EQ(evict(forest), 0U) << name;
  }
}

// The default policy treats such a block like one that has returned many times; the others spare it once.
TEST(Hints, a_block_of_a_conversation_that_goes_on_is_passed_over_once) {
  for (const std::string_view name : eviction_policy_names()) {
    if (name == "prefix") continue;
    Forest plain(name, 6);
    fill(plain, 6);
    const SlotId chosen = evict(plain);
    Forest forest(name, 6);
    forest.honour_hints();
    fill(forest, 6);
    forest.hint(chosen, kHintContinue);
    EXPECT_NE(evict(forest), chosen) << name;
    EXPECT_EQ(forest.facts[chosen].priority, kHintNormal) << name;
    bool gone = false;
    for (int left = 5; left > 0; --left) gone = evict(forest) == chosen || gone;
    EXPECT_TRUE(gone) << name;
  }
}

TEST(Hints, kept_blocks_among_themselves_go_by_their_use) {
  for (const std::string_view name : {"lru", "fifo"}) {
    Forest forest(name, 4);
    forest.honour_hints();
    fill(forest, 4);
    for (SlotId slot = 0; slot < 4; ++slot) forest.hint(slot, kHintKeep);
    ++forest.tick;
    forest.hit(0);
    EXPECT_EQ(evict(forest), 1U) << name;
    EXPECT_EQ(evict(forest), 2U) << name;
    EXPECT_EQ(evict(forest), 3U) << name;
    EXPECT_EQ(evict(forest), 0U) << name;
  }
}

// A policy that counts what it is asked, first in first out.
class Counted final : public EvictionPolicy {
 public:
  explicit Counted(std::span<Facts> facts) : list_(facts, 1) {}
  std::string_view name() const noexcept override { return "counted"; }
  void inserted(std::span<const SlotId> slots, uint32_t) override {
    for (const SlotId slot : slots) list_.push_back(slot);
  }
  void available(SlotId slot, uint32_t) override { list_.push_back(slot); }
  SlotId evict(uint32_t) override {
    ++asked;
    const SlotId slot = list_.front();
    if (slot != kNoSlot) list_.remove(slot);
    return slot;
  }
  void erased(SlotId slot) override {
    if (list_.has(slot)) list_.remove(slot);
  }
  size_t bytes() const noexcept override { return 0; }
  int asked = 0;

 private:
  SlotList list_;
};

TEST(Hints, one_eviction_puts_back_and_passes_over_a_bounded_number) {
  constexpr SlotId kBlocks = 1000;
  Forest forest("lru", kBlocks);
  auto counted = std::make_unique<Counted>(forest.facts);
  const int& asked = counted->asked;
  forest.policy = with_hints(std::move(counted), forest.facts, forest);
  for (SlotId slot = 0; slot < kBlocks; ++slot) forest.insert(slot, kNoSlot, slot, kHintContinue);
  EXPECT_NE(evict(forest), kNoSlot);
  EXPECT_EQ(asked, kMostPutBack + 1);
  for (SlotId slot = 0; slot < kBlocks; ++slot) {
    if (forest.resident(slot)) forest.hint(slot, kHintKeep);
  }
  ++forest.tick;
  for (SlotId slot = 0; slot < kBlocks; ++slot) {
    if (forest.resident(slot)) forest.hit(slot);
  }
  // All blocks were used after they were listed. The one behind those that are skipped is evicted, although it was used
  // too.
  SlotId first = 0;
  while (!forest.resident(first)) ++first;
  SlotId expected = first;
  for (int passed = 0; passed < kMostLooks; ++passed) {
    do ++expected;
    while (!forest.resident(expected));
  }
  EXPECT_EQ(evict(forest), expected);
}

// Random lives with random hints: a kept block goes only when nothing else can, a one-shot one whenever it can.
TEST(Hints, the_order_of_levels_holds_whatever_happens) {
  constexpr SlotId kSlots = 40;
  for (const std::string_view name : eviction_policy_names()) {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
      Forest forest(name, kSlots);
      forest.honour_hints();
      SeededRandom random(seed);
      const auto any = [&](uint8_t priority, SlotId but) {
        for (SlotId slot = 0; slot < kSlots; ++slot) {
          if (slot != but && forest.evictable(slot) && forest.facts[slot].priority == priority) return true;
        }
        return false;
      };
      for (int step = 0; step < 6000; ++step) {
        forest.tick += static_cast<uint32_t>(random.below(2));
        const auto slot = static_cast<SlotId>(random.below(kSlots));
        const uint64_t action = random.below(10);
        if (action < 4) {
          SlotId room = forest.free_slot();
          if (room == kNoSlot) {
            const bool possible = forest.evictables() != 0;
            room = forest.policy->evict(forest.tick);
            ASSERT_EQ(room != kNoSlot, possible) << name << " seed " << seed << " step " << step;
            if (!possible) continue;
            const uint8_t level = forest.facts[room].priority;
            ASSERT_TRUE(level == kHintOneShot || !any(kHintOneShot, room)) << name << " seed " << seed;
            ASSERT_TRUE(level != kHintKeep || !(any(kHintNormal, room) || any(kHintContinue, room)))
                << name << " seed " << seed << " step " << step;
            forest.leave(room);
          }
          const SlotId parent = room != slot && forest.resident(slot) ? slot : kNoSlot;
          forest.insert(room, parent, random.below(4 * kSlots), static_cast<uint8_t>(random.below(4)));
        } else if (!forest.resident(slot)) {
          continue;
        } else if (action < 6) {
          forest.hit(slot);
        } else if (action == 6) {
          forest.hint(slot, static_cast<uint8_t>(random.below(4)));
        } else if (action == 7 && !forest.held(slot)) {
          forest.hold(slot);
        } else if (forest.held(slot)) {
          forest.release(slot);
        }
      }
    }
  }
}

TEST(Hints, a_policy_that_hears_them_stands_alone_and_no_policy_stays_none) {
  Forest forest("prefix", 2);
  const EvictionPolicy* const before = forest.policy.get();
  forest.honour_hints();
  EXPECT_EQ(forest.policy.get(), before);
  EXPECT_EQ(with_hints(nullptr, forest.facts, forest), nullptr);
}

}  // namespace
}  // namespace kvbm::policy::hints_test
