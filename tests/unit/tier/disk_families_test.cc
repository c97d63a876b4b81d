// More families than a disk tier has tombstones for come, go and are forgotten.
#include <gtest/gtest.h>

#include "support/disk_world.h"
#include "tier/disk/disk_tier.h"

namespace kvbm::test::disk_families_test {
namespace {

// A record of a family, into the tier and acknowledged.
Code put_of(DiskWorld& w, const Family& family, uint64_t n) {
  const TestRecord record(n, 4096, family);
  auto batch = std::make_unique<tier::PutBatch>();
  tier::PutItem item;
  item.id = {record.key, w.families.intern(family).value()};
  item.head = record.head;
  item.payload = record.payload();
  batch->items.push_back(item);
  Code code = Code::internal;
  bool done = false;
  batch->done = [&](tier::PutBatch& b) {
    code = b.status[0];
    done = true;
  };
  w.tier->put(std::move(batch));
  EXPECT_TRUE(w.sim.run_until([&] { return done; }));
  return code;
}

// More families are erased than the superblock has tombstones. Each leaves a live record in its segment, so no segment
// is freed by itself.
TEST(DiskFamilies, forgets_more_families_than_it_has_tombstones_for) {
  DiskWorld w(31, uint64_t{3000} * (64 << 10) + (1 << 20), 64 << 10);
  ASSERT_TRUE(w.open().ok());
  constexpr uint64_t kFamilies = 2500;
  uint64_t forgotten = 0;
  for (uint64_t n = 1; n <= kFamilies; ++n) {
    Family family = family_of(1);
    family.geometry = 1000 + n;
    ASSERT_EQ(put_of(w, family, n), Code::ok) << n;
    ASSERT_EQ(w.put_now(n, 4096, false, 2), Code::ok) << n;
    const Status status = w.tier->erase_family(w.families.intern(family).value());
    ASSERT_TRUE(status.ok()) << n << ": " << status.message();
    w.sim.run();
  }
  w.power_cut();
  ASSERT_TRUE(w.open().ok());
  uint64_t alive = 0;
  for (uint64_t n = 1; n <= kFamilies; ++n) {
    Family family = family_of(1);
    family.geometry = 1000 + n;
    const Identity gone{key_of(n), w.families.intern(family).value()};
    tier::Found found;
    w.tier->find({&gone, 1}, {&found, 1}, false);
    forgotten += found.present ? 0 : 1;
    alive += w.present(n, 2) ? 1 : 0;
  }
  EXPECT_EQ(forgotten, kFamilies);
  EXPECT_GT(alive, kFamilies * 9 / 10) << "those that are alive are carried on";
}

// All families at once, as at a reset. A family that is already erased has an earlier tombstone.
TEST(DiskFamilies, forgets_all_families_at_once_however_many_there_are) {
  DiskWorld w(33, uint64_t{64} << 20);
  ASSERT_TRUE(w.open().ok());
  constexpr uint64_t kFamilies = 3000;
  const auto nth = [](uint64_t n) {
    Family family = family_of(1);
    family.geometry = 1000 + n;
    return family;
  };
  std::vector<FamilyId> all;
  for (uint64_t n = 1; n <= kFamilies; ++n) {
    ASSERT_EQ(put_of(w, nth(n), n), Code::ok) << n;
    if (n > 1) all.push_back(w.families.intern(nth(n)).value());
  }
  ASSERT_TRUE(w.tier->erase_family(w.families.intern(nth(1)).value()).ok());
  const auto present = [&](uint64_t n) {
    const Identity id{key_of(n), w.families.intern(nth(n)).value()};
    tier::Found found;
    w.tier->find({&id, 1}, {&found, 1}, false);
    return found.present;
  };
  // With one more tombstone that must stay there would be too many. Then the reset is refused with an error.
  ASSERT_EQ(w.put_now(7, 4096, false, 2), Code::ok);
  EXPECT_EQ(w.tier->erase_families(all).code(), Code::at_limit);
  EXPECT_FALSE(present(2)) << "here it is forgotten all the same";
  for (uint64_t n = 2; n <= kFamilies; ++n) ASSERT_EQ(put_of(w, nth(n), n), Code::ok) << n;
  all.push_back(w.id(7, 2).family);
  const Status erased = w.tier->erase_families(all);
  ASSERT_TRUE(erased.ok()) << erased.message();
  ASSERT_EQ(w.put_now(9, 4096, true, 2), Code::ok);  // of a family that was forgotten, and comes after that
  w.power_cut();
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= kFamilies; ++n) ASSERT_FALSE(present(n)) << n;
  EXPECT_FALSE(w.present(7, 2));
  EXPECT_TRUE(w.present(9, 2));
}

}  // namespace
}  // namespace kvbm::test::disk_families_test
