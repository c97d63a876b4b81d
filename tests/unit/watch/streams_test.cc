// Sequence numbers: gaps, restarts, ranks that share a topic, and more streams than are followed.
#include "watch/streams.h"

#include <gtest/gtest.h>

namespace kvbm::watch::streams_test {
namespace {

TEST(Streams, what_came_before_the_first_message_is_told_and_is_of_the_first) {
  Streams streams;
  const Arrival first = streams.arrive("kv", 0, 5);
  EXPECT_TRUE(first.first);
  EXPECT_EQ(first.missing_from, 0U);
  EXPECT_EQ(first.missing, 5U);
  const Arrival next = streams.arrive("kv", 0, 6);
  EXPECT_FALSE(next.first);
  EXPECT_EQ(next.missing, 0U);
}

TEST(Streams, a_gap_is_where_numbers_were_left_out) {
  Streams streams;
  (void)streams.arrive("kv", 0, 0);
  const Arrival after = streams.arrive("kv", 0, 4);
  EXPECT_EQ(after.missing_from, 1U);
  EXPECT_EQ(after.missing, 3U);
  EXPECT_FALSE(after.restarted);
}

TEST(Streams, a_number_that_went_back_is_a_restart_and_what_is_before_it_is_missing) {
  Streams streams;
  (void)streams.arrive("kv", 0, 10);
  const Arrival again = streams.arrive("kv", 0, 2);
  EXPECT_TRUE(again.restarted);
  EXPECT_EQ(again.missing_from, 0U);
  EXPECT_EQ(again.missing, 2U);
  EXPECT_EQ(streams.arrive("kv", 0, 3).missing, 0U);
}

TEST(Streams, ranks_and_topics_have_their_own_numbers) {
  Streams streams;
  for (const auto& rank : {std::optional<int64_t>(), std::optional<int64_t>(0), std::optional<int64_t>(1)}) {
    EXPECT_TRUE(streams.arrive("kv", rank, 0).first);
    EXPECT_TRUE(streams.arrive("other", rank, 0).first);
  }
  EXPECT_EQ(streams.arrive("kv", 1, 1).missing, 0U);
  EXPECT_EQ(Streams::name("kv", 1), "kv/1");
  EXPECT_EQ(Streams::name("kv", std::nullopt), "kv");
}

TEST(Streams, a_message_that_could_not_be_read_is_no_gap) {
  Streams streams;
  (void)streams.arrive("kv", 0, 0);
  streams.skip("kv", 1);
  streams.skip("kv", 7);
  streams.skip("other", 0);
  EXPECT_EQ(streams.arrive("kv", 0, 2).missing, 0U);
}

TEST(Streams, numbers_at_their_end_are_numbers) {
  Streams streams;
  (void)streams.arrive("kv", 0, ~uint64_t{0});
  EXPECT_EQ(streams.arrive("kv", 0, ~uint64_t{0}).missing, ~uint64_t{0});
}

TEST(Streams, more_than_can_be_followed_are_not) {
  Streams streams;
  for (size_t i = 0; i < kMaxStreams; ++i) EXPECT_TRUE(streams.arrive(std::to_string(i), 0, 0).followed);
  EXPECT_FALSE(streams.arrive("one more", 0, 0).followed);
  EXPECT_FALSE(streams.arrive("0", 1, 0).followed);
  EXPECT_TRUE(streams.arrive("0", 0, 1).followed);
}

}  // namespace
}  // namespace kvbm::watch::streams_test
