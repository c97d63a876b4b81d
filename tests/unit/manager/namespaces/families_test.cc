// Namespaces, epochs and peers' families that come and go, against a manager over a disk: what nothing uses leaves
// nothing behind, and what has blocks anywhere is found as if nothing had come and gone.
#include <gtest/gtest.h>

#include <set>

#include "manager/lower/coding_terms.h"
#include "support/small_manager.h"

namespace kvbm::manager::families_test {
namespace {

NamespaceOptions who(const std::string& model) {
  NamespaceOptions out;
  out.model = model;
  return out;
}

class Families : public test::SmallManager {
 protected:
  void SetUp() override { make(AdmissionKind::all); }

  // Opens tenants' namespaces, uses a part in each, and closes them.
  void come_and_go(uint64_t first, uint64_t n) {
    for (uint64_t i = first; i < first + n; ++i) {
      auto one = manager_->namespaces().open(who("tenant " + std::to_string(i)));
      ASSERT_TRUE(one.ok());
      const auto plan = one.value()->plan({});
      ASSERT_TRUE(plan.ok()) << i << ": " << plan.status().message();
    }
  }
  bool in_host(FamilyId family, uint64_t n) {
    const SlotId slot = manager_->host().acquire_one(family, key(n));
    if (slot == kNoSlot) return false;
    const bool right =
        std::all_of(manager_->host().arena().payload(slot).begin(), manager_->host().arena().payload(slot).end(),
                    [n](std::byte b) { return b == static_cast<std::byte>(n); });
    manager_->host().release({&slot, 1});
    return right;
  }
  bool on_disk(FamilyId family, uint64_t n) {
    const Identity id{key(n), family};
    tier::Found found;
    manager_->lower().tier(1).find({&id, 1}, {&found, 1}, false);
    return found.present;
  }
  void put_of(const std::string& model, uint64_t n) {
    auto one = manager_->namespaces().open(who(model));
    ASSERT_TRUE(one.ok());
    const auto plan = one.value()->plan({});
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    family_ = plan.value().family;
    put(n);
  }
};

TEST_F(Families, a_hundred_thousand_namespaces_one_after_the_other_leave_nothing) {
  come_and_go(0, 100'000);
  EXPECT_LE(manager_->families().size(), 3 * FamilyTable::kStep);
  EXPECT_LE(manager_->coding_terms()->namespaces(), 3 * FamilyTable::kStep);
  EXPECT_LE(manager_->namespaces().known().size(), 256U);
  put(1);
  EXPECT_TRUE(in_host(family_, 1)) << "the namespace that was open all the time";
}

TEST_F(Families, blocks_of_a_closed_namespace_are_found_again_wherever_they_are) {
  put_of("closed", 7);
  const FamilyId closed = family_;
  come_and_go(0, 5000);
  ASSERT_EQ(manager_->namespaces().open(who("closed")).value()->plan({}).value().family, closed);
  EXPECT_TRUE(in_host(closed, 7));
  flush();
  const Key k = key(7);
  manager_->host().table().erase(closed, {&k, 1});  // out of the host
  EXPECT_FALSE(in_host(closed, 7));
  ASSERT_TRUE(on_disk(closed, 7));
  come_and_go(5000, 5000);
  ASSERT_EQ(manager_->namespaces().open(who("closed")).value()->plan({}).value().family, closed);
  EXPECT_TRUE(on_disk(closed, 7));
  // The family's last record is erased, so its id is released. A new id must not find the old blocks.
  ASSERT_TRUE(manager_->namespaces().reset(*manager_->namespaces().open(who("closed")).value()).ok());
  come_and_go(10'000, 5000);
  EXPECT_FALSE(manager_->families().has(closed));
  EXPECT_EQ(manager_->families().get(closed), FamilyTable::no_family());
  const FamilyId anew = manager_->namespaces().open(who("closed")).value()->plan({}).value().family;
  EXPECT_NE(anew, closed);
  EXPECT_FALSE(in_host(anew, 7));
  EXPECT_FALSE(on_disk(anew, 7));
}

// Reinforcement learning invalidates at every step. More of them than a disk has tombstones, beside a block that stays.
TEST_F(Families, weights_are_updated_again_and_again_with_stores_between) {
  put_of("cold", 9);
  const FamilyId cold = family_;
  flush();
  for (uint64_t step = 0; step < 5000; ++step) {
    const auto plan = ns_->plan({});
    ASSERT_TRUE(plan.ok()) << step << ": " << plan.status().message();
    const FamilyId family = plan.value().family;
    ASSERT_FALSE(in_host(family, 3)) << "of an epoch that has ended";
    ASSERT_FALSE(on_disk(family, 3));
    if (step % 2 == 0) {
      family_ = family;
      put(3);
      flush();
      ASSERT_TRUE(in_host(family, 3));
      ASSERT_TRUE(on_disk(family, 3));
    }
    ASSERT_TRUE(manager_->namespaces().invalidate(*ns_).ok()) << step;
    sim_.run();
  }
  EXPECT_EQ(ns_->epoch(), 5000U);
  EXPECT_LE(manager_->families().size(), 3 * FamilyTable::kStep);
  EXPECT_EQ(manager_->namespaces().epoch_rows().all, 1U);
  EXPECT_TRUE(on_disk(cold, 9));
  // The written state agrees with the reported one: no block returns after a restart.
  const NamespaceId base = ns_->base_id();
  TearDown();
  ns_.reset();
  manager_.reset();
  make(AdmissionKind::all);
  EXPECT_EQ(ns_->base_id(), base);
  EXPECT_EQ(ns_->epoch(), 5000U);
  EXPECT_FALSE(on_disk(ns_->plan({}).value().family, 3));
  EXPECT_TRUE(on_disk(manager_->namespaces().open(who("cold")).value()->plan({}).value().family, 9));
}

// Each reset leaves a tombstone as long as a segment still has records that it erased.
TEST_F(Families, more_namespaces_are_reset_than_a_disk_has_tombstones) {
  put_of("cold", 9);
  flush();
  for (uint64_t n = 0; n < 3000; ++n) {
    auto one = manager_->namespaces().open(who("reset " + std::to_string(n)));
    ASSERT_TRUE(one.ok());
    family_ = one.value()->plan({}).value().family;
    put(3);
    flush();
    const Status reset = manager_->namespaces().reset(*one.value());
    ASSERT_TRUE(reset.ok()) << n << ": " << reset.message();
    ASSERT_FALSE(in_host(family_, 3));
    ASSERT_FALSE(on_disk(family_, 3));
    sim_.run();
  }
}

TEST_F(Families, what_peers_named_comes_back_to_peers) {
  const auto peer = std::make_shared<std::atomic<uint32_t>>(0);
  uint64_t refused = 0;
  for (uint64_t n = 0; n < 100'000; ++n) {
    Family family;
    std::memcpy(family.ns.bytes.data(), &n, sizeof n);
    family.ns.bytes[15] = 2;
    refused += manager_->families().intern_foreign(family, peer, 4096).ok() ? 0 : 1;
    if (n % 64 == 63) sim_.run();  // as messages come
  }
  EXPECT_EQ(refused, 0U);
  EXPECT_LE(manager_->families().foreign(), 3 * FamilyTable::kForeignStep);
}

}  // namespace
}  // namespace kvbm::manager::families_test
