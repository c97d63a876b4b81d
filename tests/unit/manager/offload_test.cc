#include "manager/offload.h"

#include <gtest/gtest.h>

#include <cstring>

#include "manager/host_record.h"
#include "manager/manager.h"
#include "manager/move.h"
#include "policy/hints.h"
#include "support/paced_tier.h"
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

// From the call on: what is stored after it waits, or is refused, and evicts none of them.
TEST_F(Offloading, what_is_asked_for_stays_until_its_turn_comes) {
  make(AdmissionKind::on_request);
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  const auto asked = ask({0, 1, 2, 3});
  for (uint64_t n = 100; n < 100 + kSlots - 4; ++n) put(n);  // before the executor had a turn
  ASSERT_TRUE(sim_.run_until([&] { return asked->done; }));
  EXPECT_EQ(asked->status, Code::ok);
  EXPECT_EQ(asked->items_done, 4U);
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

TEST_F(Offloading, a_tier_that_writes_nothing_yet_does_not_own_a_small_host) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < 5 * kSlots; ++n) put(n);  // asserts that there is room
  EXPECT_LE(manager_->offloading_blocks(), kSlots * 3 / 4);
  flush();
  EXPECT_EQ(written() + get(manager_->counters().offload_skipped), 5 * kSlots);
  EXPECT_GE(written(), kSlots / 2);
}

class OffloadingSlowly : public Offloading {
 protected:
  void adjust(Options& options) override {
    options.tiers[0].path.clear();
    options.tiers[0].make = [this](TierIndex, FamilyTable&,
                                   tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
      return std::unique_ptr<tier::Tier>(std::make_unique<test::PacedTier>(sim_, pace_));
    };
    pace_->keeps_puts = true;
  }
  std::shared_ptr<test::Pace> pace_ = std::make_shared<test::Pace>();
};

TEST_F(OffloadingSlowly, a_hint_goes_down_with_its_block) {
  make(AdmissionKind::on_request);
  for (uint64_t n = 0; n < 3; ++n) put(n);
  const Key kept = key(1);
  const Key once = key(2);
  manager_->hint(family_, {&kept, 1}, policy::kHintKeep);
  manager_->hint(family_, {&once, 1}, policy::kHintOneShot);
  const auto asked = ask({0, 1, 2});
  std::vector<uint8_t> priorities;
  while (!asked->done) {
    ASSERT_TRUE(sim_.run_until([&] { return asked->done || !pace_->kept.empty(); }));
    if (pace_->kept.empty()) break;
    for (const tier::PutItem& item : pace_->kept.front()->items) priorities.push_back(item.priority);
    pace_->answer_put();
  }
  EXPECT_EQ(priorities, (std::vector<uint8_t>{policy::kHintNormal, policy::kHintKeep, policy::kHintOneShot}));
}

class OffloadingTwice : public Offloading {
 protected:
  void adjust(Options& options) override {
    options.tiers.push_back(options.tiers[0]);
    options.tiers[1].path = "/other";
  }
};

TEST_F(OffloadingTwice, nor_do_two_tiers_together) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < 5 * kSlots; ++n) put(n);
  EXPECT_LE(manager_->offloading_blocks(), kSlots * 3 / 4);
  flush();
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

}  // namespace
}  // namespace kvbm::manager
