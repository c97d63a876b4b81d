#include "cluster/link/staging_pool.h"

#include <gtest/gtest.h>

namespace kvbm::cluster::staging_pool_test {
namespace {

TEST(StagingPool, gives_aligned_memory_within_its_limit) {
  StagingPool pool(64 << 10);
  const MutableBytes a = pool.take(5000);
  const MutableBytes b = pool.take(48 << 10);
  ASSERT_EQ(a.size(), 5000U);
  ASSERT_EQ(b.size(), size_t{48} << 10);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % kIoAlign, 0U);
  EXPECT_EQ(pool.used(), (8 << 10) + (48 << 10));
  EXPECT_TRUE(pool.take(16 << 10).empty()) << "beyond the limit";
  pool.give_back(b);
  const MutableBytes c = pool.take(16 << 10);
  EXPECT_EQ(c.size(), size_t{16} << 10) << "idle memory of another size gives way";
  pool.give_back(a);
  pool.give_back(c);
  EXPECT_EQ(pool.used(), 0U);
}

TEST(StagingPool, gives_the_same_memory_again) {
  StagingPool pool(1 << 20);
  const MutableBytes a = pool.take(10'000);
  pool.give_back(a);
  const MutableBytes b = pool.take(9'000);  // as many pages as `a`
  EXPECT_EQ(a.data(), b.data());
  pool.give_back(b);
}

TEST(StagingPool, says_what_can_never_be_taken) {
  StagingPool pool(16 << 10);
  EXPECT_TRUE(pool.fits(16 << 10));
  EXPECT_FALSE(pool.fits((16 << 10) + 1));
  EXPECT_TRUE(pool.take((16 << 10) + 1).empty());
}

}  // namespace
}  // namespace kvbm::cluster::staging_pool_test
