// Expected times of sources, and the number of blocks worth loading.
#include "copy/cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace kvbm::copy::cost_test {
namespace {

constexpr uint64_t kMs = 1'000'000;

// A source that really takes this, asked for one batch after the other.
struct Real {
  double start_ns;
  double ns_per_byte;
  uint64_t now = 10'000 * kMs;
  void batch(SourceCost& cost, uint64_t bytes, uint64_t pause_ns = 0) {
    const auto ticket = cost.asked(now, bytes);
    now += static_cast<uint64_t>(start_ns + static_cast<double>(bytes) * ns_per_byte);
    cost.answered(now, ticket, SourceCost::Answer::arrived, bytes);
    now += pause_ns;
  }
};

double off_by(const SourceCost& cost, const Real& real, uint64_t bytes) {
  const auto expected = static_cast<double>(cost.expect(real.now).arrival_ns(bytes));
  return expected / (real.start_ns + static_cast<double>(bytes) * real.ns_per_byte);
}

TEST(SourceCost, learns_latency_and_speed_apart_from_batches_of_several_sizes) {
  SourceCost cost;
  cost.seed({200'000, 1.0});
  Real real{5e6, 50.0};
  for (int i = 0; i < 40; ++i) real.batch(cost, uint64_t{4096} << (i % 8));
  for (const uint64_t bytes : {4096U, 65'536U, 1'048'576U}) {
    EXPECT_NEAR(off_by(cost, real, bytes), 1.0, 0.15) << bytes;
  }
}

TEST(SourceCost, finds_out_a_guess_that_is_a_thousandfold_off_in_six_batches) {
  for (const double wrong : {0.001, 1000.0}) {
    SourceCost cost;
    cost.seed({200'000, 1.0});
    Real real{200'000.0 * wrong, 1.0 * wrong};
    for (int i = 0; i < 6; ++i) real.batch(cost, 1 << 20);
    const double off = off_by(cost, real, 1 << 20);
    EXPECT_GT(off, 0.5) << wrong;
    EXPECT_LT(off, 2.0) << wrong;
  }
}

TEST(SourceCost, one_stray_batch_moves_an_estimate_less_than_twofold) {
  SourceCost cost;
  cost.seed({200'000, 1.0});
  Real real{200'000, 1.0};
  for (int i = 0; i < 20; ++i) real.batch(cost, 1 << 20);
  const double before = off_by(cost, real, 1 << 20);
  Real stray{200'000, 1000.0, real.now};
  stray.batch(cost, 1 << 20);
  EXPECT_LT(off_by(cost, real, 1 << 20), before * 2);
}

TEST(SourceCost, follows_more_closely_after_a_silence) {
  for (const bool silence : {false, true}) {
    SourceCost cost;
    cost.seed({200'000, 1.0});
    Real slow{200'000, 100.0};
    for (int i = 0; i < 20; ++i) slow.batch(cost, 1 << 20);
    Real quick{200'000, 1.0, slow.now + (silence ? 2 * SourceCost::kStaleNs : 0)};
    quick.batch(cost, 1 << 20);
    EXPECT_EQ(off_by(cost, quick, 1 << 20) < 20, silence);
  }
}

TEST(SourceCost, what_was_asked_for_before_is_a_queue_and_leaves_with_its_answer) {
  SourceCost cost;
  cost.seed({1'000, 10.0});
  const uint64_t idle = cost.expect(kMs).start_ns;
  const auto ticket = cost.asked(kMs, 100'000);
  EXPECT_EQ(cost.expect(kMs).start_ns, idle + kMs);
  cost.answered(kMs + 5, ticket, SourceCost::Answer::nothing, 0);
  EXPECT_EQ(cost.expect(kMs + 5).start_ns, idle);
}

TEST(SourceCost, nothing_is_expected_to_be_faster_than_its_cap_and_what_it_let_through_is_waited_for) {
  SourceCost cost;
  cost.seed({1'000, 0.01}, 1'000'000);
  const uint64_t now = 1'000 * kMs;
  EXPECT_DOUBLE_EQ(cost.expect(now).ns_per_byte, 1000.0);
  const auto ticket = cost.asked(now, 50'000);
  cost.answered(now + 1, ticket, SourceCost::Answer::arrived, 50'000);
  // The estimate is 50 ms of transfer, less the 10 ms that an idle cap saves up.
  EXPECT_NEAR(static_cast<double>(cost.expect(now + 1).start_ns), 40e6, 1e6);
  EXPECT_LT(cost.expect(now + 41 * kMs).start_ns, kMs);
}

TEST(SourceCost, an_answer_that_was_given_up_teaches_only_that_it_takes_longer) {
  SourceCost cost;
  cost.seed({100'000, 1.0});
  const uint64_t before = cost.expect(0).arrival_ns(1 << 20);
  auto ticket = cost.asked(kMs, 1 << 20);
  cost.answered(kMs + 1'000, ticket, SourceCost::Answer::late, 0);
  EXPECT_EQ(cost.expect(0).arrival_ns(1 << 20), before);
  ticket = cost.asked(kMs, 1 << 20);
  cost.answered(101 * kMs, ticket, SourceCost::Answer::late, 0);
  EXPECT_GT(cost.expect(0).arrival_ns(1 << 20), before * 4);
}

TEST(SourceCost, a_probe_is_due_once_for_every_time_without_evidence) {
  SourceCost cost;
  cost.seed({100'000, 1.0});
  const uint64_t now = 10 * SourceCost::kStaleNs;
  EXPECT_TRUE(cost.probe_due(now));
  EXPECT_FALSE(cost.probe_due(now + 1));
  EXPECT_FALSE(cost.probe_due(now + SourceCost::kStaleNs - 1));
  EXPECT_TRUE(cost.probe_due(now + SourceCost::kStaleNs));
  const auto ticket = cost.asked(now + SourceCost::kStaleNs, 4096);
  EXPECT_FALSE(cost.probe_due(now + 3 * SourceCost::kStaleNs)) << "it is being measured";
  cost.answered(now + 3 * SourceCost::kStaleNs, ticket, SourceCost::Answer::arrived, 4096);
  EXPECT_FALSE(cost.probe_due(now + 3 * SourceCost::kStaleNs + 1));
  EXPECT_TRUE(cost.probe_due(now + 4 * SourceCost::kStaleNs));
}

TEST(ChooseLoad, takes_everything_that_wins_nothing_that_loses_and_what_is_quick_of_both) {
  const std::vector<uint64_t> compute(6, 10);
  const std::vector<uint64_t> quick{7, 8, 9, 10, 11, 12};
  EXPECT_EQ(choose_load(quick, compute, false).keys, 6U);
  const std::vector<uint64_t> slow{11, 22, 33, 44, 55, 66};
  const LoadChoice none = choose_load(slow, compute, false);
  EXPECT_EQ(none.keys, 0U);
  EXPECT_EQ(none.total_ns, 60U);
  // All six arrive before they could be computed, and yet the first three alone are done sooner.
  const std::vector<uint64_t> both{1, 2, 3, 23, 38, 53};
  const LoadChoice some = choose_load(both, compute, false);
  EXPECT_EQ(some.keys, 3U);
  EXPECT_EQ(some.load_ns, 3U);
  EXPECT_EQ(some.total_ns, 33U);
}

TEST(ChooseLoad, is_all_or_nothing_where_a_part_is_of_no_use) {
  const std::vector<uint64_t> compute(3, 10);
  EXPECT_EQ(choose_load(std::vector<uint64_t>{1, 2, 29}, compute, true).keys, 3U);
  EXPECT_EQ(choose_load(std::vector<uint64_t>{1, 2, 31}, compute, true).keys, 0U);
}

TEST(ChooseLoad, a_latency_is_worth_waiting_for_when_there_is_enough_behind_it) {
  for (const size_t n : {size_t{3}, size_t{30}}) {
    std::vector<uint64_t> arrival;
    for (size_t i = 0; i < n; ++i) arrival.push_back(100 + i);
    EXPECT_EQ(choose_load(arrival, std::vector<uint64_t>(n, 10), false).keys, n == 3 ? 0U : n);
  }
}

TEST(Latest, is_the_slack_after_the_next_key_was_due) {
  const std::vector<uint64_t> arrival{100, 120, 140};
  EXPECT_EQ(latest_ns(arrival, 0, 0, 0, 50), 150U);
  EXPECT_EQ(latest_ns(arrival, 1, 90, 1000, 50), 160U);  // early: the next one is due 20 later
  EXPECT_EQ(latest_ns(arrival, 1, 140, 30, 50), 170U);   // late already: not later than planned
}

}  // namespace
}  // namespace kvbm::copy::cost_test
