// One connection to a peer, from its first byte to its last: handshake, authenticated messages, requests in both
// directions, liveness. A step-driven state machine: the transport's callbacks and timers are its input, calls on a
// PeerPort its output.
//
// States: handshaking -> ready -> ending -> ended. Operations may be started at any time; they wait for `ready`
// within their own deadlines. Each ends exactly once, by its deadline plus one turn of the executor; its callback
// runs on the links' thread, outside the call that started it. A peer that breaks the protocol, or is silent for
// limits.dead_ns, is disconnected and fails each operation once (owner_gone). Staging that a late transfer could
// touch is quarantined, and counted, until the transport has released it. A link is used for one connection; the
// dialling side makes the next one (backoff.h).
//
// Thread: one, that of host.executor. Memory: grows with operations in flight; an idle link takes about 1.5 KiB.
#pragma once

#include <deque>

#include "cluster/link/link_requests.h"
#include "cluster/link/link_service.h"
#include "cluster/link/link_sessions.h"

namespace kvbm::cluster {

class PeerLink final : public std::enable_shared_from_this<PeerLink> {
 public:
  enum class State : uint8_t { handshaking, ready, ending, ended };

  // Makes a link. `expected`: the node that the initiator dialled, if known. The port must outlive only the link's
  // `ended` state.
  static std::shared_ptr<PeerLink> create(LinkHost& host, std::unique_ptr<PeerPort> port, Role role,
                                          std::optional<NodeId> expected = {});
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  // Events of the connection. connected() is for an initiator only.
  void connected();
  void message(ConstBytes bytes);
  void writable();
  void pushed(uint64_t token, Code code);
  void received(uint64_t token, Code code, uint64_t bytes);
  void arrived(uint64_t token, uint64_t bytes);
  void closed(const Status& why);

  // Start operations; each batch's `done` runs exactly once. Return a name for cancel(), 0 if it ended at once.
  uint64_t find(std::unique_ptr<FindBatch> batch);
  uint64_t fetch(std::unique_ptr<FetchBatch> batch);
  uint64_t offer(std::unique_ptr<OfferBatch> batch);
  // Returns how many records an offer would get a lease for now.
  [[nodiscard]] size_t lease_room() const noexcept { return service_.lease_room(); }
  // Returns true while an offer's lease lasts: the peer has not released it, and it has not expired.
  [[nodiscard]] bool holds(uint64_t lease) const noexcept { return service_.holds(lease); }
  uint64_t ask_status(uint64_t deadline_ns, LinkRequests::StatusDone done);
  uint64_t renew(uint64_t lease, uint64_t lease_ns, uint64_t deadline_ns, LinkRequests::LeaseDone done);
  uint64_t invalidate(const NamespaceId& base, uint64_t epoch, uint64_t deadline_ns, LinkRequests::CodeDone done);
  // Ends the operation with Code::cancelled, soon; false: it has ended.
  bool cancel(uint64_t operation);
  // Releases leases of a find that are no longer needed.
  void release(std::span<const uint64_t> leases);
  // For cluster/session. again: link_session_writable() follows.
  Code send_session(ConstBytes body);
  // Sends this node's description of its machine; no-op if the link is not ready.
  void send_host(const HostFacts& facts);
  // Bulk transfers under names chosen by the session, unique while in progress; link_session_moved() reports the end.
  Code post_session(uint64_t tag, MutableBytes to, uint64_t name);
  Code push_session(uint64_t tag, std::span<const ConstBytes> pieces, uint64_t name);
  void cancel_session(uint64_t name);
  // Sends a goodbye and ends the link.
  void close();
  // Ends the link at once, even one that waits for its last message to be read.
  void drop(Status why);
  // Returns true if the peer has proved nothing, and the link was not dropped.
  [[nodiscard]] bool is_stranger() const noexcept { return !proven() && !dropped_ && state_ != State::ended; }

  // Returns true if the peer has proved at some time that it belongs to the pool.
  [[nodiscard]] bool proven() const noexcept { return channel_.has_value(); }

  [[nodiscard]] State state() const noexcept { return state_; }
  // Returns how the link ended, once it has.
  [[nodiscard]] const Status& why() const noexcept { return why_; }
  [[nodiscard]] Role role() const noexcept { return role_; }
  [[nodiscard]] uint64_t born_ns() const noexcept { return born_ns_; }
  [[nodiscard]] const NodeFacts& peer() const noexcept { return handshake_.peer(); }
  [[nodiscard]] const Handshake::HelloNonce& hello_nonce() const noexcept { return handshake_.hello_nonce(); }
  // Returns the connection's protection, once it is ready.
  [[nodiscard]] copy::Protection protection() const noexcept { return handshake_.protection(); }
  [[nodiscard]] const LinkStats& stats() const noexcept { return stats_; }

  // Calls of the two halves (link_requests.h, link_service.h).
  //
  // Returns the buffer for the body of the next message; commit() seals and sends it.
  [[nodiscard]] MutableBytes body() noexcept;
  void commit(size_t bytes);
  // Returns true if no message waits to be sent.
  [[nodiscard]] bool clear() const noexcept { return outbox_.empty(); }
  [[nodiscard]] PeerPort& port() noexcept { return *port_; }
  void record_opened(uint64_t serving, uint32_t index, const OpenedRecord& record);
  void epochs_taken(const std::vector<EpochWord>& words);

 private:
  // Wraps every call from outside; the outermost one handles the consequences of the call.
  class Turn;
  enum class Callbacks : uint8_t { now, posted };

  PeerLink(LinkHost& host, std::unique_ptr<PeerPort> port, Role role, std::optional<NodeId> expected);

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
  std::deque<std::vector<std::byte>> outbox_;  // sealed messages, in order, that the transport had no space for
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
  uint32_t telling_back_ = 0;            // epochs being sent back because the peer does not know them
  std::optional<HostFacts> host_facts_;  // received in this turn
  LinkSessions sessions_;
};

}  // namespace kvbm::cluster
