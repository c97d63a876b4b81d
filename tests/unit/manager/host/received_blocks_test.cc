#include "manager/host/received_blocks.h"

#include <gtest/gtest.h>

#include "manager/host/host_record.h"
#include "manager/stack/tier_stack.h"
#include "support/small_manager.h"

namespace kvbm::manager::received_blocks_test {
namespace {

class Received : public test::SmallManager {
 protected:
  void SetUp() override { make(AdmissionKind::on_request); }

  [[nodiscard]] bool here(uint64_t n) {
    const SlotId slot = manager_->host().acquire_one(family_, key(n));
    if (slot != kNoSlot) manager_->host().release({&slot, 1});
    return slot != kNoSlot;
  }

  // Accepts a block as if another node had given it.
  void take(uint64_t n) {
    put(n);
    const SlotId slot = manager_->host().acquire_one(family_, key(n));
    ASSERT_NE(slot, kNoSlot);
    manager_->stack().keep_received({&slot, 1});
  }

  // Accepts a block as if another node had given it, in a record that names its parent; 0: none.
  void land(uint64_t n, uint64_t parent) {
    SlotId slot = kNoSlot;
    ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, {&slot, 1}, nullptr), Code::ok);
    std::memset(manager_->host().arena().payload(slot).data(), static_cast<int>(n), kBlock);
    ASSERT_EQ(manager_->host().table().complete({&slot, 1}), Code::ok);
    HeadFacts facts;
    facts.family = family_;
    facts.key = key(n);
    if (parent != 0) facts.parent = key(parent);
    facts.payload_bytes = kBlock;
    ASSERT_EQ(make_head(manager_->host(), slot, facts, {}), Code::ok);
    Delivery record;
    record.slot = slot;
    record.mark = manager_->host().invalidations().mark(family_);
    ASSERT_EQ(manager_->stack().register_landed({key(n), family_}, record, true), Code::ok);
    manager_->stack().keep_received({&record.slot, 1});
  }
  [[nodiscard]] SlotId slot_of(uint64_t n) {
    const SlotId slot = manager_->host().acquire_one(family_, key(n));
    if (slot != kNoSlot) manager_->host().release({&slot, 1});
    return slot;
  }
  [[nodiscard]] bool kept(uint64_t n) { return manager_->host().table().info(slot_of(n)).references != 0; }

  // Allocates and releases n slots, so at least n blocks are evicted or were free.
  Code need(size_t n) {
    std::vector<SlotId> slots(n);
    const Code code = manager_->stack().allocate(block::kSharedAccount, slots, nullptr);
    if (code == Code::ok) manager_->host().release(slots);
    return code;
  }
};

TEST_F(Received, what_was_taken_lately_stays_when_others_go) {
  for (uint64_t n = 0; n < kSlots / 2; ++n) put(n);
  for (uint64_t n = 100; n < 100 + kSlots / 2; ++n) take(n);
  ASSERT_EQ(need(kSlots / 2), Code::ok);
  for (uint64_t n = 100; n < 100 + kSlots / 2; ++n) EXPECT_TRUE(here(n)) << n;
  for (uint64_t n = 0; n < kSlots / 2; ++n) EXPECT_FALSE(here(n)) << n;
}

TEST_F(Received, it_gives_way_oldest_first_where_there_would_be_no_room) {
  for (uint64_t n = 0; n < kSlots / 2; ++n) put(n);
  for (uint64_t n = 100; n < 100 + kSlots / 2; ++n) take(n);
  ASSERT_EQ(need(kSlots / 2 + 1), Code::ok);
  EXPECT_FALSE(here(100));
  for (uint64_t n = 101; n < 100 + kSlots / 2; ++n) EXPECT_TRUE(here(n)) << n;
  EXPECT_EQ(need(kSlots), Code::ok) << "nothing is kept that others need";
}

// Two threads find no room at once. What the first releases is enough for both.
TEST_F(Received, threads_that_find_no_room_at_once_release_no_more_than_they_need) {
  for (uint64_t n = 100; n < 100 + kSlots / 2; ++n) take(n);
  std::vector<SlotId> used(kSlots - kSlots / 2);
  ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, used, nullptr), Code::ok);
  ReceivedBlocks& received = manager_->host().received();
  const uint64_t seen = received.releases();
  EXPECT_TRUE(received.release_some(seen, 0));
  EXPECT_TRUE(received.release_some(seen, 0)) << "it tries again before it releases more";
  EXPECT_FALSE(kept(100));
  EXPECT_TRUE(kept(101));
  EXPECT_TRUE(received.release_some(received.releases(), 0));
  EXPECT_FALSE(kept(101));
  manager_->host().release(used);
}

TEST_F(Received, no_more_than_half_of_the_host_is_kept) {
  for (uint64_t n = 100; n < 100 + kSlots; ++n) take(n);
  ASSERT_EQ(need(kSlots / 2), Code::ok);
  for (uint64_t n = 100 + kSlots / 2; n < 100 + kSlots; ++n) EXPECT_TRUE(here(n)) << n;
}

