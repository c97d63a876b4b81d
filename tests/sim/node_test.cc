// Managers as nodes of a pool, on one thread from a seed: real managers, meshes, peer tiers and links over the
// transport table and the simulated network, with cuts, broken connections, freezes, kills, restarts, garbled bytes,
// messages and chunks that come twice, exchanged or never, and clocks that begin anywhere, go at unequal speeds and jump.
//
// Invariants: a block that was brought from elsewhere has exactly the bytes that were stored under its key; every
// operation completes exactly once; without faults a block that some node has is found and comes; at rest no node holds
// anything for another; a seed run twice gives the same log. All of it plain, coded, sealed, and coded by choice and
// sealed. KVBMTEST_SIM_SEEDS says how many seeds (default 150), KVBMTEST_SIM_FIRST the first, KVBMTEST_LONG=1 makes it
// 5,000.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>

#include "cluster/coded_source.h"
#include "cluster/mesh.h"
#include "cluster/peer_tier.h"
#include "codec/zstd_leaf.h"
#include "manager/host_record.h"
#include "manager/lookup.h"
#include "manager/manager.h"
#include "manager/move.h"
#include "manager/node_source.h"
#include "manager/take.h"
#include "support/counts.h"
#include "support/sim_disk.h"
#include "support/sim_executor.h"
#include "support/sim_network.h"

// A killed process frees nothing: what a simulated one leaves behind is no leak.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

namespace kvbm::test {
namespace {

using namespace manager;

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kBlock = 200'000;  // several leaves
constexpr uint32_t kSlots = 24;
constexpr uint64_t kBlocks = 40;  // names in use
constexpr size_t kNodes = 3;

uint64_t bytes_of(uint64_t n) { return n % 3 == 0 ? kBlock : 1000 + 517 * n; }

Key key_of(uint64_t n) {
  Key k;
  const uint64_t low = (n + 1) * 0x9E3779B97F4A7C15ULL;
  std::memcpy(k.bytes.data(), &low, sizeof low);
  std::memcpy(k.bytes.data() + 8, &n, sizeof n);
  k.bytes[15] = 1;
  return k;
}

std::byte byte_of(uint64_t n, uint64_t at) { return static_cast<std::byte>((n * 31 + at * 7 + (at >> 8)) & 0xFF); }

// How records go over links: by number plain, coded, sealed, coded by choice and sealed.
cluster::LinkCoding coding_of(uint64_t number) {
  cluster::LinkCoding out;
  if (number % 4 == 1) out.mode = codec::Mode::zstd;
  out.automatic = number % 4 == 3;
  out.buffer_bytes = 1 << 20;  // four of the large ones
  if (number % 4 >= 2) {
    out.keys = codec::KeyRing::parse("7 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n").value();
  }
  return out;
}

// One process: a manager, and what makes it a node.
class Process {
 public:
  Process(SimExecutor& sim, SimNetwork& net, SimNetwork::Node node, std::vector<std::string> peers,
          const cluster::LinkCoding& coding)
      : sim_(sim), net_(net), node_(node), disk_(sim) {
    if (coding.in_use()) {
      coder_ = std::make_shared<cluster::LinkCoder>(coding, sim.random(), executor().clock(), &log_);
    }
    Options options;
    options.host.block_bytes = kBlock;
    options.host.capacity_bytes = 4096 + kSlots * (204800 + tier::HostArena::head_stride(kBlock));
    options.host.huge_pages = false;
    options.tiers.resize(1);
    options.tiers[0].admission = AdmissionKind::on_request;
    options.tiers[0].make = [this, &peers](TierIndex, FamilyTable& families, tier::TierListener*) {
      return make_tier(families, peers);
    };
    Environment environment;
    environment.executor = &executor();
    environment.files = &disk_;
    environment.random = &sim.random();
    environment.log = &log_;
    manager_ = Manager::create(environment, std::move(options)).value();
    NamespaceOptions who;
    who.model = "m";
    ns_ = manager_->open_namespace(std::move(who)).value();
    plan_ = ns_->plan({}).value();
    source_ = std::make_unique<NodeSource>(manager_, executor());
    mesh_->take_offers([this](cluster::PeerLink& link, std::span<const cluster::Offered> offered, uint64_t lease,
                              std::vector<uint32_t>& want) {
      take_offered(manager_, TierIndex{1}, *tier_, link, offered, lease, source_->links(), want);
    });
    if (coder_ != nullptr) {
      coded_source_ = std::make_unique<cluster::CodedSource>(*source_, coder_, executor(), executor(), manager_);
    }
    EXPECT_TRUE(mesh_->begin(coder_ != nullptr ? static_cast<cluster::RecordSource&>(*coded_source_) : *source_).ok());
  }

