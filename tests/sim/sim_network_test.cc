// The simulated network keeps the contract of transports, repeats itself from a seed, and its faults do what they say.
#include "support/sim_network.h"

#include "support/transport_contract.h"

namespace kvbm::test::sim_network_test {
namespace {

class SimWorld final : public TransportWorld {
 public:
  explicit SimWorld(copy::Protection protection = copy::Protection::off)
      : sim_(1), net_(sim_), protection_(protection) {
    net_.add_node();
    net_.add_node();
    net_.add_node();
  }
  const kvbm_transport_ops_t& ops(int side) override { return net_.ops(static_cast<SimNetwork::Node>(side)); }
  std::string listen_address(int side) override { return SimNetwork::host(static_cast<SimNetwork::Node>(side)) + ":0"; }
  std::string deserted_address() override { return SimNetwork::host(2) + ":7000"; }
  bool wait(const std::vector<copy::Transport*>&, bool) override { return sim_.step(); }
  [[nodiscard]] copy::Protection protection() const override { return protection_; }

 private:
  SimExecutor sim_;
  SimNetwork net_;
  const copy::Protection protection_;
};

}  // namespace

KVBM_TRANSPORT_CONTRACT(Simulated, [] { return std::make_unique<SimWorld>(); });
KVBM_TRANSPORT_CONTRACT(SimulatedEncrypted, [] { return std::make_unique<SimWorld>(copy::Protection::encrypt); });

namespace {

// Two nodes with transports that run as tasks of their executors.
class SimNetworkTest : public testing::Test {
 protected:
  static constexpr uint64_t kSeeds = 30;

