#include "manager/offload.h"

#include <gtest/gtest.h>

#include <cstring>

#include "manager/host_record.h"
#include "manager/manager.h"
#include "manager/move.h"
#include "support/small_manager.h"

namespace kvbm::manager {
namespace {

class Offloading : public test::SmallManager {
 protected:
  struct Outcome {
    bool done = false;
    Code status = Code::internal;
    uint64_t items_done = 0;
  };

  // As kvbm_manager_offload does.
  std::shared_ptr<Outcome> ask(const std::vector<uint64_t>& numbers) {
    std::vector<Key> keys;
    for (const uint64_t n : numbers) keys.push_back(key(n));
    auto out = std::make_shared<Outcome>();
    std::make_shared<OffloadOperation>(manager_, TierIndex{1}, family_, std::move(keys), kNever)
        ->start([out](const copy::Completion& completion) {
          EXPECT_FALSE(out->done);
          *out = {true, static_cast<Code>(completion.status), completion.items_done};
        });
    return out;
  }

  // Slots that can be had while nobody but the offloader holds any.
  uint32_t room() {
    std::vector<SlotId> taken;
    for (SlotId slot = kNoSlot; manager_->allocate(block::kSharedAccount, {&slot, 1}, nullptr) == Code::ok;) {
      taken.push_back(slot);
    }
    manager_->release(taken);
    return static_cast<uint32_t>(taken.size());
  }

  // Blocks of the first batches, which begin at once: a quarter of the host.
  static constexpr uint32_t in_hand() { return kSlots / 4; }

  // Records that were sent to the disk, which keeps one of two that are the same.
  uint64_t written() { return get(manager_->counters().tiers[1].stores); }
};

TEST_F(Offloading, what_admission_writes_is_not_written_again_for_who_asks_meanwhile) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < kSlots / 2; ++n) put(n);
  const auto one = ask({0, 1, 2, 3});
  const auto other = ask({3, 2, 1, 0});
  ASSERT_TRUE(sim_.run_until([&] { return one->done && other->done; }));
  EXPECT_EQ(one->status, Code::ok);
  EXPECT_EQ(one->items_done, 4U);
  EXPECT_EQ(other->status, Code::ok);
  EXPECT_EQ(other->items_done, 4U);
  flush();
  EXPECT_EQ(written(), 4U);
  EXPECT_EQ(manager_->tier_below(1).stats().records, 4U);
  const auto again = ask({0, 1, 2, 3});
  ASSERT_TRUE(sim_.run_until([&] { return again->done; }));
  EXPECT_EQ(again->items_done, 4U);
  EXPECT_EQ(written(), 4U);
}

TEST_F(Offloading, a_key_asked_for_twice_in_one_call_is_written_once) {
  make(AdmissionKind::on_request);
  put(1);
  put(2);
  const auto asked = ask({1, 2, 1, 1, 2});
  ASSERT_TRUE(sim_.run_until([&] { return asked->done; }));
  EXPECT_EQ(asked->status, Code::ok);
  EXPECT_EQ(asked->items_done, 5U);
  EXPECT_EQ(written(), 2U);
}

TEST_F(Offloading, uses_while_a_block_waits_or_is_written_do_not_queue_it_again) {
  make(AdmissionKind::after_uses);
  put(1);
  const SlotId slot = manager_->acquire_one(family_, key(1));
  ASSERT_NE(slot, kNoSlot);
  for (int i = 0; i < 20; ++i) manager_->used({&slot, 1});
  EXPECT_LE(manager_->offloader(1).queued_bytes(), manager_->arena().slot_bytes());
  manager_->release({&slot, 1});
  flush();
  EXPECT_EQ(written(), 1U);
}

TEST_F(Offloading, nothing_stays_held_when_several_waited_for_one_write) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  std::vector<std::shared_ptr<Outcome>> asked;
  for (int i = 0; i < 5; ++i) asked.push_back(ask({0, 1, 2, 3, 4, 5, 6, 7}));
  for (const auto& one : asked) ASSERT_TRUE(sim_.run_until([&] { return one->done; }));
  flush();
  EXPECT_EQ(written(), kSlots);
  std::vector<SlotId> all(manager_->arena().slots());
  EXPECT_EQ(manager_->allocate(block::kSharedAccount, all, nullptr), Code::ok);
  manager_->release(all);
}

TEST_F(Offloading, a_block_forgotten_while_it_is_written_is_over_for_all_who_asked) {
  make(AdmissionKind::all);
  put(1);
  const auto one = ask({1});
  const auto other = ask({1});
  const Key gone = key(1);
  EXPECT_EQ(manager_->drop(family_, {&gone, 1}), 1U);
  ASSERT_TRUE(sim_.run_until([&] { return one->done && other->done; }));
  flush();
  EXPECT_LE(written(), 1U);
  tier::Found found;
  const Identity id{gone, family_};
  manager_->tier_below(1).find({&id, 1}, {&found, 1}, false);
  EXPECT_FALSE(found.present);
}