  Executor& executor() { return net_.executor(node_); }
  Manager& manager() { return *manager_; }
  cluster::Mesh& mesh() { return *mesh_; }
  NodeSource& source() { return *source_; }
  // Coded records that are on their way, or kept for nothing.
  uint64_t buffered() { return coder_ == nullptr ? 0 : coded_source_->buffered() + coded_source_->waiting(); }
  uint64_t coded() { return coder_ == nullptr ? 0 : coder_->counts().taken.coded; }
  uint64_t plain() { return coder_ == nullptr ? 0 : coder_->counts().taken.plain; }
  Namespace& ns() { return *ns_; }

  void store(uint64_t n) {
    SlotId slot = kNoSlot;
    if (manager_->allocate(block::kSharedAccount, {&slot, 1}, nullptr) != Code::ok) return;
    std::byte* payload = manager_->arena().payload(slot).data();
    for (uint64_t i = 0; i < bytes_of(n); ++i) payload[i] = byte_of(n, i);
    ASSERT_EQ(manager_->table().complete({&slot, 1}), Code::ok);
    manager_->arena().clear_head(slot);
    note_payload_bytes(*manager_, slot, bytes_of(n));
    const Key key = key_of(n);
    block::Publication what;
    what.family = plan_.family;
    what.keys = {&key, 1};
    Code code = Code::internal;
    ASSERT_EQ(manager_->publish({&slot, 1}, what, {}, manager_->arena().block_bytes(), {&code, 1}), Code::ok);
    manager_->release({&slot, 1});
  }

  // Offers it to its home.
  void push(uint64_t n) {
    ++begun;
    auto operation = std::make_shared<OffloadOperation>(
        manager_, TierIndex{1}, plan_.family, std::vector<Key>{key_of(n)}, after(3000 * kMs));
    operation->start([this](const copy::Completion& completion) {
      ++ended;
      pushed += completion.items_done;
    });
  }

  // Asks the others, brings what they have, and compares it.
  void fetch(uint64_t n) {
    ++begun;
    tier_->ask({{key_of(n), plan_.family}}, after(1000 * kMs), [this, n] { bring(n); });
  }

  // Compares the block if it is here.
  bool check(uint64_t n) {
    const SlotId slot = manager_->acquire_one(plan_.family, key_of(n));
    if (slot == kNoSlot) return false;
    const ConstBytes payload = manager_->arena().payload(slot);
    bool right = manager_->table().payload_bytes(slot) == bytes_of(n);
    for (uint64_t i = 0; right && i < bytes_of(n); ++i) right = payload[i] == byte_of(n, i);
    if (!right) ++wrong;
    manager_->release({&slot, 1});
    return true;
  }

  bool has(uint64_t n) { return check(n); }
  uint64_t after(uint64_t ns) { return executor().clock().now_ns() + ns; }

  uint64_t begun = 0, ended = 0, brought = 0, wrong = 0, pushed = 0;

 private:
  Result<std::unique_ptr<tier::Tier>> make_tier(FamilyTable& families, const std::vector<std::string>& peers) {
    cluster::MeshOptions options;
    options.self.node = cluster::node_id_of("node" + std::to_string(node_));
    options.self.incarnation = sim_.random().next();
    options.self.pool = "pool";
    options.self.request_limit = 16;
    options.key = cluster::SharedKey{};
    options.listen = SimNetwork::host(node_) + ":7000";
    options.peers = peers;
    mesh_ = std::make_unique<cluster::Mesh>(options, families, sim_.random(), &log_);
    transport_ = copy::Transport::open(net_.ops(node_), {}, *mesh_).value();
    net_.on_wake(node_, [this] {
      executor().post([this] {
        while (transport_->progress()) {
        }
      });
    });
    mesh_->attach(*transport_, executor());
    cluster::PeerTierOptions staging;
    staging.staging_bytes = 4 << 20;
    staging.location_bytes = 64 << 10;
    staging.coder = coder_;
    auto tier = std::make_unique<cluster::PeerTier>(staging, executor(), families, *mesh_);
    tier_ = tier.get();
    return std::unique_ptr<tier::Tier>(std::move(tier));
  }

