// Elections of the owner of a shared tier set, on one thread from a seed. The elections and links of three processes
// (the ones that manager/share drives) run with the disk tier on one simulated disk with its lock. Owners and clients
// are killed, frozen and restarted, connections break, and opening the disk fails.
//
// Invariants:
// - Never do two processes own the disk.
// - A record that an owner has acknowledged is found by each of its successors, byte for byte, unless an owner
//   reports it as evicted. (A tier that cannot make a new segment reuses an old one.)
// - Every question ends.
// - Without another fault a killed owner has a successor within a second.
// - In the end there is one owner and all others are its clients.
// KVBMTEST_SIM_SEEDS is the number of seeds (default 150), KVBMTEST_SIM_FIRST the first, KVBMTEST_LONG=1 runs 5,000.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "manager/share/share_election.h"
#include "manager/share/share_links.h"
#include "support/counts.h"
#include "support/disk_world.h"
#include "support/sim_network.h"
#include "support/simulated_kills.h"

namespace kvbm::test::share_election_test {
namespace {

const SimulatedKills kills(__FILE__);

using manager::ShareElection;
using manager::ShareKind;
using manager::ShareLinks;
using manager::ShareMessage;

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kProcesses = 3;
constexpr uint64_t kBytes = 9000;
constexpr uint64_t kAskNs = 500 * kMs;

class NoRecords final : public cluster::RecordSource {
 public:
  void find(std::span<const Identity>, std::span<cluster::wire::FoundItem> out) override {
    for (cluster::wire::FoundItem& item : out) item = {};
  }
  bool pin(const Identity&) override { return false; }
  void unpin(const Identity&) override {}
  void open(const Identity&, uint64_t, uint32_t, uint32_t, uint64_t,
            UniqueFunction<void(const cluster::OpenedRecord&)> done) override {
    done({});
  }
  void close(uint64_t) override {}
  cluster::wire::NodeStatus status() override { return {}; }
  void invalidate(std::vector<cluster::EpochWord> words, uint32_t,
                  UniqueFunction<void(std::vector<cluster::EpochWord>)> done) override {
    done(std::move(words));
  }
};

// State that all processes of the host share.
struct Host {
  explicit Host(uint64_t seed) : sim(seed), net(sim), disk(sim) {}
  SimExecutor sim;
  SimNetwork net;
  SimDisk disk;
  std::string socket;  // of the process that listened last
  size_t owners = 0;
  std::set<uint64_t> acknowledged;
  std::set<Key> evicted;
};

class Losses final : public tier::TierListener {
 public:
  explicit Losses(Host& host) : host_(host) {}
  void removed(TierIndex, std::span<const Identity> ids, bool damaged) override {
    EXPECT_FALSE(damaged);
    for (const Identity& id : ids) host_.evicted.insert(id.key);
  }
  void disabled(TierIndex, const Status&) override {}

 private:
  Host& host_;
};

class Process final : public ShareLinks::Host, public ShareElection::Host {
 public:
  Process(share_election_test::Host& host, SimNetwork::Node node)
      : host_(host), node_(node), losses_(host), election_(host.net.executor(node), *this) {
    cluster::NodeFacts self;
    self.node = cluster::node_id_of("process" + std::to_string(host.sim.random().next()));
    self.incarnation = host.sim.random().next();
    self.pool = "share";
    self.request_limit = cluster::LinkLimits{}.requests;
    links_ = std::make_unique<ShareLinks>(self, cluster::LinkLimits{}, families_, host.sim.random(), *this, nullptr);
    transport_ = copy::Transport::open(host.net.ops(node), {}, *links_).value();
    host.net.on_wake(node, [this] {
      executor().post([this] {
        while (transport_->progress()) {
        }
      });
    });
    links_->attach(*transport_, executor());
    links_->begin(nothing_);
    executor().post([this] { election_.seek(); });
  }

  Executor& executor() { return host_.net.executor(node_); }
  [[nodiscard]] bool owns() const { return tier_ != nullptr; }
  [[nodiscard]] bool serves() const { return listening_; }
  [[nodiscard]] bool settled() const { return listening_ || connected_; }
  [[nodiscard]] uint64_t complaints() const { return complaints_; }
  [[nodiscard]] uint64_t unanswered() const { return begun_ - ended_; }

