#include "manager/operation/lend.h"

#include <gtest/gtest.h>

#include <cstring>

#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"
#include "manager/host/host_record.h"
#include "manager/lower/offload.h"
#include "manager/manager.h"
#include "support/paced_tier.h"
#include "support/small_manager.h"

namespace kvbm::manager::lend_test {
namespace {

class Lending : public test::SmallManager {
 protected:
  void SetUp() override { make(AdmissionKind::all); }

  // Evicts all blocks from the host.
  void empty_host() {
    std::vector<SlotId> all(manager_->host().arena().slots());
    ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, all, nullptr), Code::ok);
    manager_->host().release(all);
  }

  std::vector<Lent> ask(const std::vector<uint64_t>& numbers, uint64_t within_ns = 1'000'000'000) {
    std::vector<Identity> ids;
    for (const uint64_t n : numbers) ids.push_back({key(n), family_});
    std::vector<Lent> out;
    bool done = false;
    lend(manager_->stack().keep(), std::move(ids), sim_.clock().now_ns() + within_ns, [&](std::vector<Lent> lent) {
      EXPECT_FALSE(done);
      out = std::move(lent);
      done = true;
    });
    EXPECT_TRUE(sim_.run_until([&] { return done; }));
    return out;
  }

  void give_back(std::vector<Lent>& lent) {
    for (const Lent& one : lent) {
      if (one.slot != kNoSlot) manager_->host().release({&one.slot, 1});
    }
    lent.clear();
  }

  // Expects that head and payload alone prove that this is record n.
  void expect_record(const Lent& lent, uint64_t n, uint64_t bytes = kBlock) {
    ASSERT_EQ(lent.code, Code::ok);
    const auto view = codec::HeadView::parse(lent.head);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view.value().header().key, key(n));
    ASSERT_EQ(lent.payload.size(), bytes);
    for (uint32_t i = 0; i < view.value().header().leaf_count; ++i) {
      const codec::Leaf leaf = view.value().leaf(i);
      EXPECT_EQ(codec::leaf_hash(lent.payload.subspan(leaf.offset, leaf.stored_bytes)), leaf.hash);
    }
    for (const std::byte b : lent.payload) ASSERT_EQ(b, static_cast<std::byte>(n));
  }
};

TEST_F(Lending, gives_host_records_in_place_with_a_head_that_proves_them) {
  put(1);
  put(2, 100);
  auto lent = ask({1, 2});
  ASSERT_EQ(lent.size(), 2U);
  expect_record(lent[0], 1);
  expect_record(lent[1], 2, 100);
  EXPECT_EQ(lent[0].payload.data(), manager_->host().arena().payload(lent[0].slot).data());
  give_back(lent);
}

TEST_F(Lending, what_is_lent_stays_until_it_is_given_back) {
  put(1);
  flush();
  auto lent = ask({1});
  std::vector<SlotId> all(manager_->host().arena().slots());
  EXPECT_EQ(manager_->stack().allocate(block::kSharedAccount, all, nullptr), Code::no_room);
  expect_record(lent[0], 1);
  give_back(lent);
  EXPECT_EQ(manager_->stack().allocate(block::kSharedAccount, all, nullptr), Code::ok);
  manager_->host().release(all);
}

TEST_F(Lending, what_lies_below_comes_up_and_what_is_nowhere_is_a_miss) {
  put(1);
  put(2);
  flush();
  empty_host();
  put(3);
  auto lent = ask({1, 9, 3, 2});
  expect_record(lent[0], 1);
  EXPECT_EQ(lent[1].code, Code::miss);
  EXPECT_EQ(lent[1].slot, kNoSlot);
  expect_record(lent[2], 3);
  expect_record(lent[3], 2);
  give_back(lent);
}

TEST_F(Lending, finds_in_every_tier_without_a_use) {
  put(1);
  flush();
  empty_host();
  put(2);
  const std::vector<Identity> ids{{key(1), family_}, {key(2), family_}, {key(3), family_}};
  std::vector<tier::Found> found(3);
  std::vector<TierIndex> tiers(3);
  find_to_lend(manager_->lower(), ids, found, tiers);
  EXPECT_EQ(tiers, (std::vector<TierIndex>{1, 0, kNoTier}));
  EXPECT_EQ(found[0].payload_bytes, kBlock);
  EXPECT_EQ(found[1].payload_bytes, kBlock);
  EXPECT_FALSE(found[2].present);
  auto lent = ask({1, 2});
  EXPECT_EQ(lent[0].head.size(), found[0].head_bytes);
  EXPECT_EQ(lent[1].head.size(), found[1].head_bytes) << "before the head was made";
  find_to_lend(manager_->lower(), ids, found, tiers);
  EXPECT_EQ(lent[1].head.size(), found[1].head_bytes) << "and after";
  give_back(lent);
}

