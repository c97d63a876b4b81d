// Managers as nodes of a pool, on one thread from a seed: real managers, meshes, peer tiers and links over the
// transport table and the simulated network. Blocks are named by numbers, which their bytes follow from.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cluster/coding/coded_source.h"
#include "cluster/mesh/mesh.h"
#include "cluster/tier/peer_tier.h"
#include "manager/manager.h"
#include "manager/node/node_source.h"
#include "support/sim_disk.h"
#include "support/sim_executor.h"
#include "support/sim_network.h"

namespace kvbm::test {

inline constexpr uint64_t kMs = 1'000'000;
inline constexpr uint64_t kNodeBlock = 200'000;  // several leaves
inline constexpr uint32_t kNodeSlots = 24;
inline constexpr uint64_t kNodeBlocks = 40;  // names in use
inline constexpr size_t kNodes = 3;

// One simulated process: a manager, and the parts that make it a node.
class SimNode {
 public:
  struct Options {
    SimNetwork::Node node = 0;
    std::string listen;
    std::vector<std::string> peers;
    std::optional<cluster::SharedKey> key;
    copy::Protection protect = copy::Protection::off;
    cluster::LinkCoding coding;
  };
  SimNode(SimExecutor& sim, SimNetwork& net, Options options);

  Executor& executor() { return net_.executor(options_.node); }
  manager::Manager& manager() { return *manager_; }
  cluster::Mesh& mesh() { return *mesh_; }
  [[nodiscard]] const cluster::OfferCounts& offers() const { return tier_->offers(); }
  manager::NodeSource& source() { return *source_; }
  manager::Namespace& ns() { return *ns_; }
  // Returns the coding work that is not finished: bytes in buffers, and jobs that wait for memory. 0 if nothing is in
  // transit or left behind.
  uint64_t buffered() { return coder_ == nullptr ? 0 : coded_source_->buffered() + coded_source_->waiting(); }
  uint64_t coded() { return coder_ == nullptr ? 0 : coder_->counts().taken.coded; }
  uint64_t plain() { return coder_ == nullptr ? 0 : coder_->counts().taken.plain; }

  void store(uint64_t n);
  // Offers block n to its home node.
  void push(uint64_t n);
  // Asks the other nodes for block n, fetches it, and compares its bytes.
  void fetch(uint64_t n);
  // Compares the block if it is here.
  bool check(uint64_t n);
  bool has(uint64_t n) { return check(n); }
  [[nodiscard]] Identity id(uint64_t n) const;
  uint64_t after(uint64_t ns) { return executor().clock().now_ns() + ns; }
  // Lines of the log that contain both texts.
  [[nodiscard]] size_t logged(const std::string& text, const std::string& other = "") const;

  uint64_t begun = 0, ended = 0, brought = 0, wrong = 0, pushed = 0;

 private:
  static void keep_line(void* self, const LogMessage& message);
  Result<std::unique_ptr<tier::Tier>> make_tier(FamilyTable& families);
  void bring(uint64_t n);

  SimExecutor& sim_;
  SimNetwork& net_;
  const Options options_;
  SimDisk disk_;
  Log log_;
  std::vector<std::string> lines_;
  std::unique_ptr<cluster::Mesh> mesh_;
  std::unique_ptr<copy::Transport> transport_;
  cluster::PeerTier* tier_ = nullptr;
  std::shared_ptr<cluster::LinkCoder> coder_;
  std::unique_ptr<manager::NodeSource> source_;
  std::unique_ptr<cluster::CodedSource> coded_source_;
  std::shared_ptr<manager::Manager> manager_;
  std::shared_ptr<manager::Namespace> ns_;
  manager::PartPlan plan_;
};

// kNodes nodes, each of which dials the others. start() restarts a killed one.
struct NodeWorld {
  // keys: the pool key of each node; a node without one listens on loopback only. how: by node, whether links are
  // plain, coded, sealed, or coded by choice and sealed. protect: protection of nodes with a key.
  using Keys = std::vector<std::optional<cluster::SharedKey>>;
  explicit NodeWorld(uint64_t seed, uint64_t how = 0, Keys keys = Keys(kNodes, cluster::SharedKey{}),
                     copy::Protection protect = copy::Protection::off);
  ~NodeWorld();
  NodeWorld(const NodeWorld&) = delete;
  NodeWorld& operator=(const NodeWorld&) = delete;

  std::unique_ptr<SimNode> start(size_t i);
  [[nodiscard]] std::string address(size_t i) const;
  bool connected();
  bool idle();
  // Ends all cuts, freezes and faults.
  void heal();

  SimExecutor sim;
  SimNetwork net;
  const cluster::LinkCoding coding;
  const Keys keys;
  const copy::Protection protect;
  std::vector<SimNetwork::Node> nodes;
  std::vector<std::unique_ptr<SimNode>> processes;
};

}  // namespace kvbm::test