  // Writes a record: the owner itself, a client by asking it.
  void write(uint64_t n) {
    ++begun_;
    executor().post([this, n] {
      const auto ended = [this, n](Code code) {
        ++ended_;
        if (code == Code::ok) host_.acknowledged.insert(n);
      };
      if (owns()) return put(n, ended);
      ShareMessage message;
      message.kind = ShareKind::flush;
      message.value = n;
      const uint64_t deadline_ns = executor().clock().now_ns() + kAskNs;
      links_->ask(std::move(message), deadline_ns,
                  [ended](Code code, uint64_t, const std::vector<Key>&) { ended(code); });
    });
  }

  // Returns whether the owner's disk has the record as it was written.
  bool has(uint64_t n) {
    const TestRecord want(n, kBytes, family_of(1));
    const tier::disk::AlignedBuffer head(8192);
    const tier::disk::AlignedBuffer payload(kBytes);
    auto batch = std::make_unique<tier::GetBatch>();
    tier::GetItem item;
    item.id = id(n);
    item.head = head.span();
    item.payload = payload.span();
    batch->items.push_back(item);
    bool done = false;
    bool right = false;
    batch->done = [&](tier::GetBatch& b) {
      right = b.status[0] == Code::ok && b.items[0].payload_bytes == kBytes &&
              std::memcmp(payload.data(), want.memory.data(), kBytes) == 0;
      done = true;
    };
    tier_->get(std::move(batch));
    EXPECT_TRUE(host_.sim.run_until_within([&] { return done; }, 60'000 * kMs));
    return right;
  }

  // Implements ShareElection::Host.
  [[nodiscard]] bool is_owner() const override { return owns(); }
  [[nodiscard]] bool is_connected() const override { return connected_; }
  Status try_to_own() override {
    tier::disk::DiskTierOptions options;
    options.path = "/set";
    options.capacity_bytes = 64 << 20;
    options.segment_bytes = 1 << 20;
    auto opened =
        tier::disk::DiskTier::open(options, host_.disk, executor(), families_, host_.sim.random(), &losses_, 1);
    if (!opened.ok()) return opened.status();
    tier_ = std::move(opened).value();
    EXPECT_EQ(++host_.owners, 1U) << "two processes have the disk";
    return {};
  }
  Status listen() override {
    if (listening_) return {};
    const std::string address = SimNetwork::host(node_) + ":7000";
    const Status bound = links_->listen(address);
    if (!bound.ok()) return bound;
    listening_ = true;
    host_.socket = address;
    return {};
  }
  void dial() override {
    if (!host_.socket.empty()) links_->dial(host_.socket);
  }
  void cannot_own(const Status&) override { ++complaints_; }

  // Implements ShareLinks::Host.
  bool owner_found(const ShareMessage&, const cluster::NodeFacts&, copy::Peer) override {
    EXPECT_FALSE(owns());
    connected_ = true;
    return true;
  }
  ShareMessage here() override {
    EXPECT_TRUE(owns());
    ShareMessage out;
    out.kind = ShareKind::here;
    return out;
  }
  void owner_lost(const Status&, bool was_connected) override {
    if (!was_connected) return;
    connected_ = false;
    executor().post([this] { election_.seek(); });
  }
  void clients_changed(size_t) override {}
  void asked(const ShareMessage& message, ShareLinks::Answered answer) override {
    auto reply = std::make_shared<ShareLinks::Answered>(std::move(answer));
    put(message.value, [reply](Code code) { (*reply)(code, 0, {}); });
  }
  void offered(cluster::PeerLink&, std::span<const cluster::Offered>, uint64_t, std::vector<uint32_t>&) override {}

 private:
  Identity id(uint64_t n) { return Identity{key_of(n), families_.intern(family_of(1)).value()}; }

  void put(uint64_t n, std::function<void(Code)> done) {
    const auto record = std::make_shared<TestRecord>(n, kBytes, family_of(1));
    auto batch = std::make_unique<tier::PutBatch>();
    tier::PutItem item;
    item.id = id(n);
    item.head = record->head;
    item.payload = record->payload();
    batch->items.push_back(item);
    batch->durable = true;
    batch->done = [this, record, done = std::move(done)](tier::PutBatch& b) {
      executor().post([done, code = b.status[0]] { done(code); });
    };
    tier_->put(std::move(batch));
  }

  share_election_test::Host& host_;
  const SimNetwork::Node node_;
  FamilyTable families_;
  NoRecords nothing_;
  Losses losses_;
  std::unique_ptr<ShareLinks> links_;
  std::unique_ptr<copy::Transport> transport_;
  ShareElection election_;
  std::unique_ptr<tier::disk::DiskTier> tier_;
  bool connected_ = false;
  bool listening_ = false;
  uint64_t complaints_ = 0;
  uint64_t begun_ = 0, ended_ = 0;
};

struct World : Host {
  explicit World(uint64_t seed) : Host(seed) {
    for (size_t i = 0; i < kProcesses; ++i) nodes.push_back(net.add_node());
    for (const SimNetwork::Node node : nodes) processes.push_back(std::make_unique<Process>(*this, node));
  }
  ~World() {
    for (auto& process : processes) (void)process.release();
    sim.drop_all();
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Stands for no process.
  static constexpr size_t kNone = SIZE_MAX;
  size_t owner() const {
    for (size_t i = 0; i < kProcesses; ++i) {
      if (processes[i]->owns()) return i;
    }
    return kNone;
  }
  bool settled() const {
    for (const auto& process : processes) {
      if (!process->settled()) return false;
    }
    return owner() != kNone && processes[owner()]->serves();
  }
  // Kills the process and starts another in its place. Its open questions are dropped.
  void kill(size_t i) {
    Process& victim = *processes[i];
    net.thaw(nodes[i]);
    net.kill(nodes[i]);
    if (victim.owns()) {
      disk.crash(false);
      --owners;
    }
    (void)processes[i].release();
    processes[i] = std::make_unique<Process>(*this, nodes[i]);
  }
  void thaw_all() {
    for (const SimNetwork::Node node : nodes) net.thaw(node);
  }

  std::vector<SimNetwork::Node> nodes;
  std::vector<std::unique_ptr<Process>> processes;
};

TEST(ShareElectionSim, of_all_that_start_at_once_one_owns_the_disk_and_the_others_find_it) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    World w(seed);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.settled(); }, 1000 * kMs)) << "seed " << seed;
    EXPECT_EQ(w.owners, 1U);
  }
}

