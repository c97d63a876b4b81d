// Links over the transport table and the simulated network: three nodes that dial each other, fetch, are cut off,
// frozen and killed.
#include "cluster/link/link_hub.h"

#include <gtest/gtest.h>

#include <cstring>

#include "cluster/mesh/backoff.h"
#include "codec/hash/leaf_hash.h"
#include "support/fake_cuda/log_lines.h"
#include "support/link_world.h"
#include "support/sim_network.h"

namespace kvbm::test::link_hub_test {
namespace {

using namespace cluster;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMs;
constexpr uint64_t kRecords = 40;

size_t payload_bytes(uint64_t n) { return n % 4 == 0 ? 150'000 : 3000; }

// One process with all of its objects, which are destroyed when it is killed.
struct Process final : LinkListener, StagingOwner {
  Process(SimExecutor& s, SimNetwork& n, SimNetwork::Node at, FamilyTable& families)
      : sim(s),
        net(n),
        node(at),
        executor(s),
        source(executor, s, families),
        families_(families),
        host{net.executor(node), s.random(), families, source, *this, facts(), SharedKey{}, {}, &log},
        hub(host),
        backoff(s.random()) {
    lines.attach(log);
    for (uint64_t i = 0; i < kRecords; ++i) source.put(i, payload_bytes(i));
    transport = copy::Transport::open(net.ops(node), {}, hub).value();
    hub.attach(*transport);
    net.on_wake(node, [this] {
      net.executor(node).post([this] {
        while (transport->progress()) {
        }
      });
    });
    address = transport->listen(SimNetwork::host(node) + ":0").value();
  }
  ~Process() override { transport->close(); }

  NodeFacts facts() const {
    NodeFacts f;
    f.node = node_id_of("node" + std::to_string(node));
    f.incarnation = sim.random().next();
    f.pool = "pool";
    f.request_limit = 16;
    return f;
  }
  void dial(const std::string& to) {
    dialled = to;
    (void)hub.connect(to).ok();
  }
  void link_ready(PeerLink& link) override {
    ++ready;
    if (link.role() == Role::initiator) backoff.succeeded();
  }
  void link_ended(PeerLink& link, const Status&) override {
    ++ended;
    if (link.role() != Role::initiator || dialled.empty()) return;
    net.executor(node).post_at(sim.clock().now_ns() + backoff.wait_ns(), [this] { dial(dialled); });
  }
  void staging_quiet(uint64_t cookie) override { staging.erase(cookie); }

  // Fetches a record and checks it as a reader would; counts what came of it.
  void fetch(uint64_t number, PeerLink& link, uint64_t within_ns) {
    auto batch = std::make_unique<FetchBatch>();
    batch->deadline_ns = sim.clock().now_ns() + within_ns;
    batch->owner = this;
    FetchItem item;
    item.id = SimSource::identity_of(families_, number);
    item.cookie = next_cookie++;
    auto& bytes = staging[item.cookie];
    bytes.resize(160'000);
    item.staging = bytes;
    batch->items.push_back(item);
    ++asked;
    batch->done = [this, number](FetchBatch& b) { take(b.items[0], number); };
    link.fetch(std::move(batch));
  }
  void take(const FetchItem& item, uint64_t number) {
    ++answered;
    if (item.quarantined) return;
    if (item.status == Code::ok) {
      const auto head = check_arrival(item.staging.first(item.head_bytes + item.payload_bytes),
                                      families_.get(item.id.family), item.id.key, 0, 0);
      const ConstBytes payload = item.staging.subspan(item.head_bytes, item.payload_bytes);
      bool sound = head.ok();
      for (uint32_t l = 0; sound && l < head.value().header().leaf_count; ++l) {
        const codec::Leaf leaf = head.value().leaf(l);
        sound = codec::leaf_hash(payload.subspan(leaf.offset, leaf.stored_bytes)) == leaf.hash;
      }
      if (sound) {
        const auto right = SimSource::payload_of(number, payload_bytes(number));
        ++(std::ranges::equal(payload, right) ? rightly : wrongly);
      }
    }
    staging.erase(item.cookie);
  }

  SimExecutor& sim;
  SimNetwork& net;
  SimNetwork::Node node;
  NodeExecutor executor;
  SimSource source;
  FamilyTable& families_;
  Log log;
  LogLines lines;
  LinkHost host;
  LinkHub hub;
  Backoff backoff;
  std::unique_ptr<copy::Transport> transport;
  std::string address, dialled;
  std::map<uint64_t, std::vector<std::byte>> staging;
  uint64_t next_cookie = 1;
  uint64_t asked = 0, answered = 0, rightly = 0, wrongly = 0;
  int ready = 0, ended = 0;
};

struct World {
  explicit World(uint64_t seed) : sim(seed), net(sim) {
    for (int i = 0; i < 2; ++i) {
      const auto node = net.add_node();
      processes.push_back(std::make_unique<Process>(sim, net, node, families));
    }
  }
  Process& a() { return *processes[0]; }
  Process& b() { return *processes[1]; }
  std::shared_ptr<PeerLink> link() { return a().hub.find(node_id_of("node" + std::to_string(b().node))); }

  SimExecutor sim;
  SimNetwork net;
  FamilyTable families;
  std::vector<std::unique_ptr<Process>> processes;
};

TEST(LinkHub, records_come_over_the_transport_table) {
  World w(1);
  w.a().dial(w.b().address);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.link() != nullptr; }, kSecond));
  for (uint64_t n = 0; n < kRecords + 3; ++n) w.a().fetch(n, *w.link(), 5 * kSecond);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.a().answered == kRecords + 3; }, 5 * kSecond));
  EXPECT_EQ(w.a().rightly, kRecords);
  EXPECT_EQ(w.a().wrongly, 0U);
  EXPECT_TRUE(w.a().staging.empty());
  EXPECT_EQ(w.b().source.holds(), 0U);
}

