// This node among the others: it listens, dials the pool's addresses and dials again, and knows which link leads to
// which node and whose home a key has.
//
// Above a hub of links (link_hub.h), to which it hands what the transport says, and whose links' listener it is. An
// address that is dialled is dialled for ever, with growing pauses (backoff.h), until its member is no more, but for
// one that turns out to be this node. Homes are chosen among the live members: those that are connected and have said
// what they offer, and this node, if it listens (README.md, Placement). Thread: the transport's, but for attach().
// Invariant: a connection is in connections_ from its acceptance or its dialling to link_ended(), in that order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "cluster/backoff.h"
#include "cluster/complaint.h"
#include "cluster/link_hub.h"
#include "cluster/membership.h"
#include "cluster/mesh_counts.h"
#include "cluster/peers.h"
#include "cluster/placement.h"

namespace kvbm::cluster {

struct MeshOptions {
  std::string listen;              // "host:port"; empty: nobody can connect to this node
  std::vector<std::string> peers;  // addresses to dial
  NodeFacts self;  // protect: as resolved for the transport that carries the links
  std::optional<SharedKey> key;
  // What leaves this machine may be unprotected: node.trusted_network, or records are sealed wherever they go.
  bool unprotected_beyond = false;
  LinkLimits limits;
};

// A loopback address, or a name of one.
bool only_this_machine(const std::string& address);
// Bad addresses, names of hosts, and other machines without a key or without protection, are refused: bad_config with the
// remedy. Of who is on this machine, without a key, the transport lets in this user's processes alone: begin() refuses one
// that cannot.
Status check_mesh_options(const MeshOptions& options);

class Mesh final : public copy::TransportListener, public LinkListener, public Peers {
 public:
  // Decides what of an offer is wanted, on the links' thread; who wants something releases the lease when it has it.
  using Taker = UniqueFunction<void(PeerLink&, std::span<const Offered>, uint64_t lease, std::vector<uint32_t>& want)>;

  Mesh(MeshOptions options, FamilyTable& families, Random& random, const Log* log);
  ~Mesh() override;

  // Before anything else, on any thread: the transport has this mesh as its listener.
  void attach(copy::Transport& transport, Executor& executor) noexcept {
    transport_ = &transport;
    executor_ = &executor;
  }
  // Starts to listen and to dial.
  Status begin(RecordSource& source);
  void take_offers(Taker taker) { taker_ = std::move(taker); }
  // Hears of links that are ready, and of what the other side then says of its host. On the links' thread, before
  // begin().
  using HostListener = UniqueFunction<void(PeerLink&, const HostFacts* said)>;
  void hear_of_hosts(HostListener listener) { hosts_ = std::move(listener); }
  // Hears of nodes to which no link is left. On the links' thread, before begin().
  void hear_of_ends(UniqueFunction<void(const NodeId&)> listener) { ends_ = std::move(listener); }
  // Whom to tell what concerns sessions, and what links come and go; outlives the links.
  void serve_sessions(LinkListener* sessions) noexcept { sessions_ = sessions; }
  // Says goodbye to everyone; nothing is dialled any more.
  void end();
  // Who is dialled besides MeshOptions::peers: the first address of each that is not this node, the next when that
  // fails. Who is not among them any more is left, and not dialled again; it may still dial this node. A weight that is
  // not 0 goes before the node's own word. Without a key or protection members beyond this machine are not dialled:
  // their row says so.
  void set_members(const MemberList& members);

  [[nodiscard]] const std::string& address() const noexcept { return address_; }  // where it listens
  [[nodiscard]] Executor& executor() noexcept override { return *executor_; }
  // Links that are ready, one for each node, by id.
  [[nodiscard]] std::vector<PeerLink*> ready() const override;
  [[nodiscard]] PeerLink* link_to(const NodeId& node) const override;
  // The link to the node that is called so: an address that is dialled here, or the name of a node. owner_gone, saying
  // why, while there is none; invalid_argument for this node itself.
  [[nodiscard]] Result<PeerLink*> link_named(const std::string& name) const;
  // As people know it: "node 0a1b2c3d at 10.0.0.7:7000".
  [[nodiscard]] std::string name_of(const PeerLink& link) const;
  // For who waits for a link: each address that is dialled and has none with how that ended last, but for those that
  // `said` names already, and who was refused here last. Empty: there is nothing to say.
  [[nodiscard]] std::string missing(const std::string& said) const;
  // Every node that sees the same members gets the same order.
  size_t homes(const Key& key, std::span<PeerLink*> out) const override;
  bool too_large(const NodeId& node, uint64_t payload_bytes) override;

  struct NodeRow {
    NodeId node;
    std::string address;
    std::string state;  // "ready", or why not: "refused: " and the refusal, while no other address is left to try
    wire::NodeStatus status;
    LinkStats stats;
  };
  // Every node that is connected, and every address that is dialled.
  [[nodiscard]] std::vector<NodeRow> rows() const;

  [[nodiscard]] MeshCounts counts() const;

  // copy::TransportListener
  void peer_accepted(copy::Peer peer, std::string_view address) override;
  void peer_connected(copy::Peer peer) override;
  void peer_message(copy::Peer peer, ConstBytes bytes) override;
  void peer_writable(copy::Peer peer) override;
  void pushed(copy::Peer peer, copy::Token token, Code status) override;
  void arrived(copy::Peer peer, copy::Token token, uint64_t bytes) override;
  void received(copy::Peer peer, copy::Token token, Code status, uint64_t bytes) override;
  void peer_closed(copy::Peer peer, const Status& status) override;

  // LinkListener
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
    bool established = false;      // it has been ready
    wire::NodeStatus status;
    bool told_size = false;  // that it takes no blocks as large as some here
  };
  struct Target {
    std::vector<std::string> addresses;
    Backoff backoff;
    std::optional<NodeId> expected;  // who must answer
    size_t next = 0;                 // address
    std::string state = "not tried yet";
    std::string failure{};           // how it ended last; empty once it is ready
    bool refused = false;            // and that was a refusal, which stays one until somebody is set up otherwise
    bool is_self = false;
    bool connected = false;
    std::map<std::string, Complaint> complaints{};  // by address
  };

  void add(std::shared_ptr<PeerLink> link, std::string address, uint64_t dialled);
  uint64_t add_target(std::vector<std::string> addresses, std::optional<NodeId> expected);
  void drop_target(uint64_t target);
  void dial(uint64_t target);
  void dial_later(uint64_t target);
  void ask_status(const std::shared_ptr<PeerLink>& link);
  // Tells a peer which namespaces were invalidated: it may have been away when the others heard of it.
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
  std::map<NodeId, uint64_t> member_weights_;  // that are not 0
  std::map<NodeId, PeerLink*> ready_;
  Placement placement_;
  std::vector<NodeId> placed_;
  MeshCounts counts_;  // of links that ended
  std::string refused_;  // the last that came and was not let in, and why
};

}  // namespace kvbm::cluster
