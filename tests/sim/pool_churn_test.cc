// A pool of 1,000 nodes of which one in a hundred dies and one in a hundred is new each minute: which nodes are home
// to a key, and which keys are still found.
//
// The membership (an address file on the simulated disk), the placement and the locations are real. Nodes are sets of
// keys, and questions are calls. A thousand meshes of a thousand links each would be a million links, and mesh_test
// covers the same with two dozen. Readers read the file at different times, so their views differ. As in PeerTier, a
// reader asks a key's homes and the next in rank, then the ranks up to kMaxReplicas. Dead nodes are skipped at once.
// KVBMTEST_LONG=1 runs an hour instead of ten minutes, with four times the keys.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "cluster/placement/locations.h"
#include "cluster/placement/membership.h"
#include "cluster/placement/placement.h"
#include "support/sim_disk.h"
#include "support/sim_executor.h"

namespace kvbm::test::pool_churn_test {
namespace {

using namespace cluster;

constexpr size_t kNodes = 1000;
constexpr size_t kChurn = kNodes / 100;
constexpr uint64_t kMinuteNs = 60'000'000'000;
// One key in so many is a load that a sanitizer can bear.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kSlow = 20;
#elif defined(__has_feature)
constexpr size_t kSlow = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ? 20 : 1;
#else
constexpr size_t kSlow = 1;
#endif

bool longer() { return std::getenv("KVBMTEST_LONG") != nullptr; }

Key random_key(Random& random) {
  Key key;
  random.fill(std::as_writable_bytes(std::span(key.bytes)));
  return key;
}

// A living node: the keys that it has. Dead nodes are removed.
struct Node {
  uint64_t weight = 0;
  std::set<Key> keys;
};

// Looks for keys, with its own view of the members and its own record of which node held which key.
class Reader {
 public:
  Reader(SimDisk& disk, std::map<NodeId, Node>& nodes, size_t replicas)
      : nodes_(nodes),
        replicas_(replicas),
        file_(disk.open_directory("/pool", true).value(), "members"),
        locations_(16 << 20) {}

  void look() {
    ASSERT_TRUE(file_.refresh().ok());
    std::vector<PlacementNode> all;
    ids_.clear();
    for (const Member& member : file_.members()) {
      all.push_back({member.id, member.weight});
      ids_.push_back(member.id);
    }
    placement_ = Placement(all);
  }
  // Called when a connection has ended.
  void lost(const NodeId& node) { locations_.drop_node(node); }

  // Returns the living homes of a key, best first.
  [[nodiscard]] std::vector<NodeId> ranks(const Key& key) const {
    std::array<uint32_t, Placement::kMaxReplicas> found{};
    const size_t n = placement_.homes(key, found);
    std::vector<NodeId> out;
    for (size_t i = 0; i < n; ++i) {
      if (nodes_.count(ids_[found[i]]) != 0) out.push_back(ids_[found[i]]);
    }
    return out;
  }

  // Counts for each known node the keys that it is home to.
  template <class NextKey>
  [[nodiscard]] std::map<NodeId, uint64_t> homes_of(size_t keys, const NextKey& next_key) const {
    std::vector<uint64_t> load(ids_.size());
    for (size_t i = 0; i < keys; ++i) ++load[placement_.home(next_key())];
    std::map<NodeId, uint64_t> out;
    for (size_t i = 0; i < ids_.size(); ++i) out[ids_[i]] = load[i];
    return out;
  }

  void store(const Key& key) {
    const std::vector<NodeId> homes = ranks(key);
    for (size_t i = 0; i < std::min(replicas_, homes.size()); ++i) nodes_.at(homes[i]).keys.insert(key);
  }

  bool find(const Key& key, uint64_t now_ns) {
    const Identity id{key, FamilyId{1}};
    Location held;
    if (locations_.find(id, now_ns, {&held, 1}) != 0) {
      const auto node = nodes_.find(locations_.node_id(held.node));
      if (node == nodes_.end()) {
        ++dead_locations;
      } else if (node->second.keys.count(key) != 0) {
        ++by_location;
        return true;
      }
    }
    const std::vector<NodeId> homes = ranks(key);
    for (size_t i = 0; i < homes.size(); ++i) {
      ++questions;
      if (nodes_.at(homes[i]).keys.count(key) == 0) continue;
      if (i > replicas_) ++second_round;
      const auto index = locations_.set_node(homes[i], 1);
      locations_.put(id, {index.value(), 0, 100, 4096, 1, 0}, now_ns);
      return true;
    }
    return false;
  }

