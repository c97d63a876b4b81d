// HeldByPeers: what links hold together, in equal parts.
#include <gtest/gtest.h>

#include "cluster/link/link_types.h"

namespace kvbm::cluster::held_by_peers_test {
namespace {

TEST(HeldByPeers, links_have_equal_parts_of_what_they_hold_together) {
  HeldByPeers held;
  EXPECT_EQ(held.room(8, 0), 8U);
  held.take(0, 8);  // the first has all
  EXPECT_EQ(held.room(8, 8), 0U);
  EXPECT_EQ(held.room(8, 0), 0U) << "never more than all";
  held.give_back(5, 3);
  EXPECT_EQ(held.room(8, 5), 3U);
  EXPECT_EQ(held.room(8, 0), 3U);
  held.take(0, 3);  // the second
  held.give_back(2, 3);
  EXPECT_EQ(held.room(8, 3), 1U) << "half of it";
  EXPECT_EQ(held.room(8, 2), 2U);
  held.give_back(0, 2);
  held.give_back(0, 3);
  EXPECT_EQ(held.held(), 0U);
  EXPECT_EQ(held.room(8, 0), 8U);
}

}  // namespace
}  // namespace kvbm::cluster::held_by_peers_test