  void bring(uint64_t n) {
    LookupRequest request;
    request.mode = LookupMode::each;
    const Key key = key_of(n);
    auto match = look_up(manager_, ns_, {&plan_, 1}, {&key, 1}, request);
    auto operation =
        std::make_shared<PrefetchOperation>(manager_, std::move(match), 1, after(3000 * kMs));
    operation->start([this, n](const copy::Completion& completion) {
      ++ended;
      if (completion.items_done != 0 && check(n)) ++brought;
    });
  }

  SimExecutor& sim_;
  SimNetwork& net_;
  const SimNetwork::Node node_;
  SimDisk disk_;
  Log log_;
  std::unique_ptr<cluster::Mesh> mesh_;
  std::unique_ptr<copy::Transport> transport_;
  cluster::PeerTier* tier_ = nullptr;
  std::shared_ptr<cluster::LinkCoder> coder_;
  std::unique_ptr<NodeSource> source_;
  std::unique_ptr<cluster::CodedSource> coded_source_;
  std::shared_ptr<Manager> manager_;
  std::shared_ptr<Namespace> ns_;
  PartPlan plan_;
};

struct World {
  explicit World(uint64_t seed, uint64_t how = 0) : sim(seed), net(sim), coding(coding_of(how)) {
    for (size_t i = 0; i < kNodes; ++i) {
      nodes.push_back(net.add_node());
      // Machines were started at different times, and no two clocks go alike.
      net.set_clock(nodes[i], sim.random().below(1'000'000'000 * kMs), 900 + sim.random().below(201));
    }
    for (size_t i = 0; i < kNodes; ++i) processes.push_back(start(i));
  }
  ~World() {
    for (auto& process : processes) (void)process.release();
    sim.drop_all();
  }
  std::unique_ptr<Process> start(size_t i) {
    std::vector<std::string> peers;
    for (size_t j = 0; j < kNodes; ++j) {
      if (j != i) peers.push_back(SimNetwork::host(nodes[j]) + ":7000");
    }
    return std::make_unique<Process>(sim, net, nodes[i], peers, coding);
  }
  bool connected() {
    for (auto& process : processes) {
      if (process->mesh().ready().size() + 1 != kNodes) return false;
    }
    return true;
  }
  bool idle() {
    for (auto& process : processes) {
      if (process->begun != process->ended) return false;
    }
    return true;
  }

  SimExecutor sim;
  SimNetwork net;
  const cluster::LinkCoding coding;
  std::vector<SimNetwork::Node> nodes;
  std::vector<std::unique_ptr<Process>> processes;
};

TEST(NodeSim, what_one_node_has_comes_to_another) {
  for (uint64_t how = 0; how < 4; ++how) {
    SCOPED_TRACE(how);
    World w(1, how);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
    for (uint64_t n = 0; n < 10; ++n) w.processes[n % 2]->store(n);
    for (uint64_t n = 0; n < 12; ++n) w.processes[2]->fetch(n);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
    EXPECT_EQ(w.processes[2]->brought, 10U);
    EXPECT_EQ(w.processes[2]->wrong, 0U);
    if (how == 1) {
      EXPECT_EQ(w.processes[2]->coded(), codec::has_zstd() ? 10U : 0U);  // these are opaque
    }
    if (how >= 2) {
      EXPECT_EQ(w.processes[2]->plain(), 0U);
    }
  }
}

TEST(NodeSim, what_is_pushed_is_at_its_home_and_nothing_stays_held) {
  World w(2, 2);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  w.sim.run_for(100 * kMs);  // for what each node offers to be known
  for (uint64_t n = 0; n < 10; ++n) w.processes[0]->store(n);
  for (uint64_t n = 0; n < 10; ++n) w.processes[0]->push(n);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
  EXPECT_EQ(w.processes[0]->pushed, 10U);
  for (uint64_t n = 0; n < 10; ++n) EXPECT_TRUE(w.processes[1]->has(n) || w.processes[2]->has(n)) << n;
  w.sim.run_for(100 * kMs);
  for (auto& process : w.processes) {
    EXPECT_EQ(process->source().pinned(), 0U);
    EXPECT_EQ(process->source().opened(), 0U);
    EXPECT_EQ(process->wrong, 0U);
  }
}

// A record that came garbled is given up by who offered it as soon as the node that wanted it has; what came right with
// it is stored, and the next try of the other is.
TEST(NodeSim, what_is_garbled_on_its_way_to_its_home_is_let_go_at_once) {
  for (uint64_t how = 0; how < 4; ++how) {
    SCOPED_TRACE(how);
    World w(4, how);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
    w.sim.run_for(100 * kMs);
    for (uint64_t n = 0; n < 10; ++n) w.processes[0]->store(n);
    w.net.faults.flip_bulk = 1;
    for (uint64_t n = 0; n < 10; ++n) w.processes[0]->push(n);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 1000 * kMs)) << "it waits for what will not come";
    EXPECT_LT(w.processes[0]->pushed, 10U);
    w.sim.run_for(100 * kMs);
    for (auto& process : w.processes) {
      EXPECT_EQ(process->source().pinned(), 0U);
      EXPECT_EQ(process->source().opened(), 0U);
    }
    w.net.faults.flip_bulk = 0;
    w.processes[0]->pushed = 0;
    for (uint64_t n = 0; n < 10; ++n) w.processes[0]->push(n);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 10'000 * kMs));
    EXPECT_EQ(w.processes[0]->pushed, 10U);
    for (uint64_t n = 0; n < 10; ++n) EXPECT_TRUE(w.processes[1]->has(n) || w.processes[2]->has(n)) << n;
    for (auto& process : w.processes) EXPECT_EQ(process->wrong, 0U);
  }
}

TEST(NodeSim, an_invalidated_namespace_moves_on_every_node) {
  World w(3);
  ASSERT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs));
  const NamespaceId before = w.processes[1]->ns().id();
  ASSERT_TRUE(w.processes[0]->manager().invalidate(w.processes[0]->ns()).ok());
  const NamespaceId after = w.processes[0]->ns().id();
  EXPECT_NE(before, after);
  ASSERT_TRUE(w.sim.run_until_within(
      [&] { return w.processes[1]->ns().id() == after && w.processes[2]->ns().id() == after; }, 2000 * kMs));
  w.sim.run_for(2000 * kMs);  // and then there is peace
  for (auto& process : w.processes) EXPECT_EQ(process->ns().epoch(), 1U);
}

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Seen {
  uint64_t begun = 0, brought = 0, pushed = 0, kills = 0, wrong = 0, coded = 0;
  SimNetwork::Counts network;
};