  uint64_t by_location = 0, questions = 0, second_round = 0, dead_locations = 0;

 private:
  std::map<NodeId, Node>& nodes_;
  const size_t replicas_;
  AddressFile file_;
  Placement placement_;
  std::vector<NodeId> ids_;
  Locations locations_;
};

class Pool {
 public:
  Pool(uint64_t seed, size_t replicas) : sim_(seed), disk_(sim_) {
    file_ = std::make_unique<AddressFile>(disk_.open_directory("/pool", true).value(), "members");
    for (size_t i = 0; i < kNodes; ++i) join();
    for (int i = 0; i < 3; ++i) readers.push_back(std::make_unique<Reader>(disk_, nodes, replicas));
    for (auto& reader : readers) reader->look();
    for (const auto& [id, node] : nodes) {
      first_.insert(id);
      first_weight_ += node.weight;
    }
  }

  // Runs a minute: one node in a hundred dies, as many join, and each key is read with a chance of one in ten.
  void minute(const std::vector<Key>& keys) {
    for (size_t i = 0; i < kChurn; ++i) {
      die();
      join();
      // One reader reads the file now; the others have older views.
      Reader& reader = *readers[i % readers.size()];
      reader.look();
      now_ns += kMinuteNs / kChurn;
      for (size_t k = 0; k < keys.size() / 100; ++k) {
        const Key& key = keys[random().below(keys.size())];
        ++reads;
        const bool there = holders(key) != 0;
        const bool found = readers[random().below(readers.size())]->find(key, now_ns);
        if (found) ++hits;
        if (there && !found) ++overlooked;
      }
    }
    for (auto& reader : readers) reader->look();
  }

  [[nodiscard]] size_t holders(const Key& key) const {
    size_t n = 0;
    const auto known = where_.find(key);
    if (known == where_.end()) return 0;
    for (const NodeId& node : known->second) n += nodes.count(node);
    return n;
  }
  void store(const Key& key) {
    Reader& reader = *readers[random().below(readers.size())];
    reader.store(key);
    for (const NodeId& node : reader.ranks(key)) {
      if (nodes.at(node).keys.count(key) != 0) where_[key].push_back(node);
    }
  }
  Random& random() { return sim_.random(); }

  std::map<NodeId, Node> nodes;  // that live
  std::vector<std::unique_ptr<Reader>> readers;
  uint64_t now_ns = kMinuteNs;
  uint64_t reads = 0, hits = 0, overlooked = 0;
  double lost_share = 0;  // share of the initial weight that died

 private:
  void join() {
    Member member;
    member.name = "node-" + std::to_string(++names_);
    member.id = node_id_of(member.name);
    member.addresses = {"10.0.0.1:" + std::to_string(names_)};
    member.weight = (2 + names_ % 3) << 38;  // 512, 768 and 1,024 GiB
    ASSERT_TRUE(file_->append(member).ok());
    nodes[member.id].weight = member.weight;
    living_.push_back(member.name);
  }
  void die() {
    const size_t at = random().below(living_.size());
    const std::string name = living_[at];
    living_[at] = living_.back();
    living_.pop_back();
    ASSERT_TRUE(file_->leave(name).ok());
    const NodeId id = node_id_of(name);
    if (first_.erase(id) != 0)
      lost_share += static_cast<double>(nodes.at(id).weight) / static_cast<double>(first_weight_);
    nodes.erase(id);
    for (auto& reader : readers) reader->lost(id);
  }