TEST(LinkHub, two_that_dial_each_other_agree_on_one_link) {
  World w(2);
  w.a().dial(w.b().address);
  w.b().dial(w.a().address);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.a().ready == 2 && w.b().ready == 2; }, kSecond));
  const auto from_a = w.a().hub.find(w.b().host.self.node);
  const auto from_b = w.b().hub.find(w.a().host.self.node);
  EXPECT_NE(from_a->role(), from_b->role());
}

TEST(LinkHub, a_broken_connection_is_made_again) {
  World w(3);
  w.a().dial(w.b().address);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.link() != nullptr; }, kSecond));
  w.net.break_connections(w.a().node, w.b().node);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.a().ended == 1; }, kSecond));
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.link() != nullptr; }, kSecond));
}

// The node logs which stranger it refused and the remedy, and marks a name that was not proved.
TEST(LinkHub, a_stranger_that_is_refused_is_named_once_with_the_remedy) {
  World w(5);
  w.a().host.self.pool = "elsewhere";
  const std::string name = "node " + short_text(w.a().host.self.node);
  (void)w.a().hub.connect(w.b().address).ok();
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.b().ended == 1; }, kSecond));
  w.sim.run_for(kSecond);
  ASSERT_EQ(w.b().lines.count(), 1U);
  for (const std::string& part :
       {name, std::string("refused a connection from "), std::string("(unproven)"),
        std::string("of pool \"elsewhere\""), std::string("another pool"), std::string("node.pool")}) {
    EXPECT_NE(w.b().lines.line(0).find(part), std::string::npos) << part << ": " << w.b().lines.line(0);
  }
  EXPECT_EQ(w.a().lines.count(), 0U);  // the side that dialled does not log: its mesh reports how the attempt ended
  // A wrong key: the stranger proves first, and its proof does not fit.
  w.a().host.self.pool = "pool";
  w.a().host.key = SharedKey{1};
  (void)w.a().hub.connect(w.b().address).ok();
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.b().ended == 2; }, kSecond));
  w.sim.run_for(kSecond);
  ASSERT_EQ(w.b().lines.count(), 2U);
  for (const std::string& part : {name, std::string("wrong key"), std::string("node.key_file")}) {
    EXPECT_NE(w.b().lines.line(1).find(part), std::string::npos) << part << ": " << w.b().lines.line(1);
  }
  // A peer that was admitted and leaves again is not logged as a stranger.
  w.a().host.key = SharedKey{};
  const auto link = w.a().hub.connect(w.b().address);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.b().ready == 1; }, kSecond));
  link.value()->close();
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.b().ended == 3; }, kSecond));
  w.net.break_connections(w.a().node, w.b().node);
  EXPECT_EQ(w.b().lines.count(), 2U);
}

