#include "tier/disk/inspect.h"

#include "support/disk_world.h"

namespace kvbm::test {
namespace {

TEST(DiskInspect, counts_records_by_segment_and_finds_damage) {
  DiskWorld w(1);
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 60; ++n) ASSERT_EQ(w.put_now(n, 8192, true), Code::ok);
  auto live = tier::disk::inspect(w.disk, "/tier", {}, {}, {});
  ASSERT_TRUE(live.ok());
  EXPECT_TRUE(live.value().in_use);
  EXPECT_EQ(live.value().records, 60U);
  ASSERT_TRUE(w.close());
  ASSERT_TRUE(w.disk.flip_bit("/tier", "segment-000001.kv", (4096 + 4096 + 100) * 8));
  uint64_t damaged = 0;
  auto after = tier::disk::inspect(
      w.disk, "/tier", {}, {},
      [&](const tier::disk::SegmentReport&, const tier::disk::Row&, bool bad) { damaged += bad ? 1 : 0; });
  ASSERT_TRUE(after.ok());
  EXPECT_FALSE(after.value().in_use);
  EXPECT_EQ(after.value().records, 60U);
  EXPECT_EQ(after.value().damaged, 1U);
  EXPECT_EQ(damaged, 1U);
  EXPECT_EQ(after.value().segments.at(0).state, "closed");
}

TEST(DiskInspect, says_that_a_directory_is_no_tier) {
  DiskWorld w(2);
  ASSERT_TRUE(w.disk.open_directory("/other", true).ok());
  EXPECT_EQ(tier::disk::inspect(w.disk, "/other", {}, {}, {}).status().code(), Code::miss);
}

}  // namespace
}  // namespace kvbm::test