  void build(uint64_t seed) {
    for (TransportSide* side : {&a_, &b_}) {
      side->close();
      side->reset();
    }
    net_.reset();
    sim_ = std::make_unique<SimExecutor>(seed);
    net_ = std::make_unique<SimNetwork>(*sim_);
    a_node_ = net_->add_node();
    b_node_ = net_->add_node();
    start(a_, a_node_);
    start(b_, b_node_);
  }
  void start(TransportSide& side, SimNetwork::Node node) {
    side.open(net_->ops(node));
    net_->on_wake(node, [this, &side, node] {
      net_->executor(node).post([&side] {
        if (!side.is_open()) return;
        while (side.transport().progress()) {
        }
      });
    });
  }
  void connect() {
    const auto bound = b_.transport().listen(SimNetwork::host(b_node_) + ":0");
    ASSERT_TRUE(bound.ok()) << bound.status().message();
    address_ = bound.value();
    const auto peer = a_.transport().connect(address_);
    ASSERT_TRUE(peer.ok());
    ab_ = peer.value();
    ASSERT_TRUE(sim_->run_until([&] { return !a_.connected.empty() && !b_.accepted.empty(); }));
    ba_ = b_.accepted.back();
    a_.transport().admit(ab_);
    b_.transport().admit(ba_);
  }
  void push_ten() {
    for (uint64_t i = 0; i < 10; ++i) {
      posts_[i] = b_.post(ba_, i, 300'000);
      a_.push(ab_, i, i, 300'000);
      a_.send(ab_, "message");
    }
  }
  void TearDown() override {
    a_.close();
    b_.close();
  }

  std::unique_ptr<SimExecutor> sim_;
  std::unique_ptr<SimNetwork> net_;
  TransportSide a_{"a"}, b_{"b"};
  SimNetwork::Node a_node_ = 0, b_node_ = 0;
  copy::Peer ab_ = 0, ba_ = 0;
  copy::Token posts_[10] = {};
  std::string address_;
};

TEST_F(SimNetworkTest, a_seed_run_twice_gives_the_same_log) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    uint64_t hashes[2];
    for (uint64_t& hash : hashes) {
      build(seed);
      connect();
      push_ten();
      sim_->run();
      hash = sim_->log_hash();
    }
    ASSERT_EQ(hashes[0], hashes[1]) << seed;
    for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(b_.holds(posts_[i], i, 300'000));
  }
}

TEST_F(SimNetworkTest, a_cut_holds_bytes_and_healing_brings_them) {
  build(1);
  connect();
  push_ten();
  net_->cut(a_node_, b_node_);
  const uint64_t until = sim_->clock().now_ns() + SimNetwork::kSilenceNs / 2;
  bool waited = false;
  sim_->post_at(until, [&] { waited = true; });
  ASSERT_TRUE(sim_->run_until([&] { return waited; }));
  EXPECT_FALSE(b_.all_ended());
  net_->heal(a_node_, b_node_);
  ASSERT_TRUE(sim_->run_until([&] { return b_.all_ended(); }));
  for (uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(b_.holds(posts_[i], i, 300'000));
}

TEST_F(SimNetworkTest, a_cut_that_lasts_ends_the_connection_on_both_sides) {
  build(1);
  connect();
  push_ten();
  net_->cut(a_node_, b_node_);
  ASSERT_TRUE(sim_->run_until([&] { return a_.closed.count(ab_) == 1 && b_.closed.count(ba_) == 1; }));
  EXPECT_EQ(a_.closed.at(ab_).code(), Code::deadline);
  EXPECT_TRUE(a_.all_ended());
  EXPECT_TRUE(b_.all_ended());
  const auto peer = a_.transport().connect(address_);
  ASSERT_TRUE(peer.ok());
  ASSERT_TRUE(sim_->run_until([&] { return a_.closed.count(peer.value()) == 1; }));
}

TEST_F(SimNetworkTest, a_frozen_node_takes_nothing_and_goes_on_when_thawed) {
  build(1);
  connect();
  net_->freeze(b_node_);
  push_ten();
  sim_->run();
  EXPECT_FALSE(a_.all_ended()) << "3 MB went to a process that is stopped";
  EXPECT_TRUE(b_.messages[ba_].empty());
  net_->thaw(b_node_);
  sim_->run();
  EXPECT_TRUE(a_.all_ended());
  for (uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(b_.holds(posts_[i], i, 300'000));
}

TEST_F(SimNetworkTest, a_killed_node_calls_nobody_and_the_other_side_is_told_once) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    build(seed);
    connect();
    push_ten();
    for (uint64_t steps = sim_->random().below(150); steps != 0; --steps) sim_->step();
    const size_t ended = b_.ends.size();
    const size_t heard = b_.messages[ba_].size();
    net_->kill(b_node_);
    sim_->run();
    ASSERT_EQ(b_.ends.size(), ended);
    ASSERT_EQ(b_.messages[ba_].size(), heard);
    ASSERT_EQ(a_.closed.count(ab_), 1U);
    ASSERT_TRUE(a_.all_ended());
    // The memory of both is returned.
    b_.close();
    b_.reset();
    start(b_, b_node_);
    a_.connected.clear();
    connect();
    push_ten();
    sim_->run();
    for (uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(b_.holds(posts_[i], i, 300'000));
  }
}

TEST_F(SimNetworkTest, a_lost_connection_is_told_to_both) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    build(seed);
    connect();
    net_->faults.lose_connection = 0.2;
    push_ten();
    sim_->run();
    ASSERT_EQ(a_.closed.size(), b_.closed.size());
    ASSERT_TRUE(a_.closed.empty() || (a_.all_ended() && b_.all_ended()));
  }
}

TEST_F(SimNetworkTest, flipped_bits_reach_the_receiver) {
  build(3);
  connect();
  net_->faults.flip_bulk = 1;
  push_ten();
  sim_->run();
  EXPECT_TRUE(b_.all_ended());
  EXPECT_FALSE(b_.holds(posts_[0], 0, 300'000));
  EXPECT_EQ(b_.messages[ba_][0], "message");
  net_->faults = {};
  net_->faults.flip_message = 1;
  a_.send(ab_, "message");
  sim_->run();
  EXPECT_NE(b_.messages[ba_].back(), "message");
}

TEST_F(SimNetworkTest, messages_come_twice_or_never_or_behind_the_next_one) {
  build(1);
  connect();
  net_->faults.repeat = 1;
  a_.send(ab_, "one");
  sim_->run();
  EXPECT_EQ(b_.messages[ba_], (std::vector<std::string>{"one", "one"}));
  net_->faults = {};
  net_->faults.drop = 1;
  a_.send(ab_, "two");
  sim_->run();
  EXPECT_EQ(b_.messages[ba_].size(), 2U);
  net_->faults = {};
  net_->faults.exchange = 1;
  a_.send(ab_, "three");
  net_->faults = {};
  a_.send(ab_, "four");
  sim_->run();
  EXPECT_EQ(b_.messages[ba_], (std::vector<std::string>{"one", "one", "four", "three"}));
  net_->faults.exchange = 1;
  a_.send(ab_, "five");
  sim_->run();
  EXPECT_EQ(b_.messages[ba_].back(), "five") << "there was no next one";
  EXPECT_TRUE(a_.closed.empty() && b_.closed.empty());
  EXPECT_EQ(net_->counts().repeated, 1U);
  EXPECT_EQ(net_->counts().dropped, 1U);
  EXPECT_EQ(net_->counts().exchanged, 1U);
}

TEST_F(SimNetworkTest, a_chunk_that_may_not_follow_ends_the_connection) {
  build(1);
  connect();
  net_->faults.repeat = 1;
  push_ten();
  sim_->run();
  ASSERT_EQ(b_.closed.count(ba_), 1U);
  EXPECT_EQ(b_.closed.at(ba_).code(), Code::damaged);
  EXPECT_TRUE(a_.all_ended());
  EXPECT_TRUE(b_.all_ended());
}

TEST_F(SimNetworkTest, a_node_goes_by_a_clock_of_its_own) {
  build(1);
  constexpr uint64_t kBegin = 1'000'000'000'000'000;
  constexpr uint64_t kSecond = 1'000'000'000;
  net_->set_clock(a_node_, kBegin, 2000);
  Executor& executor = net_->executor(a_node_);
  ASSERT_EQ(executor.clock().now_ns(), kBegin);
  const uint64_t before = sim_->clock().now_ns();
  uint64_t ran = 0;
  executor.post_at(kBegin + kSecond, [&] { ran = sim_->clock().now_ns(); });
  sim_->run();
  EXPECT_EQ(ran, before + kSecond / 2);
  // A task that falls due while the clock jumps runs at once, and no other task does.
  bool early = false, late = false;
  const uint64_t now = executor.clock().now_ns();
  executor.post_at(now + 10 * kSecond, [&] { early = true; });
  executor.post_at(now + 30 * kSecond, [&] { late = true; });
  net_->skip(a_node_, 20 * kSecond);
  EXPECT_EQ(executor.clock().now_ns(), now + 20 * kSecond);
  ASSERT_TRUE(sim_->run_until([&] { return early; }));
  EXPECT_EQ(sim_->clock().now_ns(), ran);
  EXPECT_FALSE(late);
  ASSERT_TRUE(sim_->run_until([&] { return late; }));
  EXPECT_EQ(sim_->clock().now_ns(), ran + 5 * kSecond);
}

TEST_F(SimNetworkTest, a_slow_link_takes_its_time) {
  build(1);
  connect();
  net_->link(a_node_, b_node_).bytes_per_ms = 1000;
  const uint64_t before = sim_->clock().now_ns();
  push_ten();
  ASSERT_TRUE(sim_->run_until([&] { return b_.all_ended(); }));
  EXPECT_GE(sim_->clock().now_ns() - before, 3'000'000'000U);
}

TEST_F(SimNetworkTest, connections_can_be_refused_and_broken) {
  build(1);
  connect();
  net_->break_connections(a_node_, b_node_);
  sim_->run();
  EXPECT_EQ(a_.closed.count(ab_), 1U);
  EXPECT_EQ(b_.closed.count(ba_), 1U);
  net_->refuse(b_node_, true);
  const auto peer = a_.transport().connect(address_);
  ASSERT_TRUE(peer.ok());
  sim_->run();
  EXPECT_EQ(a_.closed.count(peer.value()), 1U);
  EXPECT_EQ(net_->connections(), 0U);
}

}  // namespace
}  // namespace kvbm::test::sim_network_test
