// All links over one transport: passes the transport's callbacks to the link of that peer, and makes links for peers
// that connect. Bounds the number of unauthenticated peers in a handshake, and logs refused ones. The layer above
// decides which nodes to dial, and when to retry (backoff.h).
//
// Invariant: a link is dropped after its link_ended(), never inside a call of its own. Thread: the transport's.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>

#include "cluster/admission/stranger_log.h"
#include "cluster/link/peer_link.h"
#include "copy/transport.h"

namespace kvbm::cluster {

// Calls of a link on its peer's connection.
class TransportPort final : public PeerPort {
 public:
  TransportPort(copy::Transport& transport, copy::Peer peer) : transport_(transport), peer_(peer) {}
  Code send(ConstBytes message) override { return transport_.send(peer_, message); }
  Code post(uint64_t tag, MutableBytes to, uint64_t& token) override { return transport_.post(peer_, tag, to, token); }
  Code push(uint64_t tag, std::span<const ConstBytes> pieces, uint64_t& token) override;
  void cancel(uint64_t token) override { (void)transport_.cancel(peer_, token); }
  void admit() override { (void)transport_.admit(peer_); }
  Code protect(copy::Protection how, const ChannelKeys& keys) override {
    return transport_.protect(peer_, how, keys.send.data(), keys.receive.data());
  }
  void disconnect(bool flush) override { (void)transport_.disconnect(peer_, flush); }

 private:
  copy::Transport& transport_;
  copy::Peer peer_;
};

class LinkHub final : public copy::TransportListener {
 public:
  // Limit of accepted connections that have not proved anything, including those being refused. Beyond it the oldest
  // is closed: a node of the pool needs a millisecond, and a silent peer must not keep it out. Below the limit at
  // which transports stop accepting.
  static constexpr size_t kMaxStrangers = 128;

  // host.executor runs on the transport's thread.
  explicit LinkHub(LinkHost& host) : host_(host), strangers_(host.log, host.log_as) {}
  // Sets the transport of this listener; must be the first call. The transport is closed before the hub ends.
  void attach(copy::Transport& transport) { transport_ = &transport; }

  // Starts a connection; link_ready() or link_ended() of the host's listener follows.
  Result<std::shared_ptr<PeerLink>> connect(const std::string& address, std::optional<NodeId> expected = {});
  // Returns the ready link to a node; null if there is none. If both sides dialled, the one that the smaller id
  // dialled.
  [[nodiscard]] std::shared_ptr<PeerLink> find(const NodeId& node) const;
  [[nodiscard]] size_t size() const noexcept { return links_.size(); }
  // Returns the link of a connection; null if it was refused or is gone.
  [[nodiscard]] std::shared_ptr<PeerLink> link(copy::Peer peer) const;
  // Closes all links.
  void close();
  // Returns true if this link connects the node to itself.
  [[nodiscard]] bool is_own(const PeerLink& link) const;
  [[nodiscard]] uint64_t refused_strangers() const noexcept { return refused_strangers_; }

  void peer_accepted(copy::Peer peer, std::string_view address) override;
  void peer_connected(copy::Peer peer) override;
  void peer_message(copy::Peer peer, ConstBytes bytes) override;
  void peer_writable(copy::Peer peer) override;
  void pushed(copy::Peer peer, copy::Token token, Code status) override;
  void arrived(copy::Peer peer, copy::Token token, uint64_t bytes) override;
  void received(copy::Peer peer, copy::Token token, Code status, uint64_t bytes) override;
  void peer_closed(copy::Peer peer, const Status& status) override;

 private:
  struct Entry {
    std::shared_ptr<PeerLink> link;
    std::string from;  // address of the initiator, as the transport names it; empty if this side dialled
  };
  LinkHost& host_;
  copy::Transport* transport_ = nullptr;
  std::map<copy::Peer, Entry> links_;
  StrangerLog strangers_;
  uint64_t refused_strangers_ = 0;
  // The last hellos of this node that came back to it and were refused: the link that sent one learns of it later.
  std::array<Handshake::HelloNonce, 16> own_hellos_{};
  size_t next_own_ = 0;
};

}  // namespace kvbm::cluster