TEST(ShareElectionSim, a_killed_owner_has_a_successor_within_a_second_that_has_all_it_acknowledged) {
  uint64_t slowest = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World w(seed);
    uint64_t n = 0;
    for (int kill = 0; kill < 4; ++kill) {
      ASSERT_TRUE(w.sim.run_until_within([&] { return w.settled(); }, 2000 * kMs));
      for (auto& process : w.processes) process->write(++n);
      w.sim.run_for(w.sim.random().below(20) * kMs);
      w.kill(w.owner());
      const uint64_t dead = w.sim.clock().now_ns();
      ASSERT_TRUE(w.sim.run_until_within([&] { return w.settled(); }, 1000 * kMs)) << "no successor";
      slowest = std::max(slowest, w.sim.clock().now_ns() - dead);
      for (const uint64_t one : w.acknowledged) EXPECT_TRUE(w.processes[w.owner()]->has(one)) << one;
    }
  }
  std::printf("  slowest takeover %llu ms of the simulation's\n", static_cast<unsigned long long>(slowest / kMs));
}

// An owner that stands still keeps the disk; when it is killed then, another one takes it.
TEST(ShareElectionSim, nobody_takes_over_from_an_owner_that_is_frozen) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World w(seed);
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.settled(); }, 1000 * kMs));
    const size_t frozen = w.owner();
    w.net.freeze(w.nodes[frozen]);
    w.sim.run_for(10'000 * kMs);
    EXPECT_EQ(w.owner(), frozen);
    EXPECT_EQ(w.owners, 1U);
    if (seed % 2 == 0) {
      w.kill(frozen);
    } else {
      w.net.thaw(w.nodes[frozen]);
    }
    ASSERT_TRUE(w.sim.run_until_within([&] { return w.settled(); }, 10'000 * kMs));
  }
}

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Seen {
  uint64_t kills = 0, takeovers = 0, acknowledged = 0, looked = 0, complaints = 0;
};

uint64_t run_seed(uint64_t seed, Seen& seen) {
  World w(seed);
  Random& random = w.sim.random();
  uint64_t n = 0;
  for (int step = 0; step < 120 && !::testing::Test::HasFailure(); ++step) {
    const size_t i = random.below(kProcesses);
    switch (random.below(12)) {
      case 0: {
        const size_t owner = w.owner();
        if (owner == World::kNone || w.net.frozen(w.nodes[owner])) break;
        w.kill(owner);
        ++seen.kills;
        ++seen.takeovers;
        break;
      }
      case 1:
        if (random.below(2) == 0) break;
        w.kill(i);
        ++seen.kills;
        break;
      case 2:
        if (!w.net.frozen(w.nodes[i])) w.net.freeze(w.nodes[i]);
        break;
      case 3:
      case 4:
        w.thaw_all();
        break;
      case 5:
        w.net.break_connections(w.nodes[i], w.nodes[(i + 1) % kProcesses]);
        break;
      case 6:
        // Makes the next opening of the disk fail.
        w.disk.fail_nth(random.below(2) == 0 ? SimDisk::Op::open : SimDisk::Op::list, 1 + random.below(3));
        break;
      case 7:
        w.disk.faults.write_error = random.below(2) == 0 ? 0.1 : 0;
        break;
      default:
        w.processes[i]->write(++n);
    }
    w.sim.run_for(random.below(60) * kMs);
    EXPECT_LE(w.owners, 1U);
  }
  w.thaw_all();
  w.disk.faults = {};
  EXPECT_TRUE(w.sim.run_until_within([&] { return w.settled(); }, 30'000 * kMs)) << "somebody has no owner";
  w.sim.run_for(2 * kAskNs);
  for (const auto& process : w.processes) EXPECT_EQ(process->unanswered(), 0U) << "a question did not end";
  const size_t owner = w.owner();
  if (owner == World::kNone) return 0;
  for (const uint64_t one : w.acknowledged) {
    if (w.evicted.count(key_of(one)) != 0) continue;
    EXPECT_TRUE(w.processes[owner]->has(one)) << "record " << one << " was acknowledged and is lost";
    ++seen.looked;
  }
  seen.acknowledged += w.acknowledged.size();
  for (const auto& process : w.processes) seen.complaints += process->complaints();
  return w.sim.log_hash();
}

TEST(ShareElectionSim, has_one_owner_and_loses_nothing_that_was_acknowledged) {
  const uint64_t n = number("KVBMTEST_SIM_SEEDS", std::getenv("KVBMTEST_LONG") != nullptr ? 5000 : 150);
  const uint64_t first = number("KVBMTEST_SIM_FIRST", 1);
  Seen seen;
  for (uint64_t seed = first; seed < first + n && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    run_seed(seed, seen);
  }
  kvbm::test::counted(n, "seeds"), kvbm::test::counted(seen.kills, "simulated kills");
  std::printf("  seeds %llu, kills %llu (of owners %llu), acknowledged %llu, complaints %llu\n",
              static_cast<unsigned long long>(n), static_cast<unsigned long long>(seen.kills),
              static_cast<unsigned long long>(seen.takeovers), static_cast<unsigned long long>(seen.acknowledged),
              static_cast<unsigned long long>(seen.complaints));
  if (n < 50) return;
  EXPECT_GT(seen.takeovers, n);
  EXPECT_GT(seen.acknowledged, n);
  EXPECT_GT(seen.complaints, 0U);
}

TEST(ShareElectionSim, a_seed_run_twice_gives_the_same_log) {
  Seen seen;
  EXPECT_EQ(run_seed(7, seen), run_seed(7, seen));
}

}  // namespace
}  // namespace kvbm::test::share_election_test
