// Meshes of two dozen nodes and more on one thread from a seed: which nodes a lookup asks in a pool too large to ask
// all of them, and members that join and leave while the mesh runs.
#include "cluster/mesh/mesh.h"

#include <gtest/gtest.h>

#include "cluster/tier/peer_tier.h"
#include "support/link_world.h"
#include "support/sim_network.h"

namespace kvbm::test::mesh_test {
namespace {

using namespace cluster;

constexpr uint64_t kMs = 1'000'000;

struct Process {
  Process(SimExecutor& sim, SimNetwork& net, FamilyTable& families, std::vector<std::string> peers, uint32_t replicas,
          const std::string& named = "")
      : node(net.add_node()), executor(sim), source(executor, sim, families) {
    MeshOptions options;
    options.self.node = node_id_of(named.empty() ? name() : named);
    options.self.incarnation = sim.random().next();
    options.self.pool = "pool";
    options.self.request_limit = 64;
    options.key = SharedKey{};
    options.self.protect = copy::Protection::authenticate;
    options.listen = address();
    options.peers = std::move(peers);
    mesh = std::make_unique<Mesh>(options, families, sim.random(), nullptr);
    transport = copy::Transport::open(net.ops(node), {}, *mesh).value();
    net.on_wake(node, [this, &net] {
      net.executor(node).post([this] {
        while (transport->progress()) {
        }
      });
    });
    mesh->attach(*transport, net.executor(node));
    PeerTierOptions tier_options;
    tier_options.staging_bytes = 1 << 20;
    tier_options.location_bytes = 64 << 10;
    tier_options.replicas = replicas;
    tier = std::make_unique<PeerTier>(tier_options, net.executor(node), families, *mesh);
    EXPECT_TRUE(mesh->begin(source).ok());
  }
  ~Process() {
    transport->close();
    tier.reset();
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] std::string name() const { return "node" + std::to_string(node); }
  [[nodiscard]] std::string address() const { return SimNetwork::host(node) + ":7000"; }
  [[nodiscard]] Member member() const {
    Member out;
    out.name = name();
    out.id = node_id_of(out.name);
    out.addresses = {address()};
    return out;
  }

