// Two nodes and what happens between them, from a seed: delays, full queues, cut connections at any moment, changed
// messages and bulk, frozen nodes, records that leave or are confused, leases that end under a push, cancels. Never a
// wrong byte, each operation ends once and in time, and in the end nothing is held.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "cluster/mesh/backoff.h"
#include "codec/hash/leaf_hash.h"
#include "support/link_world.h"

namespace kvbm::test::peer_link_test {
namespace {

using namespace cluster;

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kRoom = 300'000;

size_t payload_bytes(uint64_t number) { return number % 5 == 0 ? 200'000 : 1000 + number * 13 % 9000; }

struct Outcome {
  uint64_t right = 0, missed = 0, refused = 0, late = 0, operations = 0, wrong = 0, twice = 0, never = 0,
           connections = 0;
  uint64_t held = 0, staging = 0, broken_rules = 0, log = 0, quarantined = 0, leases = 0;
};

struct Faults {
  bool garble = false, freeze = false, cut = false, confuse = false;
};

class World final : public LinkListener, public StagingOwner {
 public:
  World(uint64_t seed, Faults faults)
      : sim(seed),
        faults_(faults),
        nodes_{NodeExecutor(sim), NodeExecutor(sim)},
        sources_{SimSource(nodes_[0], sim, families_), SimSource(nodes_[1], sim, families_)},
        hosts_{host(0), host(1)},
        backoff_(sim.random()) {
    network_.refuse_send = 0.05;
    if (faults.garble) {
      network_.garble_message = 0.002;
      network_.garble_bulk = 0.05;
    }
    for (SimSource& source : sources_) {
      source.max_open_ns = 3 * kMs;
      source.wrong_record = faults.confuse ? 0.05 : 0;
      for (uint64_t n = 0; n < 60; ++n) source.put(n, payload_bytes(n));
    }
    connect();
  }

  Outcome run(int operations) {
    for (int i = 0; i < operations; ++i) {
      for (uint64_t steps = sim.random().below(60); steps > 0; --steps) sim.step();
      act();
    }
    stopping_ = true;
    for (NodeExecutor& node : nodes_) node.thaw();
    const uint64_t end = sim.clock().now_ns() + 3000 * kMs;
    sim.run_until([&] { return sim.clock().now_ns() > end; });
    for (auto& link : links_) link->close();
    sim.run();
    for (auto& link : links_) {
      out_.never += link->stats().unfinished;
      out_.held += link->stats().open_records + link->stats().leased_records;
      out_.staging += link->stats().posted_bytes + link->stats().quarantined_bytes;
    }
    for (const auto& connection : connections_) {
      out_.held += connection->unfinished();
      out_.broken_rules += connection->strangers_rule_broken();
    }
    for (SimSource& source : sources_) out_.held += source.holds();
    out_.never += pending_;
    out_.staging += staging_.size();
    out_.log = sim.log_hash();
    return out_;
  }

  void link_ready(PeerLink& link) override {
    sim.note("ready", link.role() == Role::initiator ? 0 : 1);
    backoff_.succeeded();
  }
  void link_ended(PeerLink& link, const Status& why) override {
    sim.note(why.what());
    if (link.role() == Role::initiator && !stopping_) {
      sim.post_at(sim.clock().now_ns() + backoff_.wait_ns(), [this] {
        if (!stopping_) connect();
      });
    }
  }
  void link_offered(PeerLink&, std::span<const Offered> offered, uint64_t, std::vector<uint32_t>& want) override {
    for (uint32_t i = 0; i < offered.size(); i += 2) want.push_back(i);
  }
  void staging_quiet(uint64_t cookie) override {
    // The staging is freed here: any transfer that still writes would hit other data.
    auto at = staging_.find(cookie);
    if (at == staging_.end() || !at->second.in_quarantine) {
      ++out_.twice;
      return;
    }
    staging_.erase(at);
  }

  SimExecutor sim;

 private:
  struct Staging {
    std::vector<std::byte> bytes;
    bool in_quarantine = false;
  };

  LinkHost host(int node) {
    NodeFacts self;
    self.node = node_id_of(node == 0 ? "a" : "b");
    self.incarnation = sim.random().next();
    self.pool = "pool";
    self.request_limit = 8;
    LinkLimits limits;
    limits.requests = 8;
    limits.staging_bytes = 2'000'000;
    limits.lease_ns = 20 * kMs;
    return {nodes_[node], sim.random(), families_, sources_[node], *this, self, SharedKey{}, limits};
  }

  void connect() {
    ++out_.connections;
    auto connection = std::make_shared<SimConnection>(sim, network_, nodes_[0], nodes_[1]);
    connections_.push_back(connection);
    for (int end = 0; end < 2; ++end) {
      auto link = PeerLink::create(hosts_[end], connection->port(end), end == 0 ? Role::initiator : Role::responder);
      connection->attach(end, link);
      links_.push_back(link);
      now_[end] = link;
    }
    connection->start();
    if (faults_.cut && sim.random().below(2) == 0) {
      sim.post_at(sim.clock().now_ns() + sim.random().below(60 * kMs), [connection] { connection->cut(); });
    }
  }

  // Returns a callback that checks that an operation ends once and in time.
  UniqueFunction<void()> ends(int node, uint64_t deadline) {
    ++out_.operations;
    ++pending_;
    return [this, node, deadline, seen = std::make_shared<bool>(false), frozen = freezes_[node]] {
      if (std::exchange(*seen, true)) ++out_.twice;
      --pending_;
      // A node that was frozen meanwhile could not look at its clock.
      if (frozen == freezes_[node] && sim.clock().now_ns() > deadline + kMs) ++out_.late;
    };
  }

  uint64_t deadline() {
    return sim.clock().now_ns() + 1000 + sim.random().below(sim.random().below(3) == 0 ? 3 * kMs : 3000 * kMs);
  }

  void fetch(int node) {
    auto batch = std::make_unique<FetchBatch>();
    batch->deadline_ns = deadline();
    batch->owner = this;
    const uint64_t n = 1 + sim.random().below(sim.random().below(5) == 0 ? 40 : 4);
    auto numbers = std::make_shared<std::vector<uint64_t>>();
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t number = sim.random().below(70);
      numbers->push_back(number);
      FetchItem item;
      item.id = SimSource::identity_of(families_, number);
      item.location = sim.random().below(9);
      if (payload_bytes(number) == 200'000 && sim.random().below(2) == 0) {
        item.first_leaf = static_cast<uint32_t>(sim.random().below(4));
        item.leaves = static_cast<uint32_t>(sim.random().below(5 - item.first_leaf));
      }
      item.cookie = next_cookie_++;
      Staging& staging = staging_[item.cookie];
      staging.bytes.resize(sim.random().below(12) == 0 ? 500 : kRoom);
      item.staging = staging.bytes;
      batch->items.push_back(item);
    }
    batch->done = [this, numbers, ended = ends(node, batch->deadline_ns)](FetchBatch& b) mutable {
      ended();
      for (size_t i = 0; i < b.items.size(); ++i) take(b.items[i], (*numbers)[i]);
    };
    names_.push_back({now_[node], now_[node]->fetch(std::move(batch))});
  }

  // Checks every leaf against its hash, as the upper layer does: a record that passes must equal the published one.
  void take(const FetchItem& item, uint64_t number) {
    if (item.quarantined) {
      ++out_.quarantined;
      staging_[item.cookie].in_quarantine = true;
      if (item.status == Code::ok) ++out_.wrong;
      return;
    }
    if (item.status == Code::ok) {
      const auto head = check_arrival(item.staging.first(item.head_bytes + item.payload_bytes),
                                      families_.get(item.id.family), item.id.key, item.first_leaf, item.leaves);
      if (!head.ok()) {
        ++out_.wrong;
      } else {
        compare(head.value(), item, number);
      }
    } else {
      ++(item.status == Code::miss ? out_.missed : out_.refused);
    }
    std::memset(item.staging.data(), 0xEE, item.staging.size());
    staging_.erase(item.cookie);
  }

  void compare(const codec::HeadView& head, const FetchItem& item, uint64_t number) {
    const ConstBytes payload = item.staging.subspan(item.head_bytes, item.payload_bytes);
    const uint32_t count = head.header().leaf_count;
    const uint32_t end = item.leaves == 0 ? count : item.first_leaf + item.leaves;
    const uint64_t base = head.leaf(item.first_leaf).offset;
    const auto right = SimSource::payload_of(number, payload_bytes(number));
    for (uint32_t l = item.first_leaf; l < end; ++l) {
      const codec::Leaf leaf = head.leaf(l);
      const ConstBytes bytes = payload.subspan(leaf.offset - base, leaf.stored_bytes);
      if (codec::leaf_hash(bytes) != leaf.hash) {
        ++out_.refused;
        return;
      }
      if (std::memcmp(bytes.data(), right.data() + leaf.offset, bytes.size()) != 0) ++out_.wrong;
    }
    ++out_.right;
  }

  void find(int node) {
    auto batch = std::make_unique<FindBatch>();
    batch->deadline_ns = deadline();
    batch->lease_ns = sim.random().below(2) * 10 * kMs;
    for (uint64_t i = sim.random().below(30); i > 0; --i)
      batch->ids.push_back(SimSource::identity_of(families_, sim.random().below(70)));
    auto link = now_[node];
    batch->done = [this, link, ended = ends(node, batch->deadline_ns)](FindBatch& b) mutable {
      ended();
      out_.leases += b.leases.size();
      if (sim.random().below(2) == 0) return;  // forgets them: they end by themselves
      for (const auto& lease : b.leases) link->release(std::span(&lease.id, 1));
    };
    names_.push_back({now_[node], now_[node]->find(std::move(batch))});
  }

  void offer(int node) {
    auto batch = std::make_unique<OfferBatch>();
    batch->deadline_ns = deadline();
    batch->lease_ns = 15 * kMs;
    for (uint64_t i = 1 + sim.random().below(5); i > 0; --i) {
      batch->items.push_back({SimSource::identity_of(families_, sim.random().below(60)), 1, 0, 200, 1000, 7});
    }
    batch->done = [ended = ends(node, std::max(batch->deadline_ns, sim.clock().now_ns()))](OfferBatch&) mutable {
      ended();
    };
    now_[node]->offer(std::move(batch));
  }

  void small(int node) {
    const uint64_t at = deadline();
    now_[node]->ask_status(at, [ended = ends(node, at)](Code, const wire::NodeStatus&) mutable { ended(); });
    now_[node]->renew(1 + sim.random().below(9), 5 * kMs, at,
                      [ended = ends(node, at)](Code, uint64_t) mutable { ended(); });
    now_[node]->invalidate(NamespaceId{}, 3, at, [ended = ends(node, at)](Code) mutable { ended(); });
  }

  void act() {
    const auto node = static_cast<int>(sim.random().below(2));
    if (nodes_[node].frozen()) {
      if (sim.random().below(4) == 0) nodes_[node].thaw();
      return;
    }
    const uint64_t what = sim.random().below(24);
    if (what < 12) {
      fetch(node);
    } else if (what < 16) {
      find(node);
    } else if (what < 17) {
      offer(node);
    } else if (what < 18) {
      small(node);
    } else if (what < 20 && !names_.empty()) {
      const auto& [link, name] = names_[sim.random().below(names_.size())];
      link->cancel(name);
    } else if (what < 22) {
      const uint64_t number = sim.random().below(60);
      sources_[node].evict(number);
      const uint64_t other = sim.random().below(60);
      sources_[node].put(other, payload_bytes(other));
    } else if (what == 22 && faults_.freeze) {
      ++freezes_[node];
      nodes_[node].freeze();
      sim.post_at(sim.clock().now_ns() + sim.random().below(4000 * kMs), [this, node] { nodes_[node].thaw(); });
    }
  }

  Faults faults_;
  FamilyTable families_;
  NodeExecutor nodes_[2];
  SimSource sources_[2];
  LinkHost hosts_[2];
  Backoff backoff_;
  NetworkFaults network_;
  std::vector<std::shared_ptr<SimConnection>> connections_;
  std::vector<std::shared_ptr<PeerLink>> links_;
  std::shared_ptr<PeerLink> now_[2];
  std::vector<std::pair<std::shared_ptr<PeerLink>, uint64_t>> names_;
  std::map<uint64_t, Staging> staging_;
  uint64_t next_cookie_ = 1;
  uint64_t pending_ = 0;
  uint64_t freezes_[2] = {0, 0};
  bool stopping_ = false;
  Outcome out_;
};

uint64_t seeds() {
  const char* text = std::getenv("KVBMTEST_SEEDS");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 12;
}

Outcome run(uint64_t seed, Faults faults, int operations = 120) {
  World world(seed, faults);
  Outcome o = world.run(operations);
  EXPECT_EQ(o.wrong, 0U) << "seed " << seed;
  EXPECT_EQ(o.twice, 0U) << "seed " << seed;
  EXPECT_EQ(o.never, 0U) << "seed " << seed;
  EXPECT_EQ(o.late, 0U) << "seed " << seed;
  EXPECT_EQ(o.held, 0U) << "seed " << seed;
  EXPECT_EQ(o.staging, 0U) << "seed " << seed;
  EXPECT_EQ(o.broken_rules, 0U) << "seed " << seed;
  return o;
}

Outcome run_all(Faults faults) {
  Outcome sum;
  for (uint64_t seed = 1; seed <= seeds(); ++seed) {
    const Outcome o = run(seed, faults);
    sum.right += o.right;
    sum.refused += o.refused;
    sum.quarantined += o.quarantined;
    sum.connections += o.connections;
    sum.leases += o.leases;
    sum.missed += o.missed;
    if (testing::Test::HasFailure()) break;
  }
  std::printf("right %lu, missed %lu, refused %lu, in quarantine %lu, leases %lu, connections %lu\n", sum.right,
              sum.missed, sum.refused, sum.quarantined, sum.leases, sum.connections);
  return sum;
}

TEST(PeerLinkSimulation, gets_right_bytes_over_a_slow_network) {
  const Outcome o = run_all({});
  EXPECT_GT(o.right, 20 * seeds());
  EXPECT_GT(o.leases, seeds());
  EXPECT_EQ(o.connections, seeds());
}

TEST(PeerLinkSimulation, survives_connections_cut_at_any_moment) {
  EXPECT_GT(run_all({false, false, true, false}).connections, seeds());
}

TEST(PeerLinkSimulation, refuses_changed_messages_bytes_and_records) {
  EXPECT_GT(run_all({true, false, false, true}).refused, seeds());
}

TEST(PeerLinkSimulation, outlives_frozen_peers) { EXPECT_GT(run_all({false, true, false, false}).right, seeds()); }

TEST(PeerLinkSimulation, holds_with_everything_at_once) {
  EXPECT_GT(run_all({true, true, true, true}).quarantined, 0U);
}

TEST(PeerLinkSimulation, a_seed_gives_the_same_log_twice) {
  for (uint64_t seed = 100; seed < 105; ++seed) {
    EXPECT_EQ(run(seed, {true, true, true, true}).log, run(seed, {true, true, true, true}).log) << seed;
  }
}

}  // namespace
}  // namespace kvbm::test::peer_link_test
