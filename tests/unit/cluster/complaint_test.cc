#include "cluster/mesh/complaint.h"

#include <gtest/gtest.h>

namespace kvbm::cluster::complaint_test {
namespace {

constexpr uint64_t kMinute = Complaint::kFirstNs;

TEST(Complaint, the_same_reason_is_said_once_and_then_at_growing_intervals) {
  Complaint complaint;
  size_t lines = 0;
  // Reports a failure every 800 ms for an hour, like a node that is dialled in vain.
  for (uint64_t now = 1; now < 60 * kMinute; now += 800'000'000) {
    lines += complaint.failed("refused", now).empty() ? 0 : 1;
  }
  EXPECT_EQ(lines, 6U);  // at once, and after 1, 3, 7, 15 and 31 minutes
}

TEST(Complaint, a_summary_says_how_often_it_failed_meanwhile) {
  Complaint complaint;
  EXPECT_EQ(complaint.failed("refused", 0), "refused");
  EXPECT_EQ(complaint.failed("refused", 1), "");
  EXPECT_EQ(complaint.failed("refused", kMinute), "refused (the same 2 times more)");
  EXPECT_EQ(complaint.failed("refused", 2 * kMinute), "");
  EXPECT_EQ(complaint.failed("refused", 3 * kMinute), "refused (the same 4 times more)");
}

TEST(Complaint, another_reason_and_a_failure_after_a_success_are_news) {
  Complaint complaint;
  EXPECT_EQ(complaint.failed("refused", 0), "refused");
  EXPECT_EQ(complaint.failed("wrong key", 1), "wrong key");
  EXPECT_EQ(complaint.failed("wrong key", 2), "");
  complaint.over();
  EXPECT_EQ(complaint.failed("wrong key", 3), "wrong key");
}

}  // namespace
}  // namespace kvbm::cluster::complaint_test
