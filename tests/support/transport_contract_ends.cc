// How connections and transports end, with work on its way.
#include "base/crypto/random.h"
#include "support/transport_contract.h"

namespace kvbm::test {

bool use_transport_contract_ends() { return true; }

TEST_P(TransportContract, a_flush_brings_out_what_was_sent_and_pushed) {
  open();
  connect();
  const uint64_t bytes = 6'000'000;
  const copy::Token post = b_.post(ba_, 1, bytes);
  const copy::Token push = a_.push(ab_, 1, 4, bytes);
  const copy::Token useless = a_.post(ab_, 1, 100);
  for (int i = 0; i < 20; ++i) a_.send(ab_, "message " + std::to_string(i));
  EXPECT_EQ(a_.transport().disconnect(ab_, true), Code::ok);
  EXPECT_EQ(a_.transport().send(ab_, {}), Code::closed);
  copy::Token token = 0;
  EXPECT_EQ(a_.transport().post(ab_, 2, {}, token), Code::closed);
  EXPECT_EQ(a_.transport().push(ab_, 2, ConstBytes{}, token), Code::closed);
  run_until([&] { return a_.closed.count(ab_) == 1 && b_.closed.count(ba_) == 1; }, "the end of the flush");
  EXPECT_EQ(a_.ends.at(push).status, Code::ok);
  EXPECT_EQ(a_.ends.at(useless).status, Code::closed);
  EXPECT_TRUE(b_.holds(post, 4, bytes));
  EXPECT_EQ(b_.messages[ba_].size(), 20U);
}

TEST_P(TransportContract, a_flush_right_after_connecting_still_says_what_was_sent) {
  open();
  auto peer = a_.transport().connect(address_);
  ASSERT_TRUE(peer.ok());
  a_.send(peer.value(), "hello and goodbye");
  EXPECT_EQ(a_.transport().disconnect(peer.value(), true), Code::ok);
  run_until([&] { return a_.closed.count(peer.value()) == 1 && b_.closed.size() == 1; }, "both ends closed");
  EXPECT_EQ(b_.messages[b_.accepted.at(0)], std::vector<std::string>{"hello and goodbye"});
  EXPECT_TRUE(a_.connected.empty());
}

TEST_P(TransportContract, a_flush_can_be_cut_short) {
  open();
  connect();
  for (uint64_t i = 0; i < 20; ++i) a_.push(ab_, i, i, 2'000'000);
  EXPECT_EQ(a_.transport().disconnect(ab_, true), Code::ok);
  EXPECT_EQ(a_.transport().disconnect(ab_, false), Code::ok);
  run_until([&] { return a_.closed.count(ab_) == 1 && b_.closed.count(ba_) == 1; }, "both ends closed");
  EXPECT_TRUE(a_.all_ended());
}

TEST_P(TransportContract, last_words_of_a_peer_are_heard_although_this_side_sends) {
  open();
  connect();
  b_.send(ba_, "go away");
  EXPECT_EQ(b_.transport().disconnect(ba_, true), Code::ok);
  for (int i = 0; i < 50 && a_.closed.empty(); ++i) {
    (void)a_.transport().send(ab_, std::as_bytes(std::span("still talking")));
    step();
  }
  run_until([&] { return a_.closed.count(ab_) == 1 && b_.closed.count(ba_) == 1; }, "both ends closed");
  EXPECT_EQ(a_.messages[ab_], std::vector<std::string>{"go away"});
}

TEST_P(TransportContract, a_disconnect_ends_every_operation_once_and_then_the_peer) {
  open();
  connect();
  start_traffic(60, 400'000);
  for (int i = 0; i < 3; ++i) step();
  EXPECT_EQ(a_.transport().disconnect(ab_, false), Code::ok);
  run_until([&] { return a_.closed.count(ab_) == 1 && b_.closed.count(ba_) == 1; }, "both ends closed");
  EXPECT_TRUE(a_.all_ended());
  EXPECT_TRUE(b_.all_ended());
  a_.expect_quiet();
}

TEST_P(TransportContract, a_side_that_closes_at_any_moment_ends_every_operation_of_both) {
  const uint64_t first = seed();
  for (uint64_t round = 0; round < 40; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    TearDown();
    a_.reset();
    b_.reset();
    world_ = GetParam()();
    SeededRandom random(first * 1000 + round);
    open();
    connect();
    start_traffic(20, 300'000);
    for (uint64_t steps = random.below(40); steps != 0; --steps) {
      if (!step()) wait(true);
    }
    const bool a_goes = random.below(2) == 0;
    (a_goes ? a_ : b_).close();
    TransportSide& left = a_goes ? b_ : a_;
    const copy::Peer peer = a_goes ? ba_ : ab_;
    run_until([&] { return left.closed.count(peer) == 1; }, "the other side notices");
    EXPECT_TRUE(left.all_ended());
    settle(5);
    (a_goes ? a_ : b_).expect_quiet();
    if (HasFailure()) return;
  }
}

TEST_P(TransportContract, a_side_that_disconnects_at_any_moment_ends_every_operation_of_both) {
  const uint64_t first = seed();
  open();
  for (uint64_t round = 0; round < 40; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    SeededRandom random(first * 1000 + round);
    connect();
    start_traffic(10, 300'000);
    for (uint64_t steps = random.below(30); steps != 0; --steps) {
      if (!step()) wait(true);
    }
    const bool a_goes = random.below(2) == 0;
    EXPECT_EQ(a_goes ? a_.transport().disconnect(ab_, random.below(2) == 0) : b_.transport().disconnect(ba_, false),
              Code::ok);
    run_until([&] { return a_.closed.count(ab_) == 1 && b_.closed.count(ba_) == 1; }, "both ends closed");
    EXPECT_TRUE(a_.all_ended());
    EXPECT_TRUE(b_.all_ended());
    if (HasFailure()) return;
  }
}

TEST_P(TransportContract, connections_of_one_transport_do_not_disturb_each_other) {
  open();
  std::vector<std::pair<copy::Peer, copy::Peer>> pairs;
  for (int i = 0; i < 20; ++i) {
    connect();
    pairs.emplace_back(ab_, ba_);
  }
  std::vector<copy::Token> posts;
  for (const auto& [at_a, at_b] : pairs) posts.push_back(b_.post(at_b, 1, 500'000));
  for (const auto& [at_a, at_b] : pairs) a_.push(at_a, 1, at_a, 500'000);
  EXPECT_EQ(a_.transport().disconnect(pairs[3].first, false), Code::ok);
  EXPECT_EQ(b_.transport().disconnect(pairs[9].second, false), Code::ok);
  run_until([&] { return a_.all_ended() && b_.all_ended() && a_.closed.size() == 2 && b_.closed.size() == 2; },
            "all transfers");
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (i == 3 || i == 9) continue;
    EXPECT_TRUE(b_.holds(posts[i], pairs[i].first, 500'000)) << i;
  }
}

}  // namespace kvbm::test