TEST_F(Lending, a_record_below_that_cannot_be_read_is_not_lent) {
  put(1);
  flush();
  empty_host();
  disk_.faults.short_read = 1;
  auto lent = ask({1});
  EXPECT_TRUE(lent[0].code == Code::damaged || lent[0].code == Code::io_error) << static_cast<int>(lent[0].code);
  EXPECT_EQ(lent[0].slot, kNoSlot);
  disk_.faults.short_read = 0;
}

TEST_F(Lending, a_loan_that_nobody_waits_for_any_more_is_not_begun) {
  put(1);
  flush();
  empty_host();
  const uint64_t reads = disk_.count(test::SimDisk::Op::read);
  auto lent = ask({1}, 0);
  EXPECT_EQ(lent[0].code, Code::deadline);
  EXPECT_EQ(lent[0].slot, kNoSlot);
  EXPECT_EQ(disk_.count(test::SimDisk::Op::read), reads);
}

TEST_F(Lending, without_a_slot_for_them_records_from_below_are_lent_beside_the_host_within_its_limit) {
  constexpr uint32_t kBeside = kSlots / 2;
  std::vector<uint64_t> numbers;
  for (uint64_t n = 0; n <= kBeside; ++n) {
    put(n);
    numbers.push_back(n);
  }
  flush();
  std::vector<SlotId> all(kSlots);
  ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, all, nullptr), Code::ok);
  auto lent = ask(numbers);
  for (uint64_t n = 0; n < kBeside; ++n) {
    expect_record(lent[n], n);
    EXPECT_EQ(lent[n].slot, kNoSlot);
  }
  EXPECT_EQ(lent[kBeside].code, Code::no_room);
  give_back(lent);
  EXPECT_EQ(manager_->host().landing_staging().used_bytes(), 0U);
  manager_->host().release(all);
}

// The store of the block has been reported to the engine.
TEST_F(Lending, what_waits_to_be_written_below_does_not_give_way_to_a_loan) {
  put(1);
  flush();
  empty_host();
  std::vector<Identity> ids;
  for (uint64_t n = 8; n < 16; ++n) {
    put(n);
    ids.push_back({key(n), family_});
  }
  std::vector<SlotId> held;  // slots that the offloader does not hold
  for (const Identity& id : ids) {
    const SlotId slot = manager_->host().acquire_one(id.family, id.key);
    ASSERT_NE(slot, kNoSlot);
    if (manager_->host().table().info(slot).references == 1) {
      held.push_back(slot);
    } else {
      manager_->host().release({&slot, 1});
    }
  }
  ASSERT_LT(held.size(), ids.size());
  auto lent = ask({1});
  expect_record(lent[0], 1);
  manager_->host().release(held);
  flush();
  std::vector<tier::Found> found(ids.size());
  std::vector<TierIndex> tiers(ids.size());
  find_to_lend(manager_->lower(), ids, found, tiers);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_NE(tiers[i], kNoTier) << 8 + i;
  give_back(lent);
}

// Over the disk is a second tier, which gets only what the host evicts and takes none of it: a pool of full nodes.
class LendingInAFullPool : public Lending {
 protected:
  void SetUp() override { make(AdmissionKind::on_request); }
  void adjust(Options& options) override {
    TierOptions second;
    second.admission = AdmissionKind::on_eviction;
    second.make = [this](TierIndex, FamilyTable&, tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
      pace_->refuses = Code::no_room;
      return std::unique_ptr<tier::Tier>(std::make_unique<test::PacedTier>(sim_, pace_));
    };
    options.tiers.push_back(std::move(second));
  }
  const std::shared_ptr<test::Pace> pace_ = std::make_shared<test::Pace>();
};

TEST_F(LendingInAFullPool, a_loan_takes_no_block_that_is_nowhere_else_and_is_given_all_the_same) {
  put(1);
  const SlotId slot = manager_->host().acquire_one(family_, key(1));
  ASSERT_NE(slot, kNoSlot);
  manager_->lower().offloader(1).request({slot}, nullptr);
  flush();
  empty_host();
  for (uint64_t n = 8; n < 8 + kSlots; ++n) put(n);
  for (int i = 0; i < 3; ++i) {
    auto lent = ask({1});
    expect_record(lent[0], 1);
    give_back(lent);
  }
  for (uint64_t n = 8; n < 8 + kSlots; ++n) {
    const SlotId there = manager_->host().acquire_one(family_, key(n));
    EXPECT_NE(there, kNoSlot) << n;
    if (there != kNoSlot) manager_->host().release({&there, 1});
  }
}

}  // namespace
}  // namespace kvbm::manager::lend_test
