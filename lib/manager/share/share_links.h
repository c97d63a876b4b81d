// Connections between the processes of one tier set: a client's to the owner, the owner's to its clients.
//
// A process begins without a role: it dials the owner, or it listens and so is the owner; after that it dials no
// more. A client is connected when the owner has identified itself (ShareKind::here). A query to the owner ends with
// its answer, by its deadline, or with the link, exactly once. Thread: the links', except attach(). This object
// outlives the transport's thread, and its host outlives it.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/telemetry/log.h"
#include "cluster/link/link_hub.h"
#include "cluster/tier/peers.h"
#include "manager/share/share_wire.h"

namespace kvbm::manager {

class ShareLinks final : public copy::TransportListener, public cluster::LinkListener, public cluster::Peers {
 public:
  using Answered = UniqueFunction<void(Code, uint64_t value, std::vector<Key> keys)>;

  // Callbacks; on the links' thread.
  class Host {
   public:
    virtual ~Host() = default;
    // Reports the owner. False: it cannot be used, and the link is closed. `peer` is the owner's connection.
    virtual bool owner_found(const ShareMessage& here, const cluster::NodeFacts& owner, copy::Peer peer) = 0;
    // Returns the message with which this process, as the owner, answers a client that has just connected.
    virtual ShareMessage here() = 0;
    // Reports the end of the dialled link; it had led to the owner if was_connected.
    virtual void owner_lost(const Status& why, bool was_connected) = 0;
    virtual void clients_changed(size_t n) = 0;
    // Reports a client's query; `answer` runs on the links' thread, once, and not for messages that want none.
    virtual void asked(const ShareMessage& message, Answered answer) = 0;
    virtual void offered(cluster::PeerLink& link, std::span<const cluster::Offered> items, uint64_t lease,
                         std::vector<uint32_t>& want) = 0;
  };

  ShareLinks(cluster::NodeFacts self, cluster::LinkLimits limits, FamilyTable& families, Random& random, Host& host,
             const Log* log);
  ~ShareLinks() override;

  // Must be the first call: the transport has this as its listener.
  void attach(copy::Transport& transport, Executor& executor) noexcept {
    transport_ = &transport;
    executor_ = &executor;
  }
  void begin(cluster::RecordSource& source);
  // Makes one attempt to reach the owner; no-op while one is in progress, or the owner is connected.
  void dial(const std::string& address);
  Status listen(const std::string& address);
  // Closes all links; nothing is dialled or accepted any more.
  void end();
  // Asks the owner. `message.request` is filled in.
  void ask(ShareMessage message, uint64_t deadline_ns, Answered done);
  // Announces a namespace's new epoch: a client to the owner, or the owner to its clients, without waiting for these.
  void announce(const NamespaceId& base, uint64_t epoch, uint64_t deadline_ns, UniqueFunction<void(Code)> done);
  [[nodiscard]] bool is_owner() const noexcept { return listening_; }

  // cluster::Peers: the owner for a client, the clients for the owner. Records are offered to the owner alone.
  [[nodiscard]] Executor& executor() noexcept override { return *executor_; }
  [[nodiscard]] std::vector<cluster::PeerLink*> ready() const override;
  [[nodiscard]] cluster::PeerLink* link_to(const cluster::NodeId& node) const override;
  size_t homes(const Key& key, std::span<cluster::PeerLink*> out) const override;

  // Implements copy::TransportListener.
  void peer_accepted(copy::Peer peer, std::string_view address) override;
  void peer_connected(copy::Peer peer) override {
    dialled_peer_ = peer;
    hub_->peer_connected(peer);
  }
  void peer_message(copy::Peer peer, ConstBytes bytes) override { hub_->peer_message(peer, bytes); }
  void peer_writable(copy::Peer peer) override { hub_->peer_writable(peer); }
  void pushed(copy::Peer peer, copy::Token token, Code status) override { hub_->pushed(peer, token, status); }
  void arrived(copy::Peer peer, copy::Token token, uint64_t bytes) override { hub_->arrived(peer, token, bytes); }
  void received(copy::Peer peer, copy::Token token, Code status, uint64_t bytes) override {
    hub_->received(peer, token, status, bytes);
  }
  void peer_closed(copy::Peer peer, const Status& status) override { hub_->peer_closed(peer, status); }

  // Implements cluster::LinkListener.
  void link_ready(cluster::PeerLink& link) override;
  void link_ended(cluster::PeerLink& link, const Status& why) override;
  void link_offered(cluster::PeerLink& link, std::span<const cluster::Offered> items, uint64_t lease,
                    std::vector<uint32_t>& want) override;
  void link_session(cluster::PeerLink& link, ConstBytes bytes) override;

 private:
  // Handling of a message that could not be sent by its deadline. A query is dropped, because its caller knows the
  // deadline. A peer that waits for an answer may have none, so its link is closed.
  enum class Unsaid : uint8_t { is_dropped, ends_the_link };
  void say(const std::weak_ptr<cluster::PeerLink>& link, std::shared_ptr<const std::vector<std::byte>> bytes,
           uint64_t deadline_ns, Unsaid unsaid);
  void say(cluster::PeerLink& link, const ShareMessage& message, uint64_t deadline_ns, Unsaid unsaid);
  void answered(uint64_t request, Code code, uint64_t value, std::vector<Key> keys);

  const cluster::NodeFacts self_;
  const cluster::LinkLimits limits_;
  FamilyTable& families_;
  Random& random_;
  Host& host_;
  const Log* const log_;
  std::unique_ptr<cluster::LinkHost> link_host_;
  std::unique_ptr<cluster::LinkHub> hub_;
  copy::Transport* transport_ = nullptr;
  Executor* executor_ = nullptr;
  bool listening_ = false;
  bool ended_ = false;
  std::shared_ptr<cluster::PeerLink> dialled_;  // connecting or connected to the owner
  copy::Peer dialled_peer_ = 0;                 // the connection, once it is up
  bool connected_ = false;
  std::map<cluster::NodeId, std::shared_ptr<cluster::PeerLink>> clients_;
  std::map<uint64_t, Answered> asked_;
  uint64_t last_request_ = 0;
};

}  // namespace kvbm::manager
