// This node among the others: it listens, dials and redials the pool's addresses, and knows which link leads to which
// node and which node is a key's home.
//
// Above a hub of links (link_hub.h): passes the transport's callbacks to it and listens to its links. An address is
// dialled forever, with growing pauses (backoff.h), until its member is removed, or it turns out to be this node.
// Homes are chosen among the live members: those that are connected and have reported their capacity, and this node,
// if it listens (cluster/README.md, Placement). Thread: the transport's, except attach(). Invariant: a connection is in
// connections_ from its acceptance or its dialling to link_ended(), in that order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/telemetry/log.h"
#include "cluster/link/link_hub.h"
#include "cluster/mesh/backoff.h"
#include "cluster/mesh/log_throttle.h"
#include "cluster/mesh/mesh_counts.h"
#include "cluster/placement/membership.h"
#include "cluster/placement/placement.h"
#include "cluster/tier/peers.h"

namespace kvbm::cluster {

struct MeshOptions {
  std::string listen;              // "host:port"; empty: no node can connect to this one
  std::vector<std::string> peers;  // addresses to dial
  NodeFacts self;                  // protect: as resolved for the transport that carries the links
  std::optional<SharedKey> key;
  // Links beyond this machine may be unprotected: node.trusted_network, or all records are sealed.
  bool unprotected_beyond = false;
  LinkLimits limits;
};

// Returns true for a loopback address, or a name of one.
bool only_this_machine(const std::string& address);
// Refuses bad addresses, names of hosts, and other machines without a key or without protection: bad_config with the
// remedy. On this machine, without a key, the transport admits only processes of this user; begin() refuses a
// transport that cannot.
Status check_mesh_options(const MeshOptions& options);

class Mesh final : public copy::TransportListener, public LinkListener, public Peers {
 public:
  // Chooses the wanted items of an offer, on the links' thread. A taker that wants some releases the lease once it
  // has them.
  using Taker = UniqueFunction<void(PeerLink&, std::span<const Offered>, uint64_t lease, std::vector<uint32_t>& want)>;

  Mesh(MeshOptions options, FamilyTable& families, Random& random, const Log* log);
  ~Mesh() override;

  // Must be the first call, on any thread: the transport has this mesh as its listener.
  void attach(copy::Transport& transport, Executor& executor) noexcept {
    transport_ = &transport;
    executor_ = &executor;
  }
  // Starts to listen and to dial.
  Status begin(RecordSource& source);
  void take_offers(Taker taker) { taker_ = std::move(taker); }
  // Sets the callback for links that are ready, and for the other side's description of its host. On the links'
  // thread, before begin().
  using HostListener = UniqueFunction<void(PeerLink&, const HostFacts* said)>;
  void hear_of_hosts(HostListener listener) { hosts_ = std::move(listener); }
  // Sets the callback for nodes that have no link left. On the links' thread, before begin().
  void hear_of_ends(UniqueFunction<void(const NodeId&)> listener) { ends_ = std::move(listener); }
  // Sets the receiver of session messages and of links' starts and ends; outlives the links.
  void serve_sessions(LinkListener* sessions) noexcept { sessions_ = sessions; }
  // Closes all links; nothing is dialled any more.
  void end();
  // Sets the members to dial besides MeshOptions::peers: the first address of each that is not this node, the next if
  // that fails. A member that was removed is disconnected, and not dialled again; it may still dial this node. A
  // weight that is not 0 overrides the node's own. Without a key or protection members beyond this machine are not
  // dialled: their row has the reason.
  void set_members(const MemberList& members);

  [[nodiscard]] const std::string& address() const noexcept { return address_; }  // its listening address
  [[nodiscard]] Executor& executor() noexcept override { return *executor_; }
  // Returns the ready links, one for each node, by id.
  [[nodiscard]] std::vector<PeerLink*> ready() const override;
  [[nodiscard]] PeerLink* link_to(const NodeId& node) const override;
  // Returns the link to a node by an address dialled here, or by the node's name. owner_gone, with the reason, while
  // there is none; invalid_argument for this node itself.
  [[nodiscard]] Result<PeerLink*> link_named(const std::string& name) const;
  // Returns a name for messages: "node 0a1b2c3d at 10.0.0.7:7000".
  [[nodiscard]] std::string name_of(const PeerLink& link) const;
  // Returns the missing links, for a caller that waits for one: each dialled address without a link, with its last
  // failure, except those that `said` names already; and the last refused peer. Empty: nothing to report.
  [[nodiscard]] std::string missing(const std::string& said) const;
  // Returns the same order on every node that has the same members.
  size_t homes(const Key& key, std::span<PeerLink*> out) const override;
  bool too_large(const NodeId& node, uint64_t payload_bytes) override;

