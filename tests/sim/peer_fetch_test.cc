// Reads from another node in the simulation: records that are lent or copied, leaves garbled on the network,
// connections that break and deadlines that pass within a record. One test has staging for one record only.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "cluster/mesh/mesh.h"
#include "cluster/tier/peer_tier.h"
#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"
#include "support/link_world.h"
#include "support/sim_executor.h"
#include "support/sim_network.h"

namespace {
// Allocations of at least so many bytes are refused.
size_t refused_bytes = SIZE_MAX;
}  // namespace

// Replaces the function that staging is allocated with, so that a test can make allocations fail.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  void* out = nullptr;
  if (bytes >= refused_bytes || posix_memalign(&out, alignment, bytes) != 0) return nullptr;
  return out;
}

namespace kvbm::test {
namespace {

using namespace cluster;

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kPayload = 600'000;  // several leaves, several chunks
constexpr size_t kSmall = 5000;
constexpr uint64_t kTwoRecords = 1'250'000;  // of staging

// One node: its links, and the records that it serves.
struct Place {
  Place(SimExecutor& sim, SimNetwork& net, SimNetwork::Node node, FamilyTable& families, std::vector<std::string> peers)
      : own(sim), source(own, sim, families) {
    MeshOptions options;
    options.self.node = node_id_of("node" + std::to_string(node));
    options.self.incarnation = sim.random().next();
    options.self.pool = "pool";
    options.self.request_limit = 16;
    options.key = SharedKey{};
    options.unprotected_beyond = true;  // damage on the way is what the layers above are tested with
    options.listen = SimNetwork::host(node) + ":7000";
    options.peers = std::move(peers);
    mesh = std::make_unique<Mesh>(options, families, sim.random(), &log);
    transport = copy::Transport::open(net.ops(node), {}, *mesh).value();
    net.on_wake(node, [this, &net, node] {
      net.executor(node).post([this] {
        while (transport->progress()) {
        }
      });
    });
    mesh->attach(*transport, net.executor(node));
    EXPECT_TRUE(mesh->begin(source).ok());
  }
  ~Place() { transport.reset(); }

  Log log;
  NodeExecutor own;
  SimSource source;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<copy::Transport> transport;
};

// Result of a get.
struct Got {
  std::vector<std::vector<std::byte>> heads, payloads;
  std::unique_ptr<tier::GetBatch> batch;
  uint64_t ended_ns = 0;
  int ends = 0;
};

struct World {
  explicit World(uint64_t seed, uint64_t staging = 8U << 20, size_t owners_in = 1)
      : sim(seed), net(sim), owners(owners_in) {
    const auto a = net.add_node();
    const auto b = net.add_node();
    owner = std::make_unique<Place>(sim, net, b, families, std::vector<std::string>{});
    std::vector<std::string> peers{SimNetwork::host(b) + ":7000"};
    if (owners == 2) {
      const auto c = net.add_node();
      other = std::make_unique<Place>(sim, net, c, families, std::vector<std::string>{});
      peers.push_back(SimNetwork::host(c) + ":7000");
    }
    reader = std::make_unique<Place>(sim, net, a, families, std::move(peers));
    PeerTierOptions options;
    options.staging_bytes = staging;
    options.location_bytes = 64 << 10;
    tier = std::make_unique<PeerTier>(options, net.executor(a), families, *reader->mesh);
    EXPECT_TRUE(connected());
  }
  ~World() {
    tier.reset();
    // As in a process: the links' thread ends with its tasks before the mesh goes.
    for (Place* place : {reader.get(), other.get(), owner.get()}) {
      if (place != nullptr) place->transport.reset();
    }
    sim.drop_all();
  }

