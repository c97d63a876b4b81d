// The guarantees of a link, one by one; tests/sim/peer_link_test.cc tests them with faults.
#include "cluster/link/peer_link.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "cluster/mesh/backoff.h"
#include "codec/hash/leaf_hash.h"
#include "support/link_world.h"

namespace kvbm::cluster::peer_link_test {
namespace {

using test::NodeExecutor;
using test::SimConnection;
using test::SimExecutor;
using test::SimSource;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kSecond = 1000 * kMs;

// Two nodes, one connection, no faults unless a test sets some.
struct Pair final : LinkListener, StagingOwner {
  explicit Pair(uint64_t seed = 1) : sim(seed) {}

  LinkHost& host(int end) {
    if (!hosts[end]) {
      NodeFacts self;
      self.node = node_id_of(end == 0 ? "a" : "b");
      self.incarnation = 1;
      self.pool = "pool";
      self.request_limit = 16;
      hosts[end] = std::make_unique<LinkHost>(
          LinkHost{nodes[end], sim.random(), families, sources[end], *this, self, SharedKey{}, {}});
    }
    return *hosts[end];
  }
  void connect() {
    connection = std::make_shared<SimConnection>(sim, faults, nodes[0], nodes[1]);
    for (int end = 0; end < 2; ++end) {
      link[end] = PeerLink::create(host(end), connection->port(end), end == 0 ? Role::initiator : Role::responder);
      connection->attach(end, link[end]);
    }
    connection->start();
  }
  bool until(UniqueFunction<bool()> done) { return sim.run_until(std::move(done), 1'000'000); }
  void pass(uint64_t ns) {
    const uint64_t end = sim.clock().now_ns() + ns;
    sim.post_at(end, [] {});
    sim.run_until([&] { return sim.clock().now_ns() >= end; });
  }
  [[nodiscard]] uint64_t in(uint64_t ns) const { return sim.clock().now_ns() + ns; }
  Identity id(uint64_t n) { return SimSource::identity_of(families, n); }

  void link_ready(PeerLink& which) override {
    ++ready;
    if (which.role() == Role::responder) responder_heard = which.stats().messages_in;
  }
  void link_ended(PeerLink&, const Status& why) override { ends.push_back(why); }
  void link_session(PeerLink&, ConstBytes bytes) override { session.emplace_back(bytes.begin(), bytes.end()); }
  void link_offered(PeerLink& from, std::span<const Offered> offered, uint64_t lease,
                    std::vector<uint32_t>& want) override {
    for (uint32_t i = 1; i < offered.size(); ++i) want.push_back(i);
    offered_lease = lease;
    offered_by = &from;
    last_offered.assign(offered.begin(), offered.end());
  }
  void staging_quiet(uint64_t) override { ++quiet; }

