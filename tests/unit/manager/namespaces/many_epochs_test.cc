// More invalidated namespaces than a manager keeps epochs of, beside records of an earlier process.
#include <gtest/gtest.h>

#include "support/paced_tier.h"
#include "support/small_manager.h"

namespace kvbm::manager::many_epochs_test {
namespace {

NamespaceOptions who(const std::string& model) {
  NamespaceOptions out;
  out.model = model;
  return out;
}

class ManyEpochs : public test::SmallManager {
 protected:
  void SetUp() override { make(AdmissionKind::all); }
  void restart() {
    TearDown();
    ns_.reset();
    manager_.reset();
    make(AdmissionKind::all);
  }
};

// The epoch of such records is unknown.
TEST_F(ManyEpochs, rows_go_also_where_records_are_whose_namespace_nobody_has_opened) {
  {
    auto other = manager_->namespaces().open(who("not opened again"));
    family_ = other.value()->plan({}).value().family;
    put(2);
    flush();
    auto old = manager_->namespaces().open(who("invalidated before"));
    ASSERT_TRUE(manager_->namespaces().invalidate(*old.value()).ok());
  }
  restart();
  ASSERT_EQ(manager_->namespaces().epoch_rows().all, 1U);
  for (uint64_t n = 0; n < EpochTable::kRows + 500; ++n) {
    auto one = manager_->namespaces().open(who("model " + std::to_string(n)));
    ASSERT_TRUE(one.ok());
    ASSERT_TRUE(one.value()->plan({}).ok());
    const Status done = manager_->namespaces().invalidate(*one.value());
    ASSERT_TRUE(done.ok()) << n << ": " << done.message();
  }
  EXPECT_EQ(manager_->namespaces().open(who("invalidated before")).value()->epoch(), 1U)
      << "that one may be of its epoch 0";
}

// A manager that has sent epochs to other nodes, and may have to send them again.
class ManyEpochsOfAPool : public test::SmallManager {
 protected:
  class Others final : public test::PacedTier {
   public:
    using PacedTier::PacedTier;
    [[nodiscard]] std::string_view kind() const noexcept override { return "peers"; }
  };
  void adjust(Options& options) override {
    options.tiers.resize(with_disk_ ? 2 : 1);
    options.tiers.back().path.clear();
    options.tiers.back().admission = AdmissionKind::on_request;
    options.tiers.back().make = [this](TierIndex, FamilyTable&,
                                       tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
      return std::unique_ptr<tier::Tier>(std::make_unique<Others>(sim_, pace_));
    };
  }
  void restart() {
    TearDown();
    ns_.reset();
    manager_.reset();
    make(AdmissionKind::all);
  }
  void invalidate_many(uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) {
      auto one = manager_->namespaces().open(who("model " + std::to_string(i)));
      ASSERT_TRUE(one.ok());
      ASSERT_TRUE(one.value()->plan({}).ok());
      const uint64_t before = one.value()->epoch();
      const Status done = manager_->namespaces().invalidate(*one.value());
      ASSERT_TRUE(done.ok()) << i << ": " << done.message();
      ASSERT_EQ(one.value()->epoch(), before + 1);
    }
  }
  bool with_disk_ = false;
  std::shared_ptr<test::Pace> pace_ = std::make_shared<test::Pace>();
};

TEST_F(ManyEpochsOfAPool, a_hundred_thousand_namespaces_come_and_go) {
  make(AdmissionKind::on_request);
  invalidate_many(100'000);
  EXPECT_LE(manager_->namespaces().epoch_rows().all, EpochTable::kRows);
  for (uint64_t n = 0; n < 100'000; n += 997) {
    EXPECT_GE(manager_->namespaces().open(who("model " + std::to_string(n))).value()->epoch(), 1U) << n;
  }
}

TEST_F(ManyEpochsOfAPool, a_hundred_thousand_updates_of_one_namespace) {
  make(AdmissionKind::on_request);
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(manager_->namespaces().invalidate(*ns_).ok()) << i;
  EXPECT_EQ(ns_->epoch(), 100'000U);
  EXPECT_EQ(manager_->namespaces().epoch_rows().all, 1U);
}

// Each open namespace has a row.
TEST_F(ManyEpochsOfAPool, so_many_can_be_open) {
  make(AdmissionKind::on_request);
  std::vector<std::shared_ptr<Namespace>> open;
  for (size_t n = 0; n < EpochTable::kRows; ++n) {
    open.push_back(manager_->namespaces().open(who("open " + std::to_string(n))).value());
    ASSERT_TRUE(manager_->namespaces().invalidate(*open.back()).ok()) << n;
  }
  auto more = manager_->namespaces().open(who("one more")).value();
  EXPECT_EQ(manager_->namespaces().invalidate(*more).code(), Code::at_limit);
  EXPECT_EQ(more->epoch(), 0U);
  open.pop_back();
  EXPECT_TRUE(manager_->namespaces().invalidate(*more).ok());
}

// Blocks of an ended epoch stay unreachable on the disk, after other invalidations and after restarts.
TEST_F(ManyEpochsOfAPool, no_older_block_comes_back) {
  with_disk_ = true;
  make(AdmissionKind::all);
  const auto lies = [&](const char* model, uint64_t n, uint64_t epoch) {
    auto ns = manager_->namespaces().open(who(model)).value();
    EXPECT_EQ(ns->epoch(), epoch);
    const PartPlan plan = ns->plan({}).value();
    const Key k = key(n);
    tier::Found found;
    const Identity id{k, plan.family};
    manager_->lower().tier(1).find({&id, 1}, {&found, 1}, false);
    return found.present;
  };
  {
    auto old = manager_->namespaces().open(who("old")).value();
    family_ = old->plan({}).value().family;
    put(1);
    flush();
  }
  ASSERT_TRUE(lies("old", 1, 0));
  const NamespaceId base = Namespace::base_id_of(who("old"));
  // Another node invalidates a namespace that is closed here; its block stays on the disk.
  ASSERT_TRUE(manager_->namespaces().raise_epoch(base, 1).ok());
  restart();
  invalidate_many(EpochTable::kRows + 100);
  EXPECT_FALSE(lies("old", 1, manager_->namespaces().open(who("old")).value()->epoch()));
  EXPECT_GE(manager_->namespaces().open(who("old")).value()->epoch(), 1U);
  restart();
  EXPECT_GE(manager_->namespaces().open(who("old")).value()->epoch(), 1U);
  EXPECT_FALSE(lies("old", 1, manager_->namespaces().open(who("old")).value()->epoch()));
}

}  // namespace
}  // namespace kvbm::manager::many_epochs_test
