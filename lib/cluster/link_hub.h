// All links over one transport: hands the transport's callbacks to the link of that peer, makes links for those that
// connect, bounds how many strangers may be in the middle of a handshake, and says which were refused. Who is dialled, and when again, is
// decided above (backoff.h).
//
// Invariant: a link is dropped after its link_ended(), never inside a call of its own. Thread: the transport's.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>

#include "cluster/peer_link.h"
#include "cluster/stranger_log.h"
#include "copy/transport.h"

namespace kvbm::cluster {

// The calls of a link on its peer's connection.
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
  // Connections that others began and that have not proved anything, with those that are being told so. With more the
  // oldest is closed: whoever is of the pool needs a millisecond, and whoever says nothing must not keep it out. Below
  // what the transports stop accepting at.
  static constexpr size_t kMaxStrangers = 128;

  // host.executor runs on the transport's thread.
  explicit LinkHub(LinkHost& host) : host_(host), strangers_(host.log, host.log_as) {}
  // The transport whose listener this is; before anything else. It is closed before the hub ends.
  void attach(copy::Transport& transport) { transport_ = &transport; }

  // Starts a connection; link_ready() or link_ended() of the host's listener follows.
  Result<std::shared_ptr<PeerLink>> connect(const std::string& address, std::optional<NodeId> expected = {});
  // The ready link to a node; null without one. With two (both sides dialled) the one of the smaller id's dialling.
  [[nodiscard]] std::shared_ptr<PeerLink> find(const NodeId& node) const;
  [[nodiscard]] size_t size() const noexcept { return links_.size(); }
  // Of a connection; null where it was refused or is gone.
  [[nodiscard]] std::shared_ptr<PeerLink> link(copy::Peer peer) const;
  // Says goodbye to all.
  void close();
  // Whether what this link says, or hears, is what this node itself hears, or says, on another one: it was sent to itself.
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
    std::string from;  // who began it, as the transport calls it; empty where this side dialled
  };
  LinkHost& host_;
  copy::Transport* transport_ = nullptr;
  std::map<copy::Peer, Entry> links_;
  StrangerLog strangers_;
  uint64_t refused_strangers_ = 0;
  // The last hellos of this node itself that came to it and were refused: who sent one may hear of it later.
  std::array<Handshake::HelloNonce, 16> own_hellos_{};
  size_t next_own_ = 0;
};

}  // namespace kvbm::cluster