  SimExecutor sim;
  test::NetworkFaults faults;
  FamilyTable families;
  NodeExecutor nodes[2] = {NodeExecutor(sim), NodeExecutor(sim)};
  SimSource sources[2] = {SimSource(nodes[0], sim, families), SimSource(nodes[1], sim, families)};
  std::unique_ptr<LinkHost> hosts[2];
  std::shared_ptr<SimConnection> connection;
  std::shared_ptr<PeerLink> link[2];
  int ready = 0;
  uint64_t responder_heard = 0;
  int quiet = 0;
  uint64_t offered_lease = 0;
  PeerLink* offered_by = nullptr;
  std::vector<Offered> last_offered;
  std::vector<Status> ends;
  std::vector<std::vector<std::byte>> session;
};

struct Fetched {
  std::vector<std::vector<std::byte>> staging;
  std::vector<FetchItem> items;
  bool done = false;
};

// Fetches these records of the other node into staging of `room` bytes each.
std::shared_ptr<Fetched> fetch(Pair& p, int end, const std::vector<uint64_t>& numbers, uint64_t deadline,
                               size_t room = 20000, uint64_t* name = nullptr) {
  auto out = std::make_shared<Fetched>();
  auto batch = std::make_unique<FetchBatch>();
  batch->deadline_ns = deadline;
  batch->owner = &p;
  out->staging.resize(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    out->staging[i].resize(room);
    FetchItem item;
    item.id = p.id(numbers[i]);
    item.staging = out->staging[i];
    item.cookie = i;
    batch->items.push_back(item);
  }
  batch->done = [out](FetchBatch& b) {
    out->items = b.items;
    out->done = true;
  };
  const uint64_t given = p.link[end]->fetch(std::move(batch));
  if (name != nullptr) *name = given;
  EXPECT_FALSE(out->done) << "inside the call";
  return out;
}

TEST(PeerLink, both_sides_get_ready_and_know_each_other) {
  Pair p;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  // The initiator has sent hello, proof and one keyed message, which shows that it was admitted. Only then may the
  // responder send large messages.
  EXPECT_EQ(p.responder_heard, 3U);
  EXPECT_EQ(p.link[0]->peer().node, node_id_of("b"));
  EXPECT_EQ(p.link[1]->peer().node, node_id_of("a"));
  EXPECT_EQ(p.connection->strangers_rule_broken(), 0U);
}

TEST(PeerLink, fetches_records_misses_and_leaves) {
  Pair p;
  for (uint64_t n = 0; n < 3; ++n) p.sources[1].put(n, 5000);
  p.connect();
  const auto got = fetch(p, 0, {0, 1, 9, 2}, p.in(kSecond));  // before the link is ready
  ASSERT_TRUE(p.until([&] { return got->done; }));
  EXPECT_EQ(got->items[2].status, Code::miss);
  for (const size_t i : {size_t{0}, size_t{1}, size_t{3}}) {
    ASSERT_EQ(got->items[i].status, Code::ok);
    EXPECT_EQ(got->items[i].payload_bytes, 5000U);
    const auto right = SimSource::payload_of(i == 3 ? 2 : i, 5000);
    EXPECT_TRUE(std::equal(right.begin(), right.end(), got->staging[i].begin() + got->items[i].head_bytes));
  }
  EXPECT_EQ(p.link[0]->stats().posted_bytes, 0U);
}

TEST(PeerLink, both_sides_may_ask) {
  Pair p;
  p.sources[0].put(4, 100);
  p.connect();
  const auto got = fetch(p, 1, {4}, p.in(kSecond));
  ASSERT_TRUE(p.until([&] { return got->done; }));
  EXPECT_EQ(got->items[0].status, Code::ok);
}

TEST(PeerLink, says_how_large_a_record_is_that_does_not_fit) {
  Pair p;
  p.sources[1].put(0, 5000);
  p.connect();
  const auto got = fetch(p, 0, {0}, p.in(kSecond), 4000);
  ASSERT_TRUE(p.until([&] { return got->done; }));
  EXPECT_EQ(got->items[0].status, Code::no_room);
  EXPECT_EQ(got->items[0].payload_bytes, 5000U);
  EXPECT_EQ(got->items[0].head_bytes, codec::head_bytes(1, 0));
  EXPECT_FALSE(got->items[0].quarantined);
}

TEST(PeerLink, a_batch_of_a_hundred_thousand_is_found) {
  Pair p;
  for (uint64_t n = 0; n < 100'000; n += 1000) p.sources[1].put(n, 64);
  p.connect();
  auto batch = std::make_unique<FindBatch>();
  for (uint64_t n = 0; n < 100'000; ++n) batch->ids.push_back(p.id(n));
  batch->deadline_ns = p.in(10 * kSecond);
  bool done = false;
  batch->done = [&](FindBatch& b) {
    done = true;
    for (uint64_t n = 0; n < 100'000; ++n) {
      ASSERT_EQ(b.status[n], Code::ok);
      ASSERT_EQ(b.found[n].present, n % 1000 == 0 ? 1 : 0) << n;
    }
  };
  p.link[0]->find(std::move(batch));
  ASSERT_TRUE(p.until([&] { return done; }));
}

TEST(PeerLink, a_batch_of_thousands_is_fetched_within_the_budget_of_staging) {
  Pair p;
  p.host(0).limits.staging_bytes = 64 * 1024;
  std::vector<uint64_t> numbers;
  for (uint64_t n = 0; n < 3000; ++n) {
    p.sources[1].put(n, 64);
    numbers.push_back(n);
  }
  p.connect();
  const auto got = fetch(p, 0, numbers, p.in(100 * kSecond), 512);
  uint64_t most = 0;
  ASSERT_TRUE(p.until([&] {
    most = std::max(most, p.link[0]->stats().posted_bytes);
    return got->done;
  }));
  for (const FetchItem& item : got->items) ASSERT_EQ(item.status, Code::ok);
  EXPECT_LE(most, 64U * 1024);
  EXPECT_GT(most, 60U * 1024);
}

// A lookup is not kept waiting by fetches: neither by those that wait for staging, nor by as many as the peer takes.
TEST(PeerLink, a_lookup_passes_fetches) {
  for (const bool staging : {true, false}) {
    Pair p;
    p.host(0).limits.staging_bytes = staging ? 1024 : 1 << 20;
    std::vector<uint64_t> numbers;
    for (uint64_t n = 0; n < 2000; ++n) {
      p.sources[1].put(n, 64);
      numbers.push_back(n);
    }
    p.connect();
    ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
    std::vector<std::shared_ptr<Fetched>> fetches;
    if (staging) fetches.push_back(fetch(p, 0, numbers, p.in(100 * kSecond), 512));
    for (size_t n = 0; !staging && n < 200; ++n) fetches.push_back(fetch(p, 0, {n}, p.in(100 * kSecond), 512));
    size_t found = 0;
    auto batch = std::make_unique<FindBatch>();
    batch->ids = {p.id(1999), p.id(5000)};
    batch->deadline_ns = p.in(100 * kSecond);
    batch->done = [&](FindBatch& b) { found += static_cast<size_t>(b.found[0].present) + b.found.size(); };
    p.link[0]->find(std::move(batch));
    ASSERT_TRUE(p.until([&] { return found != 0; }));
    EXPECT_EQ(found, 3U);
    EXPECT_FALSE(fetches.back()->done);
    ASSERT_TRUE(p.until(
        [&] { return std::all_of(fetches.begin(), fetches.end(), [](const auto& one) { return one->done; }); }));
    for (const auto& one : fetches) {
      for (const FetchItem& item : one->items) ASSERT_EQ(item.status, Code::ok);
    }
  }
}

TEST(PeerLink, operations_end_at_their_deadline_and_staging_is_quarantined_until_it_is_quiet) {
  Pair p;
  p.sources[1].put(0, 5000);
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  p.nodes[1].freeze();
  const uint64_t deadline = p.in(50 * kMs);
  const auto got = fetch(p, 0, {0}, deadline);
  ASSERT_TRUE(p.until([&] { return got->done; }));
  EXPECT_EQ(p.sim.clock().now_ns(), deadline);
  EXPECT_EQ(got->items[0].status, Code::deadline);
  EXPECT_TRUE(got->items[0].quarantined);
  EXPECT_EQ(p.link[0]->stats().quarantined_bytes, 20000U);
  ASSERT_TRUE(p.until([&] { return p.quiet == 1; }));
  EXPECT_EQ(p.link[0]->stats().quarantined_bytes, 0U);
}

TEST(PeerLink, a_frozen_peer_is_noticed_within_two_seconds_and_costs_each_operation_once) {
  Pair p;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  p.nodes[1].freeze();
  const uint64_t begin = p.sim.clock().now_ns();
  const auto got = fetch(p, 0, {0, 1}, kNever);
  ASSERT_TRUE(p.until([&] { return got->done; }));
  EXPECT_LT(p.sim.clock().now_ns() - begin, 2 * kSecond);
  EXPECT_EQ(got->items[0].status, Code::owner_gone);
  ASSERT_TRUE(p.until([&] { return p.ends.size() == 1; }));
  EXPECT_NE(p.ends[0].message().find("frozen"), std::string::npos);
  const auto next = fetch(p, 0, {0}, kNever);
  ASSERT_TRUE(p.until([&] { return next->done; }));
  EXPECT_EQ(next->items[0].status, Code::owner_gone);
}

TEST(PeerLink, an_idle_peer_that_answers_is_kept) {
  Pair p;
  p.connect();
  p.pass(60 * kSecond);
  EXPECT_EQ(p.link[0]->state(), PeerLink::State::ready);
  // Each side sends a ping twice a second at most.
  EXPECT_LE(p.link[0]->stats().pings, 121U);
  EXPECT_GE(p.link[0]->stats().pings + p.link[1]->stats().pings, 60U);
}

TEST(PeerLink, timers_do_not_pile_up) {
  Pair p;
  p.sources[1].put(0, 100);
  p.connect();
  for (int i = 0; i < 200; ++i) {
    const auto got = fetch(p, 0, {0}, p.in(100 * kMs));
    ASSERT_TRUE(p.until([&] { return got->done; }));
  }
  p.pass(5 * kSecond);
  const uint64_t before = p.sim.steps();
  p.pass(10 * kSecond);
  EXPECT_LT(p.sim.steps() - before, 400U);
}

TEST(PeerLink, a_stall_of_this_process_is_not_held_against_the_peer) {
  Pair p;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  p.pass(3 * kSecond);
  p.nodes[0].freeze();
  p.nodes[1].freeze();
  p.sim.advance(60 * kSecond);
  p.nodes[0].thaw();
  p.nodes[1].thaw();
  p.pass(5 * kSecond);
  EXPECT_EQ(p.link[0]->state(), PeerLink::State::ready);
  EXPECT_EQ(p.link[1]->state(), PeerLink::State::ready);
}

TEST(PeerLink, cancel_ends_an_operation_with_that) {
  Pair p;
  p.sources[1].put(0, 5000);
  p.sources[1].max_open_ns = kSecond;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  uint64_t name = 0;
  const auto got = fetch(p, 0, {0}, kNever, 20000, &name);
  EXPECT_TRUE(p.link[0]->cancel(name));
  EXPECT_FALSE(p.link[0]->cancel(name));
  ASSERT_TRUE(p.until([&] { return got->done && p.quiet == 1; }));
  EXPECT_EQ(got->items[0].status, Code::cancelled);
  p.pass(2 * kSecond);
  EXPECT_EQ(p.sources[1].holds(), 0U);
}

TEST(PeerLink, a_full_quarantine_refuses_more_fetches) {
  Pair p;
  p.host(0).limits.quarantine_bytes = 10000;
  p.sources[1].put(0, 5000);
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  uint64_t name = 0;
  const auto first = fetch(p, 0, {0}, kNever, 20000, &name);
  p.link[0]->cancel(name);
  const auto second = fetch(p, 0, {0}, kNever);
  ASSERT_TRUE(p.until([&] { return second->done; }));
  EXPECT_EQ(second->items[0].status, Code::no_room);
  ASSERT_TRUE(p.until([&] { return p.quiet == 1; }));
  const auto third = fetch(p, 0, {0}, kNever);
  ASSERT_TRUE(p.until([&] { return third->done; }));
  EXPECT_EQ(third->items[0].status, Code::ok);
}

struct Leased {
  std::vector<FindBatch::Lease> leases;
  bool done = false;
};

std::shared_ptr<Leased> lease(Pair& p, const std::vector<uint64_t>& numbers, uint64_t ns) {
  auto out = std::make_shared<Leased>();
  auto batch = std::make_unique<FindBatch>();
  for (const uint64_t n : numbers) batch->ids.push_back(p.id(n));
  batch->deadline_ns = p.in(kSecond);
  batch->lease_ns = ns;
  batch->done = [out](FindBatch& b) {
    out->leases = b.leases;
    out->done = true;
  };
  p.link[0]->find(std::move(batch));
  return out;
}

TEST(PeerLink, a_lease_holds_records_until_it_is_released_or_ends) {
  Pair p;
  for (uint64_t n = 0; n < 4; ++n) p.sources[1].put(n, 100);
  p.connect();
  const auto first = lease(p, {0, 1, 9}, 20 * kSecond);
  const auto second = lease(p, {2}, kSecond);
  ASSERT_TRUE(p.until([&] { return first->done && second->done; }));
  ASSERT_EQ(first->leases.size(), 1U);
  EXPECT_EQ(p.sources[1].holds(), 3U);
  p.sources[1].evict(0);
  const auto got = fetch(p, 0, {0}, p.in(kSecond));  // leaving, but held
  ASSERT_TRUE(p.until([&] { return got->done; }));
  EXPECT_EQ(got->items[0].status, Code::ok);
  p.link[0]->release(std::span(&first->leases[0].id, 1));
  p.pass(100 * kMs);
  EXPECT_EQ(p.sources[1].holds(), 1U);
  p.pass(2 * kSecond);
  EXPECT_EQ(p.sources[1].holds(), 0U);
  EXPECT_EQ(p.link[1]->stats().leases_expired, 1U);
}

TEST(PeerLink, a_lease_can_be_renewed_while_it_lives) {
  Pair p;
  p.sources[1].put(0, 100);
  p.connect();
  const auto held = lease(p, {0}, kSecond);
  ASSERT_TRUE(p.until([&] { return held->done; }));
  uint64_t granted = 1;
  Code code = Code::ok;
  const auto said = [&](Code c, uint64_t ns) {
    code = c;
    granted = ns;
  };
  p.link[0]->renew(held->leases[0].id, 5 * kSecond, p.in(kSecond), said);
  p.pass(3 * kSecond);
  EXPECT_EQ(granted, 5 * kSecond);
  EXPECT_EQ(p.sources[1].holds(), 1U);
  p.pass(3 * kSecond);
  EXPECT_EQ(p.sources[1].holds(), 0U);
  p.link[0]->renew(held->leases[0].id, 5 * kSecond, p.in(kSecond), said);
  p.pass(kSecond);
  EXPECT_EQ(code, Code::stale_handle);
  EXPECT_EQ(granted, 0U);
}

TEST(PeerLink, leases_hold_their_share_of_the_host_and_no_more) {
  Pair p;
  p.sources[1].has_room.leased = 5;
  for (uint64_t n = 0; n < 20; ++n) p.sources[1].put(n, 100);
  p.connect();
  std::vector<uint64_t> all(20);
  std::iota(all.begin(), all.end(), uint64_t{0});
  const auto first = lease(p, all, 20 * kSecond);
  ASSERT_TRUE(p.until([&] { return first->done; }));
  EXPECT_EQ(p.sources[1].holds(), 5U);
  EXPECT_EQ(p.link[1]->stats().leases_short, 15U);
  ASSERT_EQ(first->leases.size(), 1U);
  const auto second = lease(p, all, 20 * kSecond);
  ASSERT_TRUE(p.until([&] { return second->done; }));
  EXPECT_EQ(p.sources[1].holds(), 5U);
  EXPECT_TRUE(second->leases.empty());
  // Leases of offers count against the same share.
  auto batch = std::make_unique<OfferBatch>();
  batch->items.push_back({p.id(9), 0, 0, 200, 100, 0});
  batch->deadline_ns = p.in(kSecond);
  batch->lease_ns = kSecond;
  Code code = Code::ok;
  batch->done = [&](OfferBatch& b) { code = b.status; };
  EXPECT_EQ(p.link[1]->lease_room(), 0U);
  p.link[1]->offer(std::move(batch));
  p.pass(100 * kMs);
  EXPECT_NE(code, Code::ok);
  p.link[0]->release(std::span(&first->leases[0].id, 1));
  p.pass(100 * kMs);
  EXPECT_EQ(p.sources[1].holds(), 0U);
  EXPECT_EQ(p.link[1]->lease_room(), 5U);
}

TEST(PeerLink, a_lease_is_not_renewed_for_ever) {
  Pair p;
  p.sources[1].put(0, 100);
  p.connect();
  const uint64_t longest = p.host(1).limits.lease_ns * p.host(1).limits.lease_renewals;
  const auto held = lease(p, {0}, kSecond);
  ASSERT_TRUE(p.until([&] { return held->done; }));
  const uint64_t began = p.sim.clock().now_ns();
  uint64_t granted = 1;
  for (int i = 0; i < 100 && granted != 0; ++i) {
    p.link[0]->renew(held->leases[0].id, 20 * kSecond, p.in(kSecond), [&](Code, uint64_t ns) { granted = ns; });
    p.pass(10 * kSecond);
    EXPECT_TRUE(granted == 0 || p.sim.clock().now_ns() - began < longest + 11 * kSecond);
  }
  EXPECT_EQ(granted, 0U);
  EXPECT_EQ(p.sources[1].holds(), 0U);
  EXPECT_GE(p.sim.clock().now_ns() - began, longest);
}

TEST(PeerLink, records_are_open_for_a_peer_as_far_as_there_is_room) {
  Pair p;
  p.sources[1].has_room.open = 3;
  std::vector<uint64_t> all(30);
  std::iota(all.begin(), all.end(), uint64_t{0});
  for (const uint64_t n : all) p.sources[1].put(n, 100);
  p.connect();
  const auto got = fetch(p, 0, all, p.in(20 * kSecond));
  uint64_t most = 0;
  ASSERT_TRUE(p.until([&] {
    most = std::max(most, p.link[1]->stats().open_records);
    return got->done;
  }));
  EXPECT_EQ(most, 3U);
  for (const FetchItem& item : got->items) EXPECT_EQ(item.status, Code::ok);
  p.pass(100 * kMs);
  EXPECT_EQ(p.host(1).open.held(), 0U);
}

TEST(PeerLink, a_lease_that_comes_after_the_deadline_is_given_back) {
  Pair p;
  p.sources[1].put(0, 100);
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  int late = 0;
  for (int i = 0; i < 30; ++i) {
    auto batch = std::make_unique<FindBatch>();
    batch->ids.push_back(p.id(0));
    batch->deadline_ns = p.in(2 * kMs);
    batch->lease_ns = 20 * kSecond;
    batch->done = [&](FindBatch& b) {
      late += b.status[0] == Code::deadline ? 1 : 0;
      for (const auto& held : b.leases) p.link[0]->release(std::span(&held.id, 1));
    };
    p.link[0]->find(std::move(batch));
    p.pass(100 * kMs);
    ASSERT_EQ(p.sources[1].holds(), 0U);
  }
  EXPECT_GT(late, 0);
  EXPECT_LT(late, 30);
}

TEST(PeerLink, leases_end_with_the_connection) {
  Pair p;
  p.sources[1].put(0, 100);
  p.connect();
  const auto held = lease(p, {0}, 20 * kSecond);
  ASSERT_TRUE(p.until([&] { return held->done; }));
  p.link[0]->close();
  ASSERT_TRUE(p.until([&] { return p.ends.size() == 2; }));
  EXPECT_EQ(p.sources[1].holds(), 0U);
}

TEST(PeerLink, offers_are_held_for_whoever_wants_them) {
  Pair p;
  for (uint64_t n = 0; n < 3; ++n) p.sources[0].put(n, 100);
  p.connect();
  auto batch = std::make_unique<OfferBatch>();
  for (uint64_t n = 0; n < 3; ++n) batch->items.push_back({p.id(n), 3, 1, 200, 100, 7});
  batch->deadline_ns = p.in(kSecond);
  batch->lease_ns = 10 * kSecond;
  std::vector<uint32_t> wanted;
  bool done = false;
  batch->done = [&](OfferBatch& b) {
    EXPECT_EQ(b.status, Code::ok);
    wanted = b.wanted;
    done = true;
  };
  p.link[0]->offer(std::move(batch));
  ASSERT_TRUE(p.until([&] { return done; }));
  EXPECT_EQ(wanted, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(p.sources[0].holds(), 3U);
  ASSERT_EQ(p.last_offered.size(), 3U);
  EXPECT_EQ(p.last_offered[1].id, p.id(1));
  EXPECT_EQ(p.last_offered[1].uses, 3);
  for (uint64_t n = 0; n < 3; ++n) p.sources[0].evict(n);
  const auto got = fetch(p, 1, {1, 2}, p.in(kSecond));
  ASSERT_TRUE(p.until([&] { return got->done; }));
  EXPECT_EQ(got->items[0].status, Code::ok);
  EXPECT_EQ(got->items[1].status, Code::ok);
  p.link[1]->release(std::span(&p.offered_lease, 1));
  p.pass(100 * kMs);
  EXPECT_EQ(p.sources[0].holds(), 0U);
}

TEST(PeerLink, an_offer_of_what_is_gone_ends_at_once) {
  Pair p;
  p.connect();
  auto batch = std::make_unique<OfferBatch>();
  batch->items.push_back({p.id(0), 0, 0, 0, 0, 0});
  batch->lease_ns = kSecond;
  bool done = false;
  batch->done = [&](OfferBatch& b) { done = b.status != Code::ok; };
  p.link[0]->offer(std::move(batch));
  ASSERT_TRUE(p.until([&] { return done; }));
}

TEST(PeerLink, an_offer_that_nobody_wants_holds_nothing) {
  Pair p;
  p.sources[0].put(0, 100);
  p.connect();
  auto batch = std::make_unique<OfferBatch>();
  batch->items.push_back({p.id(0), 0, 0, 200, 100, 0});  // the test's listener never wants the first
  batch->lease_ns = 10 * kSecond;
  batch->deadline_ns = p.in(kSecond);
  bool done = false;
  batch->done = [&](OfferBatch& b) { done = b.status == Code::ok && b.wanted.empty(); };
  p.link[0]->offer(std::move(batch));
  ASSERT_TRUE(p.until([&] { return done; }));
  p.pass(kMs);
  EXPECT_EQ(p.sources[0].holds(), 0U);
}

TEST(PeerLink, status_invalidations_and_session_messages_arrive) {
  Pair p;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  uint64_t weight = 0;
  Code code = Code::internal;
  p.link[0]->ask_status(p.in(kSecond), [&](Code, const wire::NodeStatus& status) { weight = status.weight; });
  p.link[0]->invalidate(NamespaceId{{7}}, 3, p.in(kSecond), [&](Code c) { code = c; });
  const std::vector<std::byte> bytes(1000, std::byte{9});
  EXPECT_EQ(p.link[1]->send_session(bytes), Code::ok);
  p.pass(100 * kMs);
  EXPECT_EQ(weight, uint64_t{1} << 30);
  EXPECT_EQ(code, Code::ok);
  EXPECT_EQ(p.sources[1].epochs[NamespaceId{{7}}], 3U);
  ASSERT_EQ(p.session.size(), 1U);
  EXPECT_EQ(p.session[0], bytes);
}

NamespaceId base_of(uint64_t n) {
  NamespaceId out;
  std::memcpy(out.bytes.data(), &n, sizeof n);
  return out;
}

// Invalidations that arrive during a write are merged by namespace, so that a burst costs few writes.
TEST(PeerLink, a_burst_of_invalidations_is_written_in_few_batches) {
  Pair p;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  p.sources[1].holds_epochs = true;
  std::vector<Code> codes;
  for (uint64_t i = 0; i < 40; ++i) {
    p.link[0]->invalidate(base_of(1 + i % 4), 1 + i, kNever, [&](Code c) { codes.push_back(c); });
  }
  p.pass(200 * kMs);
  EXPECT_EQ(p.sources[1].epoch_batches, (std::vector<size_t>{1}));
  EXPECT_TRUE(codes.empty());
  for (int i = 0; i < 10; ++i) {
    p.sources[1].answer_epochs();
    p.pass(200 * kMs);
  }
  ASSERT_LE(p.sources[1].epoch_batches.size(), 8U);
  for (const size_t words : p.sources[1].epoch_batches) EXPECT_LE(words, 4U);
  EXPECT_EQ(codes, std::vector<Code>(40, Code::ok));
  for (uint64_t n = 1; n <= 4; ++n) EXPECT_EQ(p.sources[1].epochs[base_of(n)], 36 + n);
}

TEST(PeerLink, invalidations_beyond_the_list_are_put_off) {
  Pair p;
  p.host(0).limits.requests = p.host(0).self.request_limit = 500;
  p.host(1).limits.requests = p.host(1).self.request_limit = 500;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  p.sources[1].holds_epochs = true;
  size_t ok = 0, again = 0;
  const size_t fit = 1 + p.host(1).limits.epochs_waiting;
  for (uint64_t i = 0; i < fit + 7; ++i) {
    p.link[0]->invalidate(base_of(1), 1 + i, kNever, [&](Code c) { ++(c == Code::ok ? ok : again); });
  }
  p.pass(200 * kMs);
  EXPECT_EQ(again, 7U);
  EXPECT_EQ(p.link[1]->stats().epochs_put_off, 7U);
  for (int i = 0; i < 2; ++i) {
    p.sources[1].answer_epochs();
    p.pass(200 * kMs);
  }
  EXPECT_EQ(ok, fit);
  EXPECT_EQ(p.sources[1].epoch_batches.size(), 2U);
}

TEST(PeerLink, one_connection_adds_as_many_unused_namespaces_as_it_may) {
  Pair p;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  const uint64_t most = p.host(1).limits.new_epochs;
  size_t ok = 0, at_limit = 0;
  for (uint64_t n = 0; n < most + 9; ++n) {
    p.link[0]->invalidate(base_of(1 + n), 1, kNever, [&](Code c) {
      ok += c == Code::ok ? 1 : 0;
      at_limit += c == Code::at_limit ? 1 : 0;
    });
    p.pass(10 * kMs);
  }
  EXPECT_EQ(ok, most);
  EXPECT_EQ(at_limit, 9U);
  EXPECT_EQ(p.link[1]->stats().epochs_refused, 9U);
  EXPECT_EQ(p.sources[1].epochs.size(), most);
  EXPECT_EQ(p.link[1]->state(), PeerLink::State::ready);
}

TEST(PeerLink, an_epoch_that_is_not_plausible_is_refused_and_said_once) {
  Pair p;
  size_t lines = 0;
  Log log;
  log.set_sink([](void* n, const LogMessage&) { ++*static_cast<size_t*>(n); }, &lines, LogLevel::warning);
  p.host(1).log = &log;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  std::vector<Code> codes;
  for (uint64_t n = 0; n < 5; ++n) {
    p.link[0]->invalidate(base_of(1 + n), UINT64_MAX, kNever, [&](Code c) { codes.push_back(c); });
    p.pass(10 * kMs);
  }
  EXPECT_EQ(codes, std::vector<Code>(5, Code::invalid_argument));
  EXPECT_EQ(p.link[1]->stats().violations, 5U);
  EXPECT_EQ(lines, 1U);
  EXPECT_TRUE(p.sources[1].epochs.empty());
  EXPECT_EQ(p.link[0]->state(), PeerLink::State::ready);
}

TEST(PeerLink, who_is_behind_is_told_the_later_epoch) {
  Pair p;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  p.sources[1].epochs[base_of(1)] = 5;
  Code code = Code::internal;
  p.link[0]->invalidate(base_of(1), 0, kNever, [&](Code c) { code = c; });
  p.pass(100 * kMs);
  EXPECT_EQ(code, Code::ok);
  EXPECT_EQ(p.sources[0].epochs[base_of(1)], 5U);
  EXPECT_EQ(p.sources[1].epoch_batches.size(), 1U) << "nobody is told what it has said";
}

TEST(PeerLink, goodbye_ends_both_sides_with_a_word) {
  Pair p;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  p.link[0]->close();
  ASSERT_TRUE(p.until([&] { return p.ends.size() == 2; }));
  EXPECT_EQ(p.link[0]->state(), PeerLink::State::ended);
  EXPECT_EQ(p.link[1]->state(), PeerLink::State::ended);
}

TEST(PeerLink, an_end_is_told_however_often_its_operations_begin_others) {
  Pair p;
  p.connect();
  ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
  int asked = 0;
  UniqueFunction<void()> ask = [&] {
    auto batch = std::make_unique<FindBatch>();
    batch->ids.push_back(p.id(1));
    batch->done = [&](FindBatch&) {
      if (asked < 300) ask();
    };
    ++asked;
    p.link[0]->find(std::move(batch));
  };
  p.nodes[1].freeze();
  ask();
  p.pass(10 * kMs);
  ASSERT_EQ(asked, 1);
  p.link[0]->drop({Code::closed, "over"});
  p.nodes[1].thaw();
  p.pass(10 * kSecond);
  EXPECT_EQ(asked, 300);
  EXPECT_EQ(p.ends.size(), 2U);
}

TEST(PeerLink, a_wrong_key_ends_both_sides_and_their_operations) {
  Pair p;
  p.host(1).key = SharedKey{1};
  p.connect();
  const auto got = fetch(p, 0, {0}, kNever);
  ASSERT_TRUE(p.until([&] { return got->done && p.ends.size() == 2; }));
  EXPECT_EQ(got->items[0].status, Code::owner_gone);
  EXPECT_EQ(p.link[1]->stats().violations, 1U);  // the responder gets the proof first
  EXPECT_EQ(p.link[0]->stats().violations, 0U);
  EXPECT_NE((p.ends[0].message() + p.ends[1].message()).find("wrong key"), std::string::npos);
}

TEST(PeerLink, a_stranger_that_says_nothing_is_cut_off) {
  Pair p;
  p.connection = std::make_shared<SimConnection>(p.sim, p.faults, p.nodes[0], p.nodes[1]);
  p.link[1] = PeerLink::create(p.host(1), p.connection->port(1), Role::responder);
  p.connection->attach(1, p.link[1]);
  ASSERT_TRUE(p.until([&] { return p.ends.size() == 1; }));
  EXPECT_EQ(p.ends[0].code(), Code::deadline);
}

TEST(PeerLink, every_changed_control_message_ends_the_connection_and_is_counted) {
  int counted = 0;
  for (uint64_t seed = 1; seed < 40; ++seed) {
    Pair p(seed);
    p.connect();
    ASSERT_TRUE(p.until([&] { return p.ready == 2; }));
    p.faults.garble_message = 1;
    bool done = false;
    p.link[0]->ask_status(p.in(3 * kSecond), [&](Code code, const wire::NodeStatus&) {
      done = true;
      EXPECT_EQ(code, Code::owner_gone);
    });
    ASSERT_TRUE(p.until([&] { return done; }));
    counted += static_cast<int>(p.link[0]->stats().violations + p.link[1]->stats().violations);
  }
  EXPECT_GE(counted, 39);
}

TEST(Backoff, doubles_with_jitter_up_to_its_bound_and_starts_over) {
  SeededRandom random(9);
  Backoff backoff(random, 100, 1000);
  const uint64_t most[] = {100, 200, 400, 800, 1000, 1000};
  for (const uint64_t bound : most) {
    const uint64_t wait = backoff.wait_ns();
    EXPECT_LE(wait, bound);
    EXPECT_GE(wait, bound / 2);
  }
  backoff.succeeded();
  EXPECT_LE(backoff.wait_ns(), 100U);
}

}  // namespace
}  // namespace kvbm::cluster::peer_link_test
