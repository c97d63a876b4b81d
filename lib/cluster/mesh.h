// This node among the others: it listens, dials the pool's addresses and dials again, and knows which link leads to
// which node and whose home a key has.
//
// Above a hub of links (link_hub.h), to which it hands what the transport says, and whose links' listener it is. An
// address that is dialled is dialled for ever, with growing pauses (backoff.h), but for one that turns out to be this
// node. Thread: the transport's, but for attach(). Invariant: a connection is in connections_ from its acceptance or
// its dialling to link_ended(), in that order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "cluster/backoff.h"
#include "cluster/link_hub.h"
#include "cluster/placement.h"

namespace kvbm::cluster {

struct MeshOptions {
  std::string listen;              // "host:port"; empty: nobody can connect to this node
  std::vector<std::string> peers;  // addresses to dial
  NodeFacts self;
  std::optional<SharedKey> key;
  LinkLimits limits;
};

// Bad addresses, and listening to others than this machine without a key, are refused: bad_config with the remedy.
Status check_mesh_options(const MeshOptions& options);

class Mesh final : public copy::TransportListener, public LinkListener {
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
  // Whom to tell what concerns sessions, and what links come and go; outlives the links.
  void serve_sessions(LinkListener* sessions) noexcept { sessions_ = sessions; }
  // Says goodbye to everyone; nothing is dialled any more.
  void end();

  [[nodiscard]] const std::string& address() const noexcept { return address_; }  // where it listens
  [[nodiscard]] Executor& executor() noexcept { return *executor_; }
  // Links that are ready, one for each node, by id.
  [[nodiscard]] std::vector<PeerLink*> ready() const;
  [[nodiscard]] PeerLink* link_to(const NodeId& node) const;
  // The link to the node that is called so: an address that is dialled here, or the name of a node. owner_gone, saying
  // why, while there is none; invalid_argument for this node itself.
  [[nodiscard]] Result<PeerLink*> link_named(const std::string& name) const;
  // The best of the nodes that are connected for each key; null without any that offers room.
  [[nodiscard]] PeerLink* home(const Key& key) const;

  struct NodeRow {
    NodeId node;
    std::string address;
    std::string state;  // "ready", or why not
    wire::NodeStatus status;
    LinkStats stats;
  };
  // Every node that is connected, and every address that is dialled.
  [[nodiscard]] std::vector<NodeRow> rows() const;

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
  void link_session(PeerLink& link, ConstBytes bytes) override;
  void link_session_moved(PeerLink& link, uint64_t name, Code code, uint64_t bytes) override;
  void link_session_writable(PeerLink& link) override;

 private:
  static constexpr size_t kAccepted = SIZE_MAX;
  struct Connection {
    std::shared_ptr<PeerLink> link;
    std::string address;
    size_t dialled = kAccepted;  // index in targets_
    wire::NodeStatus status;
  };
  struct Target {
    std::string address;
    Backoff backoff;
    std::string state = "not tried yet";
    bool is_self = false;
    bool connected = false;
  };

  void add(std::shared_ptr<PeerLink> link, std::string address, size_t dialled);
  void dial(size_t target);
  void dial_later(size_t target);
  void ask_status(const std::shared_ptr<PeerLink>& link);
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
  LinkListener* sessions_ = nullptr;
  std::string address_;
  bool ended_ = false;
  std::vector<Connection> connections_;
  std::vector<Target> targets_;
  std::map<NodeId, PeerLink*> ready_;
  Placement placement_;
  std::vector<NodeId> placed_;
};

}  // namespace kvbm::cluster