TEST(LinkHub, one_that_connects_and_says_nothing_is_cut_off_and_many_are_bounded) {
  World w(4);
  struct Silent final : copy::TransportListener {
    void peer_accepted(copy::Peer, std::string_view) override {}
    void peer_connected(copy::Peer) override {}
    void peer_message(copy::Peer, ConstBytes) override {}
    void pushed(copy::Peer, copy::Token, Code) override {}
    void received(copy::Peer, copy::Token, Code, uint64_t) override {}
    void peer_closed(copy::Peer, const Status&) override { ++closed; }
    size_t closed = 0;
  } silent;
  const auto node = w.net.add_node();
  const auto transport = copy::Transport::open(w.net.ops(node), {}, silent).value();
  w.net.on_wake(node, [&] {
    w.net.executor(node).post([&] {
      while (transport->progress()) {
      }
    });
  });
  constexpr size_t kMany = LinkHub::kMaxStrangers + 50;
  for (size_t i = 0; i < kMany; ++i) ASSERT_TRUE(transport->connect(w.b().address).ok());
  w.sim.run_for(100 * kMs);
  EXPECT_EQ(w.b().hub.size(), LinkHub::kMaxStrangers);
  EXPECT_EQ(w.b().hub.refused_strangers(), 50U);
  // A member of the pool is admitted while strangers fill their places.
  w.a().dial(w.b().address);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.link() != nullptr; }, 200 * kMs));
  EXPECT_EQ(w.b().hub.refused_strangers(), 51U);
  ASSERT_TRUE(w.sim.run_until_within([&] { return silent.closed == kMany; }, 4 * kSecond));
  transport->close();
}

// Cuts, freezes, broken connections and changed bits at random moments of transfers.
uint64_t storm(uint64_t seed) {
  World w(seed);
  w.a().dial(w.b().address);
  w.net.faults.flip_bulk = 0.01;
  w.net.faults.flip_message = 0.001;
  for (int step = 0; step < 300; ++step) {
    w.sim.run_for(w.sim.random().below(5 * kMs));
    const auto link = w.link();
    if (link != nullptr && w.a().asked - w.a().answered < 40) {
      for (uint64_t i = w.sim.random().below(4); i > 0; --i) {
        w.a().fetch(w.sim.random().below(kRecords + 5), *link, 1 + w.sim.random().below(300 * kMs));
      }
    }
    const uint64_t what = w.sim.random().below(60);
    if (what == 0) w.net.cut(w.a().node, w.b().node);
    if (what == 1 || what == 2) w.net.heal(w.a().node, w.b().node);
    if (what == 3) w.net.freeze(w.b().node);
    if (what == 4 || what == 5) w.net.thaw(w.b().node);
    if (what == 6) w.net.break_connections(w.a().node, w.b().node);
  }
  w.net.heal(w.a().node, w.b().node);
  w.net.thaw(w.b().node);
  w.net.faults = {};
  EXPECT_TRUE(w.sim.run_until_within([&] { return w.a().answered == w.a().asked; }, 20 * kSecond)) << seed;
  EXPECT_TRUE(w.sim.run_until_within([&] { return w.link() != nullptr; }, 20 * kSecond)) << seed;
  w.sim.run_for(15 * kSecond);
  EXPECT_EQ(w.a().wrongly, 0U) << seed;
  EXPECT_TRUE(w.a().staging.empty()) << seed;
  EXPECT_EQ(w.b().source.holds(), 0U) << seed;
  EXPECT_GT(w.a().rightly, 0U) << seed;
  return w.sim.log_hash();
}

TEST(LinkHub, a_storm_brings_no_wrong_byte_and_leaves_nothing_behind) {
  for (uint64_t seed = 1; seed <= 12; ++seed) storm(seed);
}

TEST(LinkHub, a_seed_gives_the_same_log_twice) { EXPECT_EQ(storm(50), storm(50)); }

TEST(LinkHub, a_killed_peer_is_noticed_and_serves_again_after_its_restart) {
  World w(6);
  w.a().dial(w.b().address);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.link() != nullptr; }, kSecond));
  for (uint64_t n = 0; n < kRecords; ++n) w.a().fetch(n, *w.link(), 30 * kSecond);
  w.sim.run_for(kMs);
  const uint64_t incarnation = w.link()->peer().incarnation;
  const std::string address = w.b().address;
  w.net.kill(w.b().node);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.a().answered == w.a().asked; }, 2 * kSecond));
  const auto node = w.b().node;
  w.processes[1].reset();
  w.processes[1] = std::make_unique<Process>(w.sim, w.net, node, w.families);
  w.a().dialled = w.b().address;
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.link() != nullptr; }, kSecond));
  EXPECT_NE(w.link()->peer().incarnation, incarnation);
  const uint64_t before = w.a().rightly;
  w.a().fetch(1, *w.link(), kSecond);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.a().rightly == before + 1; }, kSecond));
  EXPECT_EQ(w.a().wrongly, 0U);
}

}  // namespace
}  // namespace kvbm::test::link_hub_test