TEST_F(Received, its_time_ends_and_nothing_is_held_for_it) {
  take(1);
  SlotId slot = manager_->host().acquire_one(family_, key(1));
  ASSERT_NE(slot, kNoSlot);
  EXPECT_EQ(manager_->host().table().info(slot).references, 2U);
  bool later = false;
  sim_.post_at(sim_.clock().now_ns() + ReceivedBlocks::kKeptNs + 1, [&] { later = true; });
  ASSERT_TRUE(sim_.run_until([&] { return later; }));
  EXPECT_EQ(manager_->host().table().info(slot).references, 1U);
  manager_->host().release({&slot, 1});
}

TEST_F(Received, what_nodes_gave_and_went_from_here_is_counted_once) {
  for (uint64_t n = 100; n < 100 + kSlots; ++n) take(n);
  std::vector<SlotId> given;
  for (uint64_t n = 100; n < 103; ++n) given.push_back(manager_->host().acquire_one(family_, key(n)));
  manager_->host().received().given(given);
  manager_->host().table().set_flags(given[0], on_tier_flag(1));  // the disk has it
  manager_->host().release(given);
  ASSERT_EQ(need(kSlots), Code::ok);
  EXPECT_EQ(manager_->host().received().lost(), 2U);
  for (uint64_t n = 0; n < kSlots; ++n) put(n);  // in the same slots
  ASSERT_EQ(need(kSlots), Code::ok);
  EXPECT_EQ(manager_->host().received().lost(), 2U);
}

TEST_F(Received, what_is_forgotten_leaves_its_slots) {
  take(1);
  const uint32_t free = manager_->host().table().counters().free;
  ASSERT_TRUE(manager_->stack().erase_family(family_).ok());
  EXPECT_EQ(manager_->host().table().counters().free, free + 1);
}

TEST_F(Received, what_is_forgotten_takes_no_other_namespace_with_it) {
  NamespaceOptions who;
  who.model = "other";
  const auto other = manager_->namespaces().open(std::move(who)).value();
  const FamilyId gone = family_;
  take(1);
  family_ = other->plan({}).value().family;
  take(2);
  ASSERT_TRUE(manager_->stack().erase_family(gone).ok());
  EXPECT_TRUE(kept(2));
  family_ = gone;
  EXPECT_FALSE(here(1));
}

// The parts of one put land in any order. The first block has no child while the second is on its way.
TEST_F(Received, the_first_block_stays_while_what_follows_it_lands_out_of_order) {
  for (uint64_t n = 100; n < 104; ++n) put(n);
  land(1, 0);
  for (uint64_t n = 3; n < 7; ++n) land(n, n - 1);
  EXPECT_TRUE(kept(1)) << "nothing else keeps it";
  EXPECT_TRUE(kept(3)) << "its parent is not here";
  EXPECT_FALSE(kept(4)) << "block 5 keeps it";
}

// As long as the second block is on its way, the parts after it have no parent here.
TEST_F(Received, the_first_block_stays_though_many_parts_land_before_the_second_block) {
  land(1, 0);
  for (uint64_t n = 3; n < 3 + 2 * kSlots; n += 2) land(n, n - 1);
  EXPECT_TRUE(kept(1));
}

TEST_F(Received, a_block_that_landed_before_its_parent_follows_it_in_the_end) {
  land(1, 0);
  land(3, 2);
  land(4, 3);
  land(2, 1);
  for (uint64_t n = 100; n < 104; ++n) take(n);
  manager_->host().received().release_all(manager_->host().next_tick());
  EXPECT_EQ(manager_->host().table().parent(slot_of(3)), slot_of(2));
  for (uint64_t n = 4; n > 0; --n) {
    EXPECT_TRUE(here(n)) << n;
    while (here(n)) ASSERT_EQ(need(manager_->host().table().counters().free + 1), Code::ok);
    if (n > 1) {
      EXPECT_TRUE(here(n - 1)) << "the end of a chain is the first to go: " << n;
    }
  }
}

// The parent named in a record is another node's claim and may be false.
TEST_F(Received, records_that_name_each_other_as_parents_keep_no_slots) {
  land(1, 3);
  land(2, 1);
  land(3, 2);
  land(4, 4);
  manager_->host().received().release_all(manager_->host().next_tick());
  EXPECT_EQ(need(kSlots), Code::ok);
}

class TakenAboveWriteBack : public Received {
 protected:
  void SetUp() override { make(AdmissionKind::on_eviction); }
};

TEST_F(TakenAboveWriteBack, a_store_at_the_quota_of_its_namespace_releases_none) {
  for (uint64_t n = 100; n < 100 + kSlots / 2; ++n) take(n);
  NamespaceOptions who;
  who.model = "limited";
  const auto limited = manager_->namespaces().open(std::move(who)).value();
  const uint64_t one = manager_->host().arena().slot_bytes();
  ASSERT_TRUE(manager_->namespaces().set_quota(*limited, one, block::OverQuota::evict).ok());
  SlotId used = kNoSlot;
  ASSERT_EQ(manager_->stack().allocate(limited->account(), {&used, 1}, nullptr), Code::ok);
  Code why = Code::ok;
  EXPECT_EQ(manager_->stack().slots_to_store_in(limited->account(), 1, why), 0U);
  EXPECT_EQ(why, Code::over_quota);
  for (uint64_t n = 100; n < 100 + kSlots / 2; ++n) EXPECT_TRUE(kept(n)) << n;
  manager_->host().release({&used, 1});
}

}  // namespace
}  // namespace kvbm::manager::received_blocks_test
