// Sessions with blocks in a device's memory: copies that end later, on either side, on both, and on neither.
#include <gtest/gtest.h>

#include "support/session_pair.h"

namespace kvbm::test::session_mover_test {
namespace {

using Pair = SessionPair;

TEST(SessionMover, host_and_device_mix_on_both_sides) {
  for (const bool from : {false, true}) {
    for (const bool to : {false, true}) {
      Pair p(from, to);
      p.offer_all();
      const uint64_t s = p.open();
      EXPECT_TRUE(p.end_of(s).ok()) << from << to;
      EXPECT_EQ(p.targets[0].check(7), "") << from << to;
      EXPECT_EQ(p.decode->layers[s].size(), 4U);
      EXPECT_EQ(p.senders[0]->mover.gathers() + p.senders[1]->mover.gathers() > 0, from);
      EXPECT_EQ(p.decode->mover.scatters() > 0, to);
      p.run(5);
      p.expect_quiet();
    }
  }
}

// Blocks of 16 and of 32 tokens: with the grain of the smaller ones every leaf is one run, which the device hashes
// whole.
TEST(SessionMover, leaves_are_cut_where_blocks_end_if_both_sides_know_how) {
  for (const bool today : {false, true}) {
    Pair p(true, true);
    p.net.grains = today;
    p.offer_all();
    EXPECT_TRUE(p.end_of(p.open()).ok());
    EXPECT_EQ(p.targets[0].check(7), "");
    for (const SimMover* m : {&p.senders[0]->mover, &p.senders[1]->mover, &p.decode->mover}) {
      EXPECT_EQ(m->most_runs() == 1, today);
    }
  }
}

TEST(SessionMover, a_layer_is_reported_when_the_device_has_checked_it_and_not_before) {
  Pair p(false, true);
  p.decode->mover.held = true;
  p.offer_all();
  const uint64_t s = p.open();
  p.sim.run_until([&] { return p.decode->mover.scatters() == 4; });  // all the staging there is
  p.run(5);
  EXPECT_TRUE(p.decode->layers[s].empty());
  EXPECT_EQ(p.decode->receiver->staging_taken(), 4U);
  p.decode->mover.release();
  EXPECT_TRUE(p.end_of(s).ok());
  EXPECT_EQ(p.targets[0].check(7), "");
}

TEST(SessionMover, what_a_device_finds_damaged_is_pulled_again_and_at_last_given_up) {
  Pair p(false, true);
  p.decode->mover.spoil = 1;
  p.offer_all();
  const uint64_t s = p.open();
  expect_says(p.end_of(s), Code::damaged, "3 attempts");
  EXPECT_TRUE(p.decode->layers[s].empty());
  EXPECT_GE(p.decode->receiver->stats().damaged_slices, 3U);
  p.run(5);
  p.expect_quiet();
}

TEST(SessionMover, a_device_lost_while_it_writes_ends_the_session_and_says_so) {
  Pair p(true, true);
  p.offer_all();
  const uint64_t s = p.open();
  p.sim.run_until([&] { return p.decode->mover.scatters() >= 2; });
  p.decode->mover.lose();
  expect_says(p.end_of(s), Code::tier_disabled, "the device is lost");
  p.run(5);
  expect_says(p.senders[0]->offers_ended.at(request_id(1)), Code::tier_disabled, "the device is lost");
  p.expect_quiet();
}

TEST(SessionMover, a_device_lost_while_it_is_read_ends_the_session_on_both_sides_and_frees_the_blocks) {
  Pair p(true, false);
  p.offer_all();
  const uint64_t s = p.open();
  p.sim.run_until([&] { return p.senders[1]->mover.gathers() >= 2; });
  p.senders[1]->mover.lose();
  expect_says(p.end_of(s), Code::tier_disabled, "prefill rank 1 at \"10.0.0.1\"");
  p.run(5);
  expect_says(p.senders[1]->offers_ended.at(request_id(1)), Code::tier_disabled, "the device is lost");
  p.expect_quiet();
}

TEST(SessionMover, the_end_is_told_when_the_device_writes_no_more) {
  Pair p(false, true);
  p.decode->mover.held = true;
  p.offer_all();
  const uint64_t s = p.open();
  p.sim.run_until([&] { return p.decode->mover.scatters() == 4; });
  ASSERT_TRUE(p.decode->receiver->abort(s, Code::cancelled, "the client went away").ok());
  p.decode->drain();
  p.run(5);
  EXPECT_EQ(p.decode->finished.count(s), 0U) << "a device still writes";
  EXPECT_EQ(p.decode->receiver->sessions(), 1U);
  EXPECT_EQ(p.decode->receiver->quarantined(), 0U) << "no peer holds it";
  p.decode->mover.release();
  EXPECT_EQ(p.end_of(s).code(), Code::cancelled);
  p.run(5);
  p.expect_quiet();
}

TEST(SessionMover, blocks_are_held_until_the_device_has_read_them) {
  Pair p(true, false);
  p.senders[0]->mover.held = true;
  p.offer_all();
  const uint64_t s = p.open();
  p.sim.run_until([&] { return p.senders[0]->mover.gathers() == 4; });
  ASSERT_TRUE(p.senders[0]->sender->abort(request_id(1), Code::cancelled, "the client went away").ok());
  p.senders[0]->drain();
  EXPECT_EQ(p.end_of(s).code(), Code::cancelled);
  p.run(5);
  EXPECT_EQ(p.senders[0]->held.size(), 1U) << "a device still reads";
  p.senders[0]->mover.release();
  p.run(5);
  p.expect_quiet();
}

TEST(SessionMover, a_rank_may_go_when_all_of_it_has_arrived_and_a_device_still_writes) {
  Pair p(false, true);
  p.offer_all();
  const uint64_t s = p.open();
  // All slices: two ranks, four layers, three slices each. The device keeps the last ones until both connections are
  // cut.
  constexpr uint64_t kAll = 24;
  const auto& stats = p.decode->receiver->stats();
  ASSERT_TRUE(p.sim.run_until([&] { return stats.slices >= kAll - 3; }));
  p.decode->mover.held = true;
  ASSERT_TRUE(p.sim.run_until([&] { return stats.slices + p.decode->mover.under_way() == kAll; }));
  ASSERT_GT(p.decode->mover.under_way(), 0U);
  for (const uint64_t end : p.net.open_connections()) p.net.cut(end);
  p.run(5);
  p.decode->mover.release();
  EXPECT_TRUE(p.end_of(s).ok()) << p.end_of(s).message();
  EXPECT_EQ(p.targets[0].check(7), "");
}

TEST(SessionMover, ends_that_come_when_the_session_is_gone_touch_nothing) {
  Pair p(true, true);
  p.decode->mover.held = p.senders[0]->mover.held = true;
  p.offer_all();
  (void)p.open();
  p.sim.run_until([&] { return p.senders[0]->mover.gathers() > 0 && p.decode->mover.scatters() > 0; });
  p.decode->receiver.reset();
  p.senders[0]->sender.reset();
  const uint64_t before = p.decode->mover.under_way();
  EXPECT_GT(before, 0U);
  p.decode->mover.release();
  p.senders[0]->mover.release();
  EXPECT_EQ(p.decode->mover.under_way() + p.senders[0]->mover.under_way(), 0U);
}

}  // namespace
}  // namespace kvbm::test::session_mover_test
