// Refuses memory to calls that pin blocks, or that release something: nothing may stay held that no caller knows of.
#include <gtest/gtest.h>

#include <new>

#include "base/io/file.h"
#include "cluster/link/staging_pool.h"
#include "manager/stack/pins.h"
#include "support/refusing_allocator.h"
#include "support/small_manager.h"

namespace kvbm::test::release_memory_test {
namespace {

// More than the allocations of any of these calls.
constexpr uint64_t kSites = 64;

// Makes a call in which allocation number `site` is refused. Returns whether it passed that on.
template <class Fn>
bool refused(uint64_t site, Fn&& call) {
  fault.where = Place::caller;
  fault.seen = 0;
  fault.fired = false;
  fault.at = site;
  fault.counting = true;
  bool thrown = false;
  try {
    const InPlace caller(Place::caller);
    call();
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  fault.counting = false;
  return thrown;
}

class PinMemory : public SmallManager {
 protected:
  void SetUp() override {
    make(manager::AdmissionKind::on_request);
    put(1);
  }
  // Pins block 1 for owner 7.
  void pin(uint64_t deadline_ns) {
    const Key k = key(1);
    block::PinId id = 0;
    size_t count = 0;
    (void)manager_->pins().pin(family_, {&k, 1}, 7, deadline_ns, id, count);
  }
  [[nodiscard]] uint32_t pins() {
    const SlotId slot = manager_->host().acquire_one(family_, key(1));
    const uint32_t n = manager_->host().table().info(slot).pins;
    manager_->host().release({&slot, 1});
    return n;
  }
};

TEST_F(PinMemory, a_pin_that_was_refused_is_none_and_any_other_ends_at_its_deadline) {
  bool all = false;
  for (uint64_t site = 1; site <= kSites && !all; ++site) {
    SCOPED_TRACE(site);
    const uint64_t deadline = sim_.clock().now_ns() + 1'000'000;
    const bool thrown = refused(site, [&] { pin(deadline); });
    EXPECT_EQ(pins(), thrown ? 0U : 1U);
    sim_.run_for(2'000'000);
    EXPECT_EQ(pins(), 0U);
    all = !fault.fired;
  }
  EXPECT_TRUE(all);
}

TEST_F(PinMemory, the_end_of_an_owner_ends_all_of_its_pins) {
  bool all = false;
  for (uint64_t site = 1; site <= kSites && !all; ++site) {
    SCOPED_TRACE(site);
    for (int i = 0; i < 3; ++i) pin(kNever);
    (void)refused(site, [&] { manager_->pins().unpin_owner(7); });
    all = !fault.fired;
    manager_->pins().unpin_owner(7);
    EXPECT_EQ(pins(), 0U);
  }
  EXPECT_TRUE(all);
}

TEST(StagingMemory, what_is_given_back_is_free_again) {
  constexpr uint64_t kLimit = 4 * kIoAlign;
  bool all = false;
  for (uint64_t site = 1; site <= kSites && !all; ++site) {
    SCOPED_TRACE(site);
    cluster::StagingPool pool(kLimit);
    const MutableBytes buffer = pool.take(kIoAlign);
    ASSERT_FALSE(buffer.empty());
    ASSERT_FALSE(refused(site, [&] { pool.give_back(buffer); }));
    all = !fault.fired;
    EXPECT_EQ(pool.used(), 0U);
    const MutableBytes whole = pool.take(kLimit);
    EXPECT_EQ(whole.size(), kLimit);
    pool.give_back(whole);
  }
  EXPECT_TRUE(all);
}

}  // namespace
}  // namespace kvbm::test::release_memory_test
