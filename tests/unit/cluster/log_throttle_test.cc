#include "cluster/mesh/log_throttle.h"

#include <gtest/gtest.h>

namespace kvbm::cluster::log_throttle_test {
namespace {

constexpr uint64_t kMinute = LogThrottle::kFirstNs;

TEST(LogThrottle, the_same_reason_is_said_once_and_then_at_growing_intervals) {
  LogThrottle throttle;
  size_t lines = 0;
  // Reports a failure every 800 ms for an hour, like a node that is dialled in vain.
  for (uint64_t now = 1; now < 60 * kMinute; now += 800'000'000) {
    lines += throttle.failed("refused", now).empty() ? 0 : 1;
  }
  EXPECT_EQ(lines, 6U);  // at once, and after 1, 3, 7, 15 and 31 minutes
}

TEST(LogThrottle, a_summary_says_how_often_it_failed_meanwhile) {
  LogThrottle throttle;
  EXPECT_EQ(throttle.failed("refused", 0), "refused");
  EXPECT_EQ(throttle.failed("refused", 1), "");
  EXPECT_EQ(throttle.failed("refused", kMinute), "refused (the same 2 times more)");
  EXPECT_EQ(throttle.failed("refused", 2 * kMinute), "");
  EXPECT_EQ(throttle.failed("refused", 3 * kMinute), "refused (the same 4 times more)");
}

TEST(LogThrottle, another_reason_and_a_failure_after_a_success_are_news) {
  LogThrottle throttle;
  EXPECT_EQ(throttle.failed("refused", 0), "refused");
  EXPECT_EQ(throttle.failed("wrong key", 1), "wrong key");
  EXPECT_EQ(throttle.failed("wrong key", 2), "");
  throttle.over();
  EXPECT_EQ(throttle.failed("wrong key", 3), "wrong key");
}

}  // namespace
}  // namespace kvbm::cluster::log_throttle_test
