// Edges of known speed, on which the choice has to find out what is shorter.
#include "copy/codec_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace kvbm::copy::codec_choice_test {
namespace {

// Moves one batch after the other; coders work while the edge does.
struct Edge {
  double ns_per_byte = 1;
  double start_ns = 20'000;
  double coded_start_ns = 60'000;
  CodingSpeeds real{0.2, 0.1, 1.45};
  CodingSpeeds thought{0.2, 0.1, 1.45};
  uint64_t now = 1'000'000;
  uint64_t plain = 0, coded = 0;
  uint64_t noise = 1;

  double cost(Way way, uint64_t bytes) const {
    const double each = way == Way::plain ? ns_per_byte : coded_ns_per_byte(ns_per_byte, real);
    return (way == Way::plain ? start_ns : coded_start_ns) + each * static_cast<double>(bytes);
  }
  void move(CodecChoice& choice, uint64_t bytes, size_t times, double noisy = 0) {
    for (size_t i = 0; i < times; ++i) {
      const auto ticket = choice.next(now, bytes, thought);
      noise = noise * 6364136223846793005ULL + 1442695040888963407ULL;
      const double off = 1 + noisy * (static_cast<double>(noise >> 40) / static_cast<double>(1 << 24) - 0.5);
      now += static_cast<uint64_t>(cost(ticket.way, bytes) * off);
      choice.ended(now, ticket, ticket.way, bytes);
      ++(ticket.way == Way::plain ? plain : coded);
    }
  }
};

constexpr uint64_t kBatch = 8ULL << 20;

TEST(CodecChoice, codes_where_the_edge_is_the_limit) {
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 8;  // a gigabit
  edge.move(choice, kBatch, 20);
  EXPECT_EQ(choice.state(kBatch).way, Way::coded);
  EXPECT_LE(edge.plain, 2U);  // one says what the edge is
}

// Where a second has few batches, plain would otherwise be tried with one in twenty.
TEST(CodecChoice, tries_plain_with_one_batch_in_64_where_coding_wins) {
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 8;
  edge.move(choice, kBatch, 20);
  ASSERT_EQ(choice.state(kBatch).way, Way::coded);
  edge.plain = edge.coded = 0;
  edge.move(choice, kBatch, 640);
  EXPECT_GE(edge.plain, 2U);
  EXPECT_LE(edge.plain, 11U);
}

// A batch with barely enough time for the known way is not used to probe the other one.
TEST(CodecChoice, tries_nothing_with_a_batch_whose_deadline_is_near) {
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 8;
  edge.move(choice, kBatch, 20);
  ASSERT_EQ(choice.state(kBatch).way, Way::coded);
  const uint64_t takes = static_cast<uint64_t>(choice.state(kBatch).coded_ns_per_byte * kBatch);
  const uint64_t before = choice.state(kBatch).probes;
  uint64_t now = edge.now + 3600'000'000'000ULL;  // a try is long due
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(choice.next(now, kBatch, edge.thought, now + 2 * takes).way, Way::coded);
    EXPECT_EQ(choice.next(now, kBatch, edge.thought, now - 1).way, Way::coded);
  }
  EXPECT_EQ(choice.state(kBatch).probes, before);
  EXPECT_EQ(choice.next(now, kBatch, edge.thought, now + 8 * takes).way, Way::plain);
  EXPECT_EQ(choice.state(kBatch).probes, before + 1);
}

TEST(CodecChoice, is_plain_where_the_coder_is_slower_than_the_edge) {
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 0.15;
  edge.move(choice, kBatch, 1000);
  EXPECT_EQ(edge.coded, 0U);  // not even tried
}