  SimExecutor sim_;
  SimDisk disk_;
  std::unique_ptr<AddressFile> file_;
  std::vector<std::string> living_;
  std::map<Key, std::vector<NodeId>> where_;
  uint64_t names_ = 0;
  std::set<NodeId> first_;  // that lived at first, and live
  uint64_t first_weight_ = 0;
};

struct Outcome {
  double kept = 0;        // share of the keys stored before the churn that are found after it
  double lost_share = 0;  // share of the weight that died
};

Outcome churn(uint64_t seed, size_t replicas) {
  std::printf("seed %llu, %zu replicas\n", static_cast<unsigned long long>(seed), replicas);
  Pool pool(seed, replicas);
  std::vector<Key> keys(20'000 / (kSlow > 1 ? 4 : 1));
  for (Key& key : keys) key = random_key(pool.random());
  for (const Key& key : keys) pool.store(key);
  const int minutes = longer() ? 60 : 10;
  for (int i = 0; i < minutes; ++i) pool.minute(keys);
  uint64_t found = 0, dead = 0, by_location = 0, second = 0, questions = 0;
  for (const Key& key : keys) found += pool.readers[0]->find(key, pool.now_ns) ? 1 : 0;
  for (auto& reader : pool.readers) {
    dead += reader->dead_locations;
    by_location += reader->by_location;
    second += reader->second_round;
    questions += reader->questions;
  }
  // Readers find every key that a living node has, however old their view and whichever nodes joined between it and
  // its rank.
  EXPECT_EQ(pool.overlooked, 0U);
  EXPECT_EQ(dead, 0U) << "a location of a dead node was believed";
  EXPECT_GT(by_location, 0U);
  std::printf(
      "%d minutes: %.2f %% of the weight died; reads %llu, %.2f %% hit, %llu by location, %llu in the second round, "
      "%.2f questions a read\n",
      minutes, pool.lost_share * 100, static_cast<unsigned long long>(pool.reads),
      100.0 * static_cast<double>(pool.hits) / static_cast<double>(pool.reads),
      static_cast<unsigned long long>(by_location), static_cast<unsigned long long>(second),
      static_cast<double>(questions) / static_cast<double>(pool.reads));
  return {static_cast<double>(found) / static_cast<double>(keys.size()), pool.lost_share};
}

TEST(PoolChurn, costs_hits_no_more_than_the_share_of_the_nodes_that_were_lost) {
  const Outcome outcome = churn(1, 1);
  std::printf("kept %.2f %% of the records\n", outcome.kept * 100);
  // Which keys the dead nodes had is chance; the limit is four standard deviations.
  const double chance = 4 * std::sqrt(outcome.lost_share * (1 - outcome.lost_share) / (20'000.0 / (kSlow > 1 ? 4 : 1)));
  EXPECT_GE(outcome.kept, 1 - outcome.lost_share - chance);
  EXPECT_LE(outcome.kept, 1 - outcome.lost_share + chance) << "so many cannot have been kept: the test sees too much";
}

TEST(PoolChurn, with_two_homes_costs_what_both_have_lost) {
  const Outcome outcome = churn(2, 2);
  std::printf("kept %.2f %% of the records\n", outcome.kept * 100);
  const double both = outcome.lost_share * outcome.lost_share;
  const double chance = 4 * std::sqrt(both * (1 - both) / (20'000.0 / (kSlow > 1 ? 4 : 1)));
  EXPECT_GE(outcome.kept, 1 - both - chance);
}

TEST(PoolChurn, leaves_every_node_home_to_its_weight_within_a_tenth) {
  Pool pool(3, 1);
  for (int i = 0; i < 5; ++i) pool.minute({});
  const size_t n = (longer() ? 8'000'000 : 2'000'000) / kSlow;
  uint64_t all = 0;
  for (const auto& [id, node] : pool.nodes) all += node.weight;
  std::map<NodeId, uint64_t> load = pool.readers[0]->homes_of(n, [&] { return random_key(pool.random()); });
  double worst = 0;
  double noise = 0;
  for (const auto& [id, node] : pool.nodes) {
    const double due = static_cast<double>(n) * static_cast<double>(node.weight) / static_cast<double>(all);
    worst = std::max(worst, std::abs(static_cast<double>(load[id]) / due - 1));
    noise = std::max(noise, 1 / std::sqrt(due));
  }
  std::printf(
      "the load of the worst of %zu nodes is %.1f %% off its weight (one standard deviation of chance is %.1f %%)\n",
      pool.nodes.size(), worst * 100, noise * 100);
  EXPECT_EQ(pool.nodes.size(), kNodes);
  EXPECT_LE(worst, kSlow > 1 ? 5 * noise : 0.10);
}

}  // namespace
}  // namespace kvbm::test::pool_churn_test