TEST_F(Offloading, what_admission_alone_has_queued_gives_way_to_an_allocation) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  // Nothing has run: a quarter is in hand, the rest waits.
  EXPECT_EQ(room(), kSlots - in_hand());
  EXPECT_EQ(get(manager_->counters().offload_skipped), kSlots - in_hand());
  EXPECT_EQ(get(manager_->counters().tiers[1].skipped), kSlots - in_hand());
  flush();
  EXPECT_EQ(written(), in_hand());
  EXPECT_EQ(room(), kSlots);
  EXPECT_EQ(get(manager_->counters().offload_skipped), kSlots - in_hand());
}

TEST_F(Offloading, what_gave_way_and_was_not_evicted_is_written_in_its_turn) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  SlotId slot = kNoSlot;
  ASSERT_EQ(manager_->allocate(block::kSharedAccount, {&slot, 1}, nullptr), Code::ok);
  flush();
  EXPECT_EQ(written(), kSlots - 1);
  EXPECT_EQ(get(manager_->counters().offload_skipped), 1U);
  manager_->release({&slot, 1});
}

TEST_F(Offloading, it_gives_way_to_its_own_account_at_the_limit) {
  make(AdmissionKind::all);
  ASSERT_TRUE(manager_->set_quota(*ns_, kSlots / 2 * manager_->arena().slot_bytes(), block::OverQuota::evict).ok());
  for (uint64_t n = 0; n < 20; ++n) put(n);  // asserts that each has a slot
  flush();
  EXPECT_EQ(written() + get(manager_->counters().offload_skipped), 20U);
  EXPECT_GE(written(), in_hand());
}

TEST_F(Offloading, what_a_caller_asked_for_does_not_give_way) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  std::vector<SlotId> slots;
  for (uint64_t n = 3; n < kSlots; ++n) slots.push_back(manager_->acquire_one(family_, key(n)));
  size_t reported = 0;
  manager_->offloader(1).request(slots, std::make_shared<Offloader::Report>([&](size_t, Code code) {
    EXPECT_EQ(code, Code::ok);
    ++reported;
  }));
  EXPECT_LE(room(), kSlots - slots.size());
  flush();
  EXPECT_EQ(reported, slots.size());
  EXPECT_GE(written(), slots.size());
  EXPECT_EQ(room(), kSlots);
}

TEST_F(Offloading, what_a_flush_waits_for_does_not_give_way) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < kSlots / 2; ++n) put(n);
  bool flushed = false;
  manager_->flush([&] { flushed = true; });
  EXPECT_EQ(room(), kSlots / 2);
  ASSERT_TRUE(sim_.run_until([&] { return flushed; }));
  EXPECT_EQ(written(), kSlots / 2);
  EXPECT_EQ(get(manager_->counters().offload_skipped), 0U);
}

TEST_F(Offloading, a_burst_is_not_refused_and_the_disk_gets_what_it_can_take) {
  for (const AdmissionKind kind : {AdmissionKind::all, AdmissionKind::on_eviction}) {
    SCOPED_TRACE(static_cast<int>(kind));
    TearDown();
    ns_ = nullptr;
    manager_ = nullptr;
    make(kind);
    uint64_t before = 0;
    uint64_t grew = 0;
    for (uint64_t n = 0; n < 200; ++n) {
      put(n);  // asserts that there is room
      for (int i = 0; i < 3; ++i) sim_.step();
      if (n % 20 == 19) grew += written() > before ? 1 : 0, before = written();
    }
    EXPECT_EQ(grew, 10U);
    flush();
    const uint64_t skipped = get(manager_->counters().offload_skipped);
    EXPECT_GT(skipped, 0U);
    const uint64_t left = 200 - skipped;
    EXPECT_LE(written(), left);
    EXPECT_LE(left, written() + (kind == AdmissionKind::all ? 0 : kSlots));
  }
}

TEST_F(Offloading, who_waits_for_room_is_told_when_a_write_ends) {
  make(AdmissionKind::all);
  int told = 0;
  const auto call = std::make_shared<UniqueFunction<void()>>([&] { ++told; });
  EXPECT_FALSE(manager_->when_room_may_come(block::kSharedAccount, Code::no_room, call));
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  EXPECT_FALSE(manager_->when_room_may_come(block::kSharedAccount, Code::over_quota, call));
  ASSERT_TRUE(manager_->when_room_may_come(block::kSharedAccount, Code::no_room, call));
  ASSERT_TRUE(sim_.run_until([&] { return told != 0; }));
  flush();
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace kvbm::manager
