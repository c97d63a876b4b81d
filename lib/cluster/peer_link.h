// One connection to a peer, from its first byte to its last: handshake, keyed messages, requests in both directions,
// liveness. A step-driven state machine: the transport's callbacks and timers come in, calls on a PeerPort go out.
//
// States: handshaking -> ready -> ending -> ended. Operations may be given at any time; they wait for `ready` within
// their own deadlines. Each ends exactly once, by its deadline plus one turn of the executor; its callback runs on the
// links' thread, outside the call that started it. A peer that breaks the protocol, or is silent for limits.dead_ns, is
// disconnected and costs each operation once (owner_gone). Staging that a late transfer could touch is quarantined, and
// counted, until the transport gave it back. A link is used for one connection; whoever dials makes the next one
// (backoff.h).
//
// Thread: one, that of host.executor. Memory: grows with operations in flight; an idle link takes about 1.5 KiB.
#pragma once

#include <deque>

#include "cluster/link_requests.h"
#include "cluster/link_service.h"
#include "cluster/link_sessions.h"

namespace kvbm::cluster {

class PeerLink final : public std::enable_shared_from_this<PeerLink>, private LinkOutlet {
 public:
  enum class State : uint8_t { handshaking, ready, ending, ended };

  // expected: whom the initiator dialled, where that is known. The port must outlive the link's `ended` state only.
  static std::shared_ptr<PeerLink> create(LinkHost& host, std::unique_ptr<PeerPort> port, Role role,
                                          std::optional<NodeId> expected = {});
  ~PeerLink() override;
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  // What happens on the connection. connected() for an initiator alone.
  void connected();
  void message(ConstBytes bytes);
  void writable();
  void pushed(uint64_t token, Code code);
  void received(uint64_t token, Code code, uint64_t bytes);
  void arrived(uint64_t token, uint64_t bytes);
  void closed(const Status& why);

  // Operations; each batch's `done` runs exactly once. Gives a name for cancel(), 0 if it ended at once.
  uint64_t find(std::unique_ptr<FindBatch> batch);
  uint64_t fetch(std::unique_ptr<FetchBatch> batch);
  uint64_t offer(std::unique_ptr<OfferBatch> batch);
  // How many records an offer would be given a lease for now.
  [[nodiscard]] size_t lease_room() const noexcept { return service_.lease_room(); }
  // Whether an offer's lease goes on: the peer has not given it back, and it has not ended by itself.
  [[nodiscard]] bool holds(uint64_t lease) const noexcept { return service_.holds(lease); }
  uint64_t ask_status(uint64_t deadline_ns, LinkRequests::StatusDone done);
  uint64_t renew(uint64_t lease, uint64_t lease_ns, uint64_t deadline_ns, LinkRequests::LeaseDone done);
  uint64_t invalidate(const NamespaceId& base, uint64_t epoch, uint64_t deadline_ns, LinkRequests::CodeDone done);
  // The operation ends with Code::cancelled, soon; false: it has ended.
  bool cancel(uint64_t operation);
  // Leases that a find brought and that are not needed any more.
  void release(std::span<const uint64_t> leases);
  // For cluster/session. again: link_session_writable() follows.
  Code send_session(ConstBytes body);
  // Says where this node is on its machine; nothing where the link is not ready.
  void send_host(const HostFacts& facts);
  // Bulk under names of the session's choice, each different while it is under way; link_session_moved() ends it.
  Code post_session(uint64_t tag, MutableBytes to, uint64_t name);
  Code push_session(uint64_t tag, std::span<const ConstBytes> pieces, uint64_t name);
  void cancel_session(uint64_t name);
  // Says goodbye and ends.
  void close();
  // Ends at once, also what is waiting for its last words to be taken.
  void drop(Status why);
  // It has proved nothing, and has not been dropped.
  [[nodiscard]] bool is_stranger() const noexcept {
    return !proven() && !dropped_ && state_ != State::ended;
  }

  // The peer has proved that it belongs to the pool, at some time.
  [[nodiscard]] bool proven() const noexcept { return channel_.has_value(); }

  [[nodiscard]] State state() const noexcept { return state_; }
  // How it ended, once it has.
  [[nodiscard]] const Status& why() const noexcept { return why_; }
  [[nodiscard]] Role role() const noexcept { return role_; }
  [[nodiscard]] uint64_t born_ns() const noexcept { return born_ns_; }
  [[nodiscard]] const NodeFacts& peer() const noexcept { return handshake_.peer(); }
  [[nodiscard]] const Handshake::HelloNonce& hello_nonce() const noexcept { return handshake_.hello_nonce(); }
  // That both sides speak, once it is ready.
  [[nodiscard]] uint8_t version() const noexcept { return handshake_.version(); }
  // Of what crosses the connection, likewise.
  [[nodiscard]] copy::Protection protection() const noexcept { return handshake_.protection(); }
  [[nodiscard]] const LinkStats& stats() const noexcept { return stats_; }

  // For the serving half.
  void record_opened(uint64_t serving, uint32_t index, const OpenedRecord& record);
  void epochs_taken(const std::vector<EpochWord>& words);

 private:
  // Around every call from outside; the outermost one settles what the call brought about.
  class Turn;
  enum class Callbacks : uint8_t { now, posted };

  PeerLink(LinkHost& host, std::unique_ptr<PeerPort> port, Role role, std::optional<NodeId> expected);
  [[nodiscard]] MutableBytes body() noexcept override;
  void commit(size_t bytes) override;
  [[nodiscard]] bool clear() const noexcept override { return outbox_.empty(); }
  [[nodiscard]] PeerPort& port() noexcept override { return *port_; }
  [[nodiscard]] std::weak_ptr<PeerLink> handle() noexcept override { return weak_from_this(); }
  [[nodiscard]] const NodeId& peer_node() const noexcept override { return handshake_.peer().node; }

  void send(ConstBytes message);
  void step(Handshake::Step step);
  Status protect();
  void begin();
  Status dispatch(ConstBytes body);
  Status dispatch_offer(ConstBytes body);
  void end(Status why, bool flush);
  void settle(Callbacks callbacks);
  [[nodiscard]] bool has_news() const noexcept;
  void run_callbacks();
  void run_callbacks_later();
  void tick(uint64_t armed);
  void arm();
  void send_plain(wire::Type type, uint64_t request, uint32_t count = 0);

  LinkHost& host_;
  std::unique_ptr<PeerPort> port_;
  Role role_;
  State state_ = State::handshaking;
  Handshake handshake_;
  std::optional<Channel> channel_;
  LinkStats stats_;
  LinkRequests requests_;
  LinkService service_;
  std::deque<std::vector<std::byte>> outbox_;  // sealed, in order, that the transport had no room for
  uint64_t outbox_bytes_ = 0;
  Status why_;
  uint64_t born_ns_;
  uint64_t heard_ns_;
  uint64_t armed_ns_ = kNever;
  bool pinged_ = false;
  bool overflowed_ = false;
  bool dropped_ = false;
  bool announce_ready_ = false;
  bool announce_end_ = false;
  bool draining_ = false;
  bool drain_posted_ = false;
  uint32_t depth_ = 0;
  uint32_t telling_back_ = 0;  // epochs that the peer does not know
  std::optional<HostFacts> host_facts_;  // of this turn
  LinkSessions sessions_;
};

}  // namespace kvbm::cluster