// On one machine encoder and decoder take processor time from the transfer itself. So coding that pays between two
// machines does not pay here.
TEST(CodecChoice, is_not_tried_on_one_machine_where_coders_take_more_than_the_edge_saves) {
  Edge edge;
  edge.ns_per_byte = 0.35;
  CodecChoice between_two;
  edge.move(between_two, kBatch, 100);
  EXPECT_EQ(between_two.state(kBatch).way, Way::coded);
  edge.thought.shared_work_ns_per_byte = edge.real.shared_work_ns_per_byte = 0.3;
  edge.coded = 0;
  CodecChoice on_one;
  edge.move(on_one, kBatch, 1000);
  EXPECT_EQ(edge.coded, 0U);
  edge.ns_per_byte = 2;  // the edge between its processes is limited
  edge.move(on_one, kBatch, 100);
  EXPECT_EQ(on_one.state(kBatch).way, Way::coded);
}

// The edge needs the processors that the coders use, so the expected speed of the coders is too high.
TEST(CodecChoice, finds_out_that_coding_is_slower_than_was_thought_and_hardly_tries_again) {
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 0.3;
  edge.real = {0.5, 0.1, 1.45};
  edge.move(choice, kBatch, 100);
  const uint64_t before = edge.coded;
  EXPECT_LE(before, 7U);  // two tries
  const uint64_t began = edge.now;
  edge.move(choice, kBatch, 20'000);
  const double plain_alone = edge.cost(Way::plain, kBatch) * 20'000;
  EXPECT_LT(static_cast<double>(edge.now - began), 1.01 * plain_alone);
  EXPECT_EQ(choice.state(kBatch).way, Way::plain);
}

// Over a slow link one sample is enough to judge coding, unless that sample paid for touching new memory.
TEST(CodecChoice, one_sample_that_lost_does_not_end_a_try_over_a_slow_link) {
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 2;
  edge.thought = {0.2, 0.1, 1.45};
  const CodingSpeeds warm = edge.real;
  edge.real = {2, 1, 1.45};
  edge.move(choice, kBatch, 2);
  ASSERT_EQ(edge.coded, 1U);
  edge.real = warm;
  edge.move(choice, kBatch, 3);
  EXPECT_EQ(edge.coded, 4U);
  EXPECT_EQ(choice.state(kBatch).way, Way::coded);
}

// A short visit over a link is shorter than the pause after a lost try. If a stall caused the loss, the next try must
// come soon.
TEST(CodecChoice, a_stall_in_a_try_does_not_make_coding_wait) {
  for (size_t stalled = 0; stalled < 14; ++stalled) {
    CodecChoice choice;
    Edge edge;
    edge.ns_per_byte = 2;  // four gigabits
    edge.real = edge.thought = {0.6, 0.3, 1.45};
    for (size_t i = 0; i < 14; ++i) {
      edge.move(choice, kBatch, 1);
      if (i != stalled) continue;
      const auto ticket = choice.next(edge.now, kBatch, edge.thought);
      edge.now += static_cast<uint64_t>(6 * edge.cost(ticket.way, kBatch));
      choice.ended(edge.now, ticket, ticket.way, kBatch);
    }
    edge.move(choice, kBatch, 40);
    EXPECT_EQ(choice.state(kBatch).way, Way::coded) << "stalled after " << stalled;
  }
}

TEST(CodecChoice, what_saves_less_than_three_percent_is_not_worth_it) {
  EXPECT_FALSE(worth_coding(100, 98));
  EXPECT_TRUE(worth_coding(100, 96));
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 1;
  edge.real.ratio = 1.02;
  edge.move(choice, kBatch, 500);
  EXPECT_EQ(choice.state(kBatch).switches, 0U);
}

TEST(CodecChoice, does_not_flap_between_two_ways_that_take_as_long) {
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 1;
  edge.real.ratio = 1.03;
  edge.move(choice, kBatch, 20'000, 0.1);
  EXPECT_LE(choice.state(kBatch).switches, 16U);  // in three minutes
}

TEST(CodecChoice, follows_an_edge_that_becomes_slow_and_fast_again) {
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 0.15;
  edge.move(choice, kBatch, 200);
  EXPECT_EQ(edge.coded, 0U);
  edge.ns_per_byte = 8;
  edge.move(choice, kBatch, 40);
  EXPECT_EQ(choice.state(kBatch).way, Way::coded);
  edge.ns_per_byte = 0.15;
  const uint64_t began = edge.now;
  while (choice.state(kBatch).way == Way::coded && edge.now - began < 60'000'000'000) edge.move(choice, kBatch, 1);
  EXPECT_EQ(choice.state(kBatch).way, Way::plain);
  EXPECT_LT(edge.now - began, 5'000'000'000U);
}

TEST(CodecChoice, small_batches_are_judged_by_themselves) {
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 1;
  edge.start_ns = 100'000;
  edge.coded_start_ns = 200'000;
  edge.move(choice, kBatch, 50);
  edge.move(choice, 16 << 10, 200);
  EXPECT_EQ(choice.state(kBatch).way, Way::coded);
  EXPECT_EQ(choice.state(16 << 10).way, Way::plain);
}

// All batches of a load are requested at once and queue up.
TEST(CodecChoice, batches_in_a_line_take_what_each_added) {
  CodecChoice choice;
  const CodingSpeeds speeds{0.2, 0.1, 1.45};
  uint64_t now = 1'000'000;
  for (int load = 0; load < 6; ++load) {
    std::array<CodecChoice::Ticket, 12> tickets;
    uint64_t tried = 0;
    for (auto& ticket : tickets) {
      ticket = choice.next(now, kBatch, speeds);
      tried += ticket.way == Way::coded ? 1 : 0;
    }
    EXPECT_TRUE(tried == 0 || tried == tickets.size()) << tried << " beside others";
    for (const auto& ticket : tickets) {
      now += kBatch * (ticket.way == Way::plain ? 29 : 20) / 10;
      choice.ended(now, ticket, ticket.way, kBatch);
    }
  }
  const auto state = choice.state(kBatch);
  EXPECT_EQ(state.way, Way::coded);
  EXPECT_NEAR(state.plain_ns_per_byte, 2.9, 0.1);
  EXPECT_NEAR(state.coded_ns_per_byte, 2.0, 0.1);
}

// Traffic of a session: `depth` batches in flight, and the next one requested when one ends. Coding runs beside the
// transfers, so `together` of them end at once, each after the time of all of these.
struct Line {
  uint64_t depth = 8;
  double plain_ns_per_byte = 0.5;
  double coded_ns_per_byte = 0.9;  // with the coder as the bottleneck
  uint64_t together = 4;           // batches that end at the same time
  CodingSpeeds thought{0.2, 0.1, 1.45};
  uint64_t bytes = 1 << 20;
  uint64_t now = 1'000'000;
  uint64_t plain = 0, coded = 0;

  void move(CodecChoice& choice, size_t times) {
    std::vector<CodecChoice::Ticket> line;
    for (size_t asked = 0, over = 0; over < times;) {
      while (asked < times && line.size() < depth) line.push_back(choice.next(now, bytes, thought)), ++asked;
      const size_t n = std::min<size_t>(together, line.size());
      for (size_t i = 0; i < n; ++i) {
        const bool is_plain = line[i].way == Way::plain;
        ++(is_plain ? plain : coded);
        now += static_cast<uint64_t>((is_plain ? plain_ns_per_byte : coded_ns_per_byte) * static_cast<double>(bytes));
      }
      for (size_t i = 0; i < n; ++i) choice.ended(now, line[i], line[i].way, bytes);
      line.erase(line.begin(), line.begin() + static_cast<ptrdiff_t>(n));
      over += n;
    }
  }
};

TEST(CodecChoice, a_line_in_which_coding_loses_is_plain) {
  for (const uint64_t depth : {1, 8, 32}) {
    for (const uint64_t together : {1, 4, 16}) {
      CodecChoice choice;
      Line line;
      line.depth = depth;
      line.together = std::min(depth, together);
      line.move(choice, 100'000);
      EXPECT_EQ(choice.state(line.bytes).way, Way::plain) << depth << " deep, " << together << " together";
      EXPECT_EQ(choice.state(line.bytes).switches, 0U) << depth << " deep, " << together << " together";
      EXPECT_LT(line.coded, 1500U) << depth << " deep, " << together << " together";
      EXPECT_NEAR(choice.state(line.bytes).plain_ns_per_byte, line.plain_ns_per_byte, 0.15);
    }
  }
}

TEST(CodecChoice, a_line_in_which_coding_wins_is_coded) {
  for (const uint64_t depth : {1, 8, 32}) {
    for (const uint64_t together : {1, 4, 16}) {
      CodecChoice choice;
      Line line;
      line.plain_ns_per_byte = 8;
      line.coded_ns_per_byte = 5.6;
      line.depth = depth;
      line.together = std::min(depth, together);
      line.move(choice, 400);
      EXPECT_EQ(choice.state(line.bytes).way, Way::coded) << depth << " deep, " << together << " together";
      line.plain = 0;
      line.move(choice, 10'000);
      EXPECT_EQ(choice.state(line.bytes).way, Way::coded) << depth << " deep, " << together << " together";
      EXPECT_LT(line.plain, 600U) << depth << " deep, " << together << " together";
      EXPECT_NEAR(choice.state(line.bytes).coded_ns_per_byte, 5.6, 0.9);
    }
  }
}

// The first batches over a fast link touch memory for the first time: against those, coding would win.
TEST(CodecChoice, a_fast_link_that_began_slowly_is_not_coded) {
  CodecChoice choice;
  Line line;
  line.depth = 32;
  line.plain_ns_per_byte = 1.1;
  line.move(choice, 32);
  line.plain_ns_per_byte = 0.45;
  line.coded_ns_per_byte = 0.65;
  line.move(choice, 320);
  EXPECT_EQ(choice.state(line.bytes).way, Way::plain);
  EXPECT_EQ(choice.state(line.bytes).switches, 0U);
  EXPECT_LE(line.coded, 160U);  // two tries, with 32 under way
}

// Some batches fail. They say nothing about either way, and do not exclude the batches beside them.
TEST(CodecChoice, a_batch_that_never_came_stops_no_try) {
  CodecChoice choice;
  Edge edge;
  edge.ns_per_byte = 8;
  for (int i = 0; i < 40; ++i) {
    const auto lost = choice.next(edge.now, kBatch, edge.thought);
    edge.now += 1000;
    choice.ended(edge.now, lost, Way::plain, 0);
    edge.move(choice, kBatch, 1);
  }
  EXPECT_EQ(choice.state(kBatch).way, Way::coded);
}

// The other side may answer plain: then nothing is learned of coding, and it is not asked for ever.
TEST(CodecChoice, a_peer_that_declines_is_asked_rarely) {
  CodecChoice choice;
  uint64_t now = 1'000'000;
  uint64_t asked = 0;
  for (int i = 0; i < 1000; ++i) {
    const auto ticket = choice.next(now, kBatch, {0.2, 0.1, 1.45});
    asked += ticket.way == Way::coded ? 1 : 0;
    now += kBatch;
    choice.ended(now, ticket, Way::plain, kBatch);
  }
  EXPECT_LE(asked, 12U);
  EXPECT_EQ(choice.state(kBatch).way, Way::plain);
}

TEST(CodecChoice, misses_teach_nothing) {
  CodecChoice choice;
  for (uint64_t i = 1; i < 50; ++i) {
    const auto ticket = choice.next(i * 1000, kBatch, {0, 0, 1.45});
    EXPECT_EQ(ticket.way, Way::plain);
    choice.ended(i * 1000 + 500, ticket, Way::plain, 0);
  }
  EXPECT_EQ(choice.state(kBatch).plain_ns_per_byte, 0);
}

}  // namespace
}  // namespace kvbm::copy::codec_choice_test
