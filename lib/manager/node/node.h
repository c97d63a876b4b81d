// A manager as a node: other nodes of the pool can read its records, and theirs are its last tier.
//
// Life: make_tier() while the manager is made (the tier needs its families), then start(). stop() comes before the
// manager is shut down (operations that wait for other nodes end), and the destructor after that. Thread: any, from
// outside; the links have a thread of their own (copy/transport_thread.h). Nothing here blocks except start(), stop()
// and nodes(), which wait for a turn of that thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/family/family_table.h"
#include "base/function.h"
#include "base/ids.h"
#include "base/status.h"
#include "cluster/node.h"
#include "manager/common/environment.h"
#include "manager/common/options.h"
#include "tier/tier.h"

namespace kvbm::copy {
struct Completion;
class TransportThread;
}  // namespace kvbm::copy
namespace kvbm::cluster {
class CodedSource;
struct HostFacts;
class LinkCoder;
class MappedPools;
class Mesh;
struct MeshCounts;
struct MeshOptions;
struct NodeAnswer;
struct OfferCounts;
class PeerLink;
class PeerTier;
class SameHost;
struct SessionCounts;
}  // namespace kvbm::cluster

namespace kvbm::manager {

class CodingTerms;
class MembersFile;
class Namespaces;
class NodeHelp;
struct NodeRow;
class NodeSessions;
class NodeSource;
class Operation;
class Sessions;
class TierStack;

class Node {
 public:
  // Returns bad_config for malformed addresses, names and keys; the message names the option. `seal_keys`: the
  // manager's; null: nothing is sealed.
  static Result<std::unique_ptr<Node>> create(const Environment& environment, const NodeOptions& options,
                                              std::shared_ptr<const codec::KeyRing> seal_keys);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Makes the tier of other nodes, for ManagerOptions::tiers. Called once.
  Result<std::unique_ptr<tier::Tier>> make_tier(TierIndex index, FamilyTable& families);
  // Listens and dials. The errors of listen(): the address is in use, or not this machine's.
  Status start(const std::shared_ptr<TierStack>& stack, Namespaces& namespaces,
               const std::shared_ptr<CodingTerms>& coding_terms);
  void stop();

  // Asks other nodes for records that this manager lacks; see cluster::PeerTier::ask.
  void ask(std::vector<Identity> ids, uint64_t deadline_ns, UniqueFunction<void()> done);
  // Asks every connected node, for routers; `done` runs once, on the links' thread.
  void survey(std::vector<Identity> ids, uint64_t deadline_ns,
              UniqueFunction<void(std::vector<cluster::NodeAnswer>)> done);
  // Run an operation, or ask other nodes like ask(), and wait for the end. The waiting thread drives the links
  // meanwhile.
  copy::Completion run_and_wait(Operation& operation);
  void ask_and_wait(std::vector<Identity> ids, uint64_t deadline_ns);
  [[nodiscard]] bool locate(const Identity& id, cluster::NodeId& node) const;
  [[nodiscard]] cluster::MeshCounts counts();
  [[nodiscard]] const cluster::OfferCounts& offers() const;
  [[nodiscard]] cluster::SessionCounts session_counts();
  // Coder of records that are coded or sealed; null if neither.
  [[nodiscard]] const cluster::LinkCoder* coder() const noexcept { return coder_.get(); }
  [[nodiscard]] std::vector<NodeRow> nodes();
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] const cluster::NodeId& id() const noexcept;
  [[nodiscard]] TierIndex tier() const noexcept { return index_; }
  // Prefill->decode sessions with other nodes; valid from start() on, in a build that has sessions.
  [[nodiscard]] Sessions& sessions() noexcept;

 private:
  Node(const Environment& environment, std::unique_ptr<const cluster::MeshOptions> mesh, const NodeOptions& options,
       std::shared_ptr<const codec::KeyRing> keys);
  // Returns the coder of records on links; null: they are sent plain.
  std::shared_ptr<cluster::LinkCoder> make_coder() const;
  // Runs on the links' thread: a link is ready, or the other side has reported its machine.
  void meet(cluster::PeerLink& link, const cluster::HostFacts* said);
  // Passes the members of the file to the mesh, now and at every change.
  Status watch_members(std::shared_ptr<MembersFile> file);

  const Environment env_;
  const std::unique_ptr<const cluster::MeshOptions> mesh_options_;
  const NodeOptions options_;
  const std::shared_ptr<const codec::KeyRing> keys_;
  const std::array<uint8_t, 16> boot_;
  const std::shared_ptr<cluster::MappedPools> pools_;
  std::unique_ptr<cluster::Mesh> mesh_;
  std::unique_ptr<copy::TransportThread> thread_;
  std::shared_ptr<NodeHelp> help_;
  std::shared_ptr<NodeSessions> sessions_;  // null in a build without sessions
  std::shared_ptr<cluster::LinkCoder> coder_;
  std::unique_ptr<NodeSource> source_;
  std::unique_ptr<cluster::CodedSource> coded_source_;  // around source_, if there is a coder
  std::shared_ptr<MembersFile> members_;
  std::unique_ptr<cluster::SameHost> same_host_;  // from start() to stop(), if there is one
  cluster::PeerTier* tier_ = nullptr;             // owned by the manager
  TierIndex index_ = kNoTier;
  std::string address_;
};

}  // namespace kvbm::manager
