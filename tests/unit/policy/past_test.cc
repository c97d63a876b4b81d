#include "policy/past.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace kvbm::policy::past_test {
namespace {

uint8_t after_returns_at(uint8_t past, uint32_t age, uint32_t returns) {
  for (uint32_t i = 0; i < returns; ++i) past = after_return(past, age, i * 7919);
  return past;
}
int32_t gap_of(uint8_t past) { return static_cast<int32_t>(static_cast<uint32_t>(past - kReturned) % kGaps); }

TEST(Past, stays_in_its_seven_bits_and_kinds_whatever_happens) {
  for (uint32_t past = 0; past < kPasts; ++past) {
    for (const uint32_t age : {0U, 1U, 2U, 3U, 100U, 65'535U, UINT32_MAX}) {
      for (uint32_t dither = 0; dither < 64; ++dither) {
        const uint8_t next = after_return(static_cast<uint8_t>(past), age, dither);
        ASSERT_LT(next, kPasts) << past << " at " << age;
        ASSERT_LT(kKindOfPast[next], kKinds) << past << " at " << age;
      }
    }
  }
}

TEST(Past, counts_the_first_returns_each_as_a_kind_of_its_own) {
  const uint8_t fresh = kFresh + growth_of(20);
  EXPECT_EQ(kKindOfPast[after_returns_at(fresh, 100, 1)], kReturned);
  EXPECT_EQ(kKindOfPast[after_returns_at(fresh, 100, 2)], kReturned + 1);
  EXPECT_EQ(kKindOfPast[after_returns_at(fresh, 100, 3)], kReturned + 2);
  EXPECT_EQ(kKindOfPast[after_returns_at(kContinued, 100, 1)], kReturned + 1);  // its prefix had returned before
}

TEST(Past, tells_apart_what_returned_often_by_the_gap_and_follows_when_that_changes) {
  const uint8_t popular = after_returns_at(kFresh, 20, 10);
  const uint8_t rare = after_returns_at(kFresh, 1'000, 10);
  EXPECT_LT(kKindOfPast[popular], kKindOfPast[rare]);
  const uint8_t faded = after_returns_at(popular, 1'000, 60);
  EXPECT_LE(std::abs(gap_of(faded) - static_cast<int32_t>(half_octaves(1'000))), 1);
  EXPECT_EQ(kKindOfPast[faded], kKindOfPast[rare]);
}

TEST(Past, a_mean_gap_is_moved_by_small_differences_too) {
  const uint8_t at_100 = after_returns_at(kFresh, 100, 10);
  const uint8_t at_150 = after_returns_at(at_100, 150, 100);  // a half octave: less than a whole step of an eighth
  EXPECT_EQ(gap_of(at_150), static_cast<int32_t>(half_octaves(150)));
}

TEST(Past, what_a_caller_hinted_is_not_changed_by_returns) {
  EXPECT_EQ(after_return(kOneShot, 10, 1), kOneShot);
  EXPECT_EQ(after_return(kKeep, 10, 1), kKeep);
}

}  // namespace
}  // namespace kvbm::policy::past_test