uint64_t run_seed(uint64_t seed, Seen& seen) {
  World w(seed, seed / 4);
  Random& random = w.sim.random();
  w.net.faults.flip_bulk = seed % 2 == 0 ? 0.02 : 0;
  w.net.faults.flip_message = seed % 4 == 0 ? 0.002 : 0;
  if (seed % 3 != 0) w.net.faults.repeat = w.net.faults.exchange = w.net.faults.drop = seed % 3 == 1 ? 0.003 : 0.01;
  w.sim.run_until_within([&] { return w.connected(); }, 5000 * kMs);
  for (int step = 0; step < 150; ++step) {
    const size_t i = random.below(kNodes);
    const size_t j = (i + 1 + random.below(kNodes - 1)) % kNodes;
    const uint64_t n = random.below(kBlocks);
    switch (random.below(17)) {
      case 0:
        w.net.cut(w.nodes[i], w.nodes[j]);
        break;
      case 1:
        w.net.break_connections(w.nodes[i], w.nodes[j]);
        break;
      case 2:
        if (!w.net.frozen(w.nodes[i])) w.net.freeze(w.nodes[i]);
        break;
      case 3: {
        if (random.below(3) != 0) break;
        Process& victim = *w.processes[i];
        seen.begun += victim.begun, seen.brought += victim.brought, seen.pushed += victim.pushed;
        seen.wrong += victim.wrong;
        w.net.thaw(w.nodes[i]);
        w.net.kill(w.nodes[i]);
        (void)w.processes[i].release();
        w.processes[i] = w.start(i);
        ++seen.kills;
        break;
      }
      case 4:
      case 5:
        for (size_t k = 0; k < kNodes; ++k) {
          w.net.heal(w.nodes[i], w.nodes[(i + 1 + k) % kNodes]);
          w.net.thaw(w.nodes[k]);
        }
        break;
      case 6:
        // A moment, or beyond every lease and every silence.
        w.net.skip(w.nodes[i], random.below(random.below(2) == 0 ? 300 * kMs : 100'000 * kMs));
        break;
      case 7:
      case 8:
      case 16:
        w.processes[i]->store(n);
        break;
      case 9:
      case 10:
        w.processes[i]->push(n);
        break;
      default:
        w.processes[i]->fetch(n);
    }
    w.sim.run_for(random.below(40) * kMs);
  }
  for (size_t i = 0; i < kNodes; ++i) {
    w.net.thaw(w.nodes[i]);
    for (size_t j = 0; j < kNodes; ++j) {
      if (i != j) w.net.heal(w.nodes[i], w.nodes[j]);
    }
  }
  w.net.faults = {};
  EXPECT_TRUE(w.sim.run_until_within([&] { return w.idle(); }, 60'000 * kMs)) << "an operation did not end";
  EXPECT_TRUE(w.sim.run_until_within([&] { return w.connected(); }, 30'000 * kMs))
      << "the nodes did not find each other again";
  w.sim.run_for(40'000 * kMs);  // beyond every lease
  for (auto& process : w.processes) {
    for (uint64_t n = 0; n < kBlocks; ++n) process->check(n);
    EXPECT_EQ(process->wrong, 0U);
    EXPECT_EQ(process->source().pinned(), 0U);
    EXPECT_EQ(process->source().opened(), 0U);
    EXPECT_EQ(process->buffered(), 0U);
    seen.coded += process->coded();
    seen.begun += process->begun, seen.brought += process->brought, seen.pushed += process->pushed;
    seen.wrong += process->wrong;
  }
  seen.network.repeated += w.net.counts().repeated, seen.network.exchanged += w.net.counts().exchanged;
  seen.network.dropped += w.net.counts().dropped, seen.network.skips += w.net.counts().skips;
  return w.sim.log_hash();
}

TEST(NodeSim, never_gives_a_wrong_block_and_ends_every_operation) {
  const uint64_t n = number("KVBMTEST_SIM_SEEDS", std::getenv("KVBMTEST_LONG") != nullptr ? 5000 : 150);
  const uint64_t first = number("KVBMTEST_SIM_FIRST", 1);
  Seen seen;
  for (uint64_t seed = first; seed < first + n && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_seed(seed, seen);
  }
  kvbm::test::counted(n, "seeds"), kvbm::test::counted(seen.begun, "simulated operations");
  kvbm::test::counted(seen.kills, "simulated kills");
  std::printf("  seeds %llu, operations %llu, blocks brought %llu, pushed %llu, kills %llu, wrong %llu\n",
              static_cast<unsigned long long>(n), static_cast<unsigned long long>(seen.begun),
              static_cast<unsigned long long>(seen.brought), static_cast<unsigned long long>(seen.pushed),
              static_cast<unsigned long long>(seen.kills), static_cast<unsigned long long>(seen.wrong));
  std::printf("  came twice %llu, exchanged %llu, never came %llu, clocks jumped %llu\n",
              static_cast<unsigned long long>(seen.network.repeated),
              static_cast<unsigned long long>(seen.network.exchanged),
              static_cast<unsigned long long>(seen.network.dropped),
              static_cast<unsigned long long>(seen.network.skips));
  if (n < 50) return;
  EXPECT_GT(seen.network.repeated, n / 2);
  EXPECT_GT(seen.network.exchanged, n / 4);
  EXPECT_GT(seen.network.dropped, n / 2);
  EXPECT_GT(seen.network.skips, n);
  EXPECT_GT(seen.coded, n);
  EXPECT_GT(seen.brought, n);
  EXPECT_GT(seen.pushed, n / 2);
  EXPECT_GT(seen.kills, n / 2);
}

TEST(NodeSim, a_seed_run_twice_gives_the_same_log) {
  Seen seen;
  EXPECT_EQ(run_seed(5, seen), run_seed(5, seen));
}

}  // namespace
}  // namespace kvbm::test