  struct NodeRow {
    NodeId node;
    std::string address;
    std::string state;  // "ready", or why not: "refused: " and the refusal, while no other address is left to try
    wire::NodeStatus status;
    LinkStats stats;
  };
  // Returns every connected node, and every dialled address.
  [[nodiscard]] std::vector<NodeRow> rows() const;

  [[nodiscard]] MeshCounts counts() const;

  // Implements copy::TransportListener.
  void peer_accepted(copy::Peer peer, std::string_view address) override;
  void peer_connected(copy::Peer peer) override;
  void peer_message(copy::Peer peer, ConstBytes bytes) override;
  void peer_writable(copy::Peer peer) override;
  void pushed(copy::Peer peer, copy::Token token, Code status) override;
  void arrived(copy::Peer peer, copy::Token token, uint64_t bytes) override;
  void received(copy::Peer peer, copy::Token token, Code status, uint64_t bytes) override;
  void peer_closed(copy::Peer peer, const Status& status) override;

  // Implements LinkListener.
  void link_ready(PeerLink& link) override;
  void link_ended(PeerLink& link, const Status& why) override;
  void link_offered(PeerLink& link, std::span<const Offered> items, uint64_t lease,
                    std::vector<uint32_t>& want) override;
  void link_host(PeerLink& link, const HostFacts& facts) override;
  void link_session(PeerLink& link, ConstBytes bytes) override;
  void link_session_moved(PeerLink& link, uint64_t name, Code code, uint64_t bytes) override;
  void link_session_writable(PeerLink& link) override;

 private:
  static constexpr uint64_t kAccepted = 0;
  struct Connection {
    std::shared_ptr<PeerLink> link;
    std::string address;
    uint64_t dialled = kAccepted;  // name in targets_
    bool established = false;      // has been ready
    wire::NodeStatus status;
    bool told_size = false;  // logged that its blocks are smaller than some here
  };
  struct Target {
    std::vector<std::string> addresses;
    Backoff backoff;
    std::optional<NodeId> expected;  // node that must answer
    size_t next = 0;                 // index of the next address
    std::string state = "not tried yet";
    std::string failure{};  // last failure; empty once it is ready
    bool refused = false;   // that was a refusal, which repeats until one side's configuration changes
    bool is_self = false;
    bool connected = false;
    std::map<std::string, LogThrottle> throttles{};  // by address
  };

  void add(std::shared_ptr<PeerLink> link, std::string address, uint64_t dialled);
  uint64_t add_target(std::vector<std::string> addresses, std::optional<NodeId> expected);
  void drop_target(uint64_t target);
  void dial(uint64_t target);
  void dial_later(uint64_t target);
  void ask_status(const std::shared_ptr<PeerLink>& link);
  // Sends the invalidated namespaces to a peer, which may have been offline when the others received them.
  void tell_epochs(const std::shared_ptr<PeerLink>& link);
  void choose_link(const NodeId& node);
  void place();
  Connection* find(const PeerLink& link);
  void say(LogLevel level, const std::string& text) const;

  const MeshOptions options_;
  FamilyTable& families_;
  Random& random_;
  const Log* const log_;
  std::unique_ptr<LinkHost> host_;
  std::unique_ptr<LinkHub> hub_;
  copy::Transport* transport_ = nullptr;
  Executor* executor_ = nullptr;
  Taker taker_;
  HostListener hosts_;
  UniqueFunction<void(const NodeId&)> ends_;
  LinkListener* sessions_ = nullptr;
  std::string address_;
  bool ended_ = false;
  std::vector<Connection> connections_;
  std::map<uint64_t, Target> targets_;
  uint64_t last_target_ = kAccepted;
  std::map<NodeId, uint64_t> member_targets_;
  std::map<NodeId, uint64_t> member_weights_;  // weights that are not 0
  std::map<NodeId, PeerLink*> ready_;
  Placement placement_;
  std::vector<NodeId> placed_;
  MeshCounts counts_;    // of links that ended
  std::string refused_;  // the last refused peer, and why
};

}  // namespace kvbm::cluster