  bool connected() {
    return sim.run_until_within([&] { return reader->mesh->ready().size() == owners; }, 30'000 * kMs);
  }
  Identity id(uint64_t n) { return SimSource::identity_of(families, n); }
  // Asks for the places of these records.
  void ask(uint64_t first, uint64_t n) {
    std::vector<Identity> ids;
    for (uint64_t i = 0; i < n; ++i) ids.push_back(id(first + i));
    bool answered = false;
    tier->ask(std::move(ids), sim.clock().now_ns() + 5000 * kMs, [&] { answered = true; });
    ASSERT_TRUE(sim.run_until_within([&] { return answered; }, 10'000 * kMs));
  }
  std::shared_ptr<Got> get(uint64_t first, size_t n, size_t payload, bool checks, bool borrows,
                           uint64_t deadline_ns = kNever) {
    auto got = std::make_shared<Got>();
    auto batch = std::make_unique<tier::GetBatch>();
    batch->accepts.verifies = checks;
    batch->accepts.borrows = borrows;
    batch->deadline_ns = deadline_ns;
    batch->items.resize(n);
    got->heads.assign(n, std::vector<std::byte>(16384));
    got->payloads.assign(n, std::vector<std::byte>(payload));
    for (size_t i = 0; i < n; ++i) {
      batch->items[i].id = id(first + i);
      batch->items[i].head = got->heads[i];
      batch->items[i].payload = got->payloads[i];
    }
    batch->done = [this, got](tier::GetBatch& done) {
      ++got->ends;
      got->ended_ns = sim.clock().now_ns();
      got->batch = std::make_unique<tier::GetBatch>();
      got->batch->items = done.items;
      got->batch->status = done.status;
    };
    tier->get(std::move(batch));
    return got;
  }
  bool until_ended(const Got& got) {
    return sim.run_until_within([&] { return got.ends != 0; }, 60'000 * kMs);
  }

  SimExecutor sim;
  SimNetwork net;
  FamilyTable families;
  const size_t owners;
  std::unique_ptr<Place> owner, other, reader;
  std::unique_ptr<PeerTier> tier;
};

bool same(ConstBytes bytes, uint64_t n, size_t size) {
  const auto right = SimSource::payload_of(n, size);
  return bytes.size() == size && std::equal(right.begin(), right.end(), bytes.begin());
}

// Returns whether each leaf matches the head, like a receiver that borrows.
bool leaves_fit(ConstBytes head_bytes, ConstBytes payload) {
  const auto head = codec::HeadView::parse(head_bytes);
  if (!head.ok() || head.value().header().stored_bytes != payload.size()) return false;
  for (uint32_t i = 0; i < head.value().header().leaf_count; ++i) {
    const codec::Leaf leaf = head.value().leaf(i);
    if (codec::leaf_hash(payload.subspan(leaf.offset, leaf.stored_bytes)) != leaf.hash) return false;
  }
  return true;
}

TEST(PeerFetchSim, lends_a_payload_until_the_receiver_lets_it_go) {
  World w(1);
  w.owner->source.put(1, kPayload);
  w.ask(1, 1);
  auto got = w.get(1, 1, kPayload, true, true);
  ASSERT_TRUE(w.until_ended(*got));
  ASSERT_EQ(got->batch->status[0], Code::ok);
  const tier::GetItem& item = got->batch->items[0];
  ASSERT_NE(item.lender, nullptr);
  EXPECT_TRUE(same(item.lent, 1, kPayload));
  EXPECT_EQ(got->payloads[0], std::vector<std::byte>(kPayload));  // untouched
  bool closed = false;
  w.tier->shutdown([&] { closed = true; });
  EXPECT_FALSE(w.sim.run_until_within([&] { return closed; }, 1000 * kMs)) << "it ended before what it lent came back";
  EXPECT_TRUE(same(item.lent, 1, kPayload));
  got->batch.reset();
  EXPECT_TRUE(w.sim.run_until_within([&] { return closed; }, 1000 * kMs));
}

TEST(PeerFetchSim, copies_what_is_not_lent) {
  World w(2);
  for (uint64_t n = 0; n < 4; ++n) w.owner->source.put(n, n % 2 == 0 ? kSmall : kPayload);
  w.ask(0, 4);
  for (const bool checks : {false, true}) {
    const auto got = w.get(0, 4, kPayload, checks, false);
    ASSERT_TRUE(w.until_ended(*got));
    for (uint64_t n = 0; n < 4; ++n) {
      ASSERT_EQ(got->batch->status[n], Code::ok) << n;
      EXPECT_EQ(got->batch->items[n].lender, nullptr);
      const size_t size = n % 2 == 0 ? kSmall : kPayload;
      EXPECT_TRUE(same(ConstBytes(got->payloads[n]).first(size), n, size)) << n;
    }
  }
}

TEST(PeerFetchSim, a_leaf_that_was_garbled_on_the_way_is_never_taken_for_right) {
  World w(3, 64U << 20);
  constexpr uint64_t kRecords = 24;
  for (uint64_t n = 0; n < kRecords; ++n) w.owner->source.put(n, kPayload);
  w.net.faults.flip_bulk = 0.02;
  size_t right = 0, wrong = 0, found_wrong = 0;
  for (int round = 0; round < 3; ++round) {  // copied and verified, copied for a caller that verifies, lent
    w.ask(0, kRecords);
    const auto got = w.get(0, kRecords, kPayload, round > 0, round > 1);
    ASSERT_TRUE(w.until_ended(*got));
    EXPECT_EQ(got->ends, 1);
    for (uint64_t n = 0; n < kRecords; ++n) {
      if (got->batch->status[n] != Code::ok) {
        ++wrong;
        continue;
      }
      tier::GetItem& item = got->batch->items[n];
      const ConstBytes payload = item.lender != nullptr ? item.lent : ConstBytes(got->payloads[n]);
      const bool fits = leaves_fit(ConstBytes(got->heads[n]).first(item.head_bytes), payload);
      EXPECT_EQ(fits, same(payload, n, kPayload)) << n;
      EXPECT_TRUE(fits || round != 0) << n;
      ++(fits ? right : found_wrong);
      if (!fits) w.tier->reject(item.id, item.location);
    }
  }
  EXPECT_GT(right, 10U);
  EXPECT_GT(wrong, 2U);
  EXPECT_GT(found_wrong, 5U);
}

TEST(PeerFetchSim, a_connection_that_breaks_in_the_middle_ends_each_record_once_and_keeps_no_staging) {
  for (uint64_t seed = 10; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    World w(seed, seed % 2 == 0 ? 6'200'000 : 1U << 20);  // ten records, of which half may be lent, or one
    for (uint64_t n = 0; n < 5; ++n) w.owner->source.put(n, kPayload);
    w.ask(0, 5);
    w.net.link(0, 1).bytes_per_ms = 100'000;
    const auto got = w.get(0, 5, kPayload, true, seed % 2 == 0);
    w.sim.run_for((1 + seed % 9) * kMs);
    w.net.break_connections(0, 1);
    // Lent staging blocks the other reads until the loan is returned or the link to their node is seen to be down.
    ASSERT_TRUE(w.until_ended(*got));
    EXPECT_EQ(got->ends, 1);
    for (uint64_t n = 0; n < 5; ++n) {
      if (got->batch->status[n] != Code::ok) continue;
      tier::GetItem& item = got->batch->items[n];
      EXPECT_TRUE(same(item.lender != nullptr ? item.lent : ConstBytes(got->payloads[n]), n, kPayload));
    }
    got->batch->items.clear();
    ASSERT_TRUE(w.connected());
    w.net.link(0, 1).bytes_per_ms = 0;
    w.ask(0, 5);
    const auto again = w.get(0, 5, kPayload, true, false);
    ASSERT_TRUE(w.until_ended(*again));
    for (uint64_t n = 0; n < 5; ++n) EXPECT_EQ(again->batch->status[n], Code::ok) << n;
  }
}

TEST(PeerFetchSim, at_a_deadline_in_the_middle_the_callers_memory_is_free_and_the_staging_comes_back) {
  for (const bool borrows : {false, true}) {
    World w(40, kTwoRecords);
    w.owner->source.put(1, kPayload);
    w.ask(1, 1);
    for (int round = 0; round < 4; ++round) {
      w.net.link(0, 1).bytes_per_ms = 50'000;  // 12 ms for one
      const uint64_t before = w.net.bulk_bytes();
      const uint64_t deadline = w.sim.clock().now_ns() + 6 * kMs;
      const auto got = w.get(1, 1, kPayload, true, borrows, deadline);
      ASSERT_TRUE(w.until_ended(*got));
      EXPECT_EQ(got->batch->status[0], Code::deadline);
      EXPECT_GE(got->ended_ns, deadline);
      EXPECT_LE(got->ended_ns, deadline + kMs);
      EXPECT_GT(w.net.bulk_bytes(), before) << "nothing was on its way";
      EXPECT_LT(w.net.bulk_bytes(), before + kPayload);
      std::fill(got->payloads[0].begin(), got->payloads[0].end(), std::byte{0x5A});
      w.sim.run_for(500 * kMs);
      EXPECT_EQ(got->payloads[0], std::vector<std::byte>(kPayload, std::byte{0x5A}));
      w.net.link(0, 1).bytes_per_ms = 0;
      const auto again = w.get(1, 1, kPayload, true, borrows);
      ASSERT_TRUE(w.until_ended(*again));
      EXPECT_EQ(again->batch->status[0], Code::ok);
    }
  }
}

TEST(PeerFetchSim, what_waits_for_staging_ends_at_its_own_deadline_or_comes_when_there_is_room) {
  World w(50, kTwoRecords);
  for (uint64_t n = 0; n < 4; ++n) w.owner->source.put(n, kPayload);
  w.ask(0, 4);
  const auto first = w.get(0, 1, kPayload, true, true);
  const auto second = w.get(1, 1, kPayload, true, true);
  ASSERT_TRUE(w.until_ended(*first) && w.until_ended(*second));
  ASSERT_NE(first->batch->items[0].lender, nullptr);
  ASSERT_NE(second->batch->items[0].lender, nullptr);  // and all the staging that there is is lent
  const uint64_t deadline = w.sim.clock().now_ns() + 10 * kMs;
  const auto patient = w.get(2, 1, kPayload, true, true);
  const auto late = w.get(3, 1, kPayload, true, true, deadline);
  ASSERT_TRUE(w.until_ended(*late));
  EXPECT_EQ(late->batch->status[0], Code::deadline);
  EXPECT_GE(late->ended_ns, deadline);
  EXPECT_LE(late->ended_ns, deadline + kMs);
  EXPECT_EQ(patient->ends, 0);
  first->batch.reset();
  ASSERT_TRUE(w.until_ended(*patient));
  EXPECT_EQ(patient->batch->status[0], Code::ok);
  EXPECT_TRUE(same(patient->batch->items[0].lent, 2, kPayload));
}

TEST(PeerFetchSim, a_record_that_no_staging_is_large_enough_for_does_not_keep_another_nodes_record_waiting) {
  World w(70, kTwoRecords, 2);
  w.owner->source.put(1, 2 * kTwoRecords);
  w.other->source.put(2, kPayload);
  w.ask(1, 2);
  const auto got = w.get(1, 2, 2 * kTwoRecords, true, false);
  ASSERT_TRUE(w.until_ended(*got));
  EXPECT_NE(got->batch->status[0], Code::ok);
  EXPECT_EQ(got->batch->status[1], Code::ok);
}

TEST(PeerFetchSim, a_record_that_there_is_no_memory_for_ends_where_no_staging_can_come_back) {
  World w(80);
  for (uint64_t n = 1; n < 3; ++n) w.owner->source.put(n, kPayload);
  w.ask(1, 2);
  refused_bytes = kPayload;
  const auto got = w.get(1, 2, kPayload, true, true);
  const bool ended = w.until_ended(*got);
  refused_bytes = SIZE_MAX;
  ASSERT_TRUE(ended);
  for (const Code code : got->batch->status) EXPECT_EQ(code, Code::no_memory);
  // If some staging is in use, the item waits for it.
  const auto held = w.get(1, 1, kPayload, true, true);
  ASSERT_TRUE(w.until_ended(*held));
  refused_bytes = kPayload;
  const auto waits = w.get(2, 1, kPayload, true, true);
  w.sim.run_for(500 * kMs);
  EXPECT_EQ(waits->ends, 0);
  held->batch.reset();
  const bool came = w.until_ended(*waits);
  refused_bytes = SIZE_MAX;
  ASSERT_TRUE(came);
  EXPECT_EQ(waits->batch->status[0], Code::ok);
}

TEST(PeerFetchSim, a_batch_that_is_larger_than_the_staging_comes_whole_whether_it_is_lent_or_not) {
  World w(60, kTwoRecords);
  for (uint64_t n = 0; n < 12; ++n) w.owner->source.put(n, n % 3 == 0 ? kPayload : kSmall);
  w.ask(0, 12);
  const auto got = w.get(0, 12, kPayload, true, true);
  ASSERT_TRUE(w.until_ended(*got));
  for (uint64_t n = 0; n < 12; ++n) EXPECT_EQ(got->batch->status[n], Code::ok) << n;
}

}  // namespace
}  // namespace kvbm::test