  SimNetwork::Node node;
  NodeExecutor executor;
  SimSource source;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<copy::Transport> transport;
  std::unique_ptr<PeerTier> tier;
};

struct World {
  explicit World(size_t n, uint32_t replicas = 1) : sim(7), net(sim) {
    std::vector<std::string> peers;
    for (size_t i = 0; i < n; ++i) {
      processes.push_back(std::make_unique<Process>(sim, net, families, peers, replicas));
      peers.push_back(processes.back()->address());
    }
  }
  ~World() {
    // As in a process: the links' thread ends with its tasks before the mesh goes.
    for (auto& process : processes) process->transport->close();
    sim.drop_all();
  }
  bool connected(size_t n) {
    return sim.run_until_within(
        [&] {
          for (auto& process : processes) {
            if (process->mesh->ready().size() != n) return false;
          }
          return true;
        },
        10'000 * kMs);
  }
  // Returns whether node 0 finds the record that it asks for.
  bool finds(uint64_t record) {
    const Identity id = SimSource::identity_of(families, record);
    bool done = false;
    processes[0]->tier->ask({id}, sim.clock().now_ns() + 2000 * kMs, [&] { done = true; });
    EXPECT_TRUE(sim.run_until_within([&] { return done; }, 5000 * kMs));
    tier::Found found;
    processes[0]->tier->find({&id, 1}, {&found, 1}, false);
    return found.present;
  }
  // Returns the node of that rank among the homes that node 0 computes.
  Process* ranked(uint64_t record, size_t rank) {
    std::array<PeerLink*, Placement::kMaxReplicas> homes{};
    const size_t n = processes[0]->mesh->homes(SimSource::key_of(record), homes);
    for (auto& process : processes) {
      if (rank < n && node_id_of(process->name()) == homes[rank]->peer().node) return process.get();
    }
    return nullptr;
  }

  SimExecutor sim;
  SimNetwork net;
  FamilyTable families;
  std::vector<std::unique_ptr<Process>> processes;
};

TEST(Mesh, every_node_sees_the_same_homes_and_none_is_its_own) {
  World w(24);
  ASSERT_TRUE(w.connected(23));
  w.sim.run_for(100 * kMs);  // until the offered capacities are known everywhere
  for (uint64_t record = 0; record < 50; ++record) {
    std::vector<NodeId> seen;  // by node 0, and itself where it belongs
    std::array<PeerLink*, 4> homes{};
    ASSERT_EQ(w.processes[0]->mesh->homes(SimSource::key_of(record), homes), homes.size());
    for (PeerLink* link : homes) {
      EXPECT_NE(link->peer().node, node_id_of(w.processes[0]->name()));
      seen.push_back(link->peer().node);
    }
    // Another node computes the same order, except that each leaves itself out.
    Process& other = *w.processes[5];
    ASSERT_EQ(other.mesh->homes(SimSource::key_of(record), homes), homes.size());
    std::vector<NodeId> others;
    for (PeerLink* link : homes) {
      if (link->peer().node != node_id_of(w.processes[0]->name())) others.push_back(link->peer().node);
    }
    std::erase(seen, node_id_of(other.name()));
    const size_t both = std::min(seen.size(), others.size());
    EXPECT_TRUE(std::equal(seen.begin(), seen.begin() + static_cast<ptrdiff_t>(both), others.begin())) << record;
  }
}

TEST(Mesh, a_large_pool_is_asked_by_rank_homes_first_and_then_those_that_were_or_will_be) {
  World w(24);
  ASSERT_TRUE(w.connected(23));
  w.sim.run_for(100 * kMs);
  for (uint64_t record = 0; record < 8; ++record) {
    Process* holder = w.ranked(record, record);  // a rank of its own for each
    ASSERT_NE(holder, nullptr);
    holder->source.put(record, 1000);
    EXPECT_TRUE(w.finds(record)) << "at rank " << record;
  }
  EXPECT_FALSE(w.finds(30));
}

TEST(Mesh, members_that_come_are_dialled_and_those_that_go_are_left) {
  World w(0);
  for (int i = 0; i < 4; ++i)
    w.processes.push_back(std::make_unique<Process>(w.sim, w.net, w.families, std::vector<std::string>{}, 1));
  MemberList all;
  for (auto& process : w.processes) all.push_back(process->member());
  Mesh& mesh = *w.processes[0]->mesh;
  const auto soon = [&](size_t n) {
    return w.sim.run_until_within([&] { return mesh.ready().size() == n; }, 5000 * kMs);
  };
  mesh.set_members({all[0], all[1], all[2]});  // itself among them
  EXPECT_TRUE(soon(2));
  PeerLink* const kept = mesh.link_to(all[1].id);
  mesh.set_members({all[0], all[1], all[3]});
  EXPECT_TRUE(w.sim.run_until_within(
      [&] { return mesh.link_to(all[3].id) != nullptr && mesh.link_to(all[2].id) == nullptr; }, 5000 * kMs));
  EXPECT_EQ(mesh.link_to(all[1].id), kept) << "a member that stays keeps its link";
  w.sim.run_for(3000 * kMs);
  EXPECT_EQ(mesh.link_to(all[2].id), nullptr) << "it is not dialled again";
  // The member has another address, and its first address does not answer.
  Member moved = all[2];
  moved.addresses = {SimNetwork::host(w.processes[2]->node) + ":9", all[2].addresses[0]};
  mesh.set_members({all[1], moved});
  EXPECT_TRUE(w.sim.run_until_within(
      [&] { return mesh.link_to(all[2].id) != nullptr && mesh.link_to(all[3].id) == nullptr; }, 5000 * kMs));
  // The address of node 3 now leads to node 1.
  Member wrong = all[3];
  wrong.addresses = all[1].addresses;
  mesh.set_members({wrong});
  w.sim.run_for(3000 * kMs);
  EXPECT_TRUE(mesh.ready().empty());
  ASSERT_EQ(mesh.rows().size(), 1U);
  EXPECT_NE(mesh.rows()[0].state, "ready");
  // The mesh keeps dialling, and its row keeps showing the last error.
  const auto again = [&] { return mesh.rows()[0].state.rfind("connecting; the last time: ", 0) == 0; };
  EXPECT_TRUE(w.sim.run_until_within(again, 5000 * kMs));
  mesh.set_members({all[3]});
  EXPECT_TRUE(soon(1));
  EXPECT_EQ(mesh.rows()[0].state, "ready");
}

// Two nodes with one name stay two nodes: the mesh reports the duplicate and keeps dialling.
TEST(Mesh, a_node_of_the_same_name_is_not_taken_for_itself) {
  World w(0);
  w.processes.push_back(std::make_unique<Process>(w.sim, w.net, w.families, std::vector<std::string>{}, 1));
  w.processes.push_back(std::make_unique<Process>(w.sim, w.net, w.families,
                                                  std::vector<std::string>{w.processes[0]->address()}, 1, "node0"));
  w.sim.run_for(3000 * kMs);
  EXPECT_NE(w.processes[1]->mesh->missing("").find("two nodes have one name"), std::string::npos);
  EXPECT_NE(w.processes[1]->mesh->rows()[0].state, "this node");
}

// A stopped node delays the first query, and no later one until it sends something again.
TEST(Mesh, a_silent_node_costs_one_question) {
  World w(3);
  ASSERT_TRUE(w.connected(2));
  w.sim.run_for(100 * kMs);
  w.processes[1]->source.put(1, 1000);
  w.processes[2]->source.put(2, 1000);
  w.net.freeze(w.processes[2]->node);
  const auto ask = [&](uint64_t record) {
    const uint64_t begin = w.sim.clock().now_ns();
    bool done = false;
    w.processes[0]->tier->ask({SimSource::identity_of(w.families, record)}, begin + 200 * kMs, [&] { done = true; });
    EXPECT_TRUE(w.sim.run_until_within([&] { return done; }, 5000 * kMs));
    return w.sim.clock().now_ns() - begin;
  };
  EXPECT_GE(ask(30), 200 * kMs);
  for (uint64_t record = 31; record < 35; ++record) EXPECT_LT(ask(record), 50 * kMs);
  EXPECT_TRUE(w.finds(1));
  EXPECT_EQ(w.processes[0]->mesh->ready().size(), 2U) << "it has not been given up yet";
  w.net.thaw(w.processes[2]->node);
  w.sim.run_for(1000 * kMs);
  EXPECT_TRUE(w.finds(2));
}

TEST(Mesh, a_weight_of_the_list_goes_before_the_nodes_own_word) {
  World w(4);
  ASSERT_TRUE(w.connected(3));
  w.sim.run_for(100 * kMs);
  MemberList all;
  for (auto& process : w.processes) {
    all.push_back(process->member());
    all.back().weight = process == w.processes[2] ? 1ULL << 50 : 1ULL << 20;
  }
  w.processes[0]->mesh->set_members(all);
  for (uint64_t record = 0; record < 20; ++record) EXPECT_EQ(w.ranked(record, 0), w.processes[2].get());
}

}  // namespace
}  // namespace kvbm::test::mesh_test
