#include "cluster/link/peer_link.h"

#include <algorithm>
#include <new>

namespace kvbm::cluster {

class PeerLink::Turn {
 public:
  explicit Turn(PeerLink& link, Callbacks callbacks = Callbacks::now)
      : self_(link.shared_from_this()), callbacks_(callbacks) {
    ++link.depth_;
  }
  // Closes the connection if memory is refused: its end, and pending callbacks, follow in a later turn.
  ~Turn() {
    try {
      if (self_->depth_ == 1) self_->settle(callbacks_);
    } catch (const std::bad_alloc&) {
      self_->draining_ = false;
      self_->port_->disconnect(false);
    }
    --self_->depth_;
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::shared_ptr<PeerLink> self_;
  Callbacks callbacks_;
};

std::shared_ptr<PeerLink> PeerLink::create(LinkHost& host, std::unique_ptr<PeerPort> port, Role role,
                                           std::optional<NodeId> expected) {
  std::shared_ptr<PeerLink> link(new PeerLink(host, std::move(port), role, expected));
  link->arm();
  return link;
}

PeerLink::PeerLink(LinkHost& host, std::unique_ptr<PeerPort> port, Role role, std::optional<NodeId> expected)
    : host_(host),
      port_(std::move(port)),
      role_(role),
      handshake_(host.self, host.key.has_value() ? &*host.key : nullptr, role, host.random, expected),
      requests_(host, *this, stats_),
      service_(host, *this, stats_),
      born_ns_(host.executor.clock().now_ns()),
      heard_ns_(born_ns_) {}

// Runs before closed() if the owner drops the link early: the transport is gone with everything of this peer.
PeerLink::~PeerLink() {
  ++depth_;
  service_.end();
  requests_.end(Code::owner_gone);
  requests_.drain();
}

void PeerLink::connected() {
  const Turn turn(*this);
  if (state_ == State::handshaking) step(handshake_.start());
}

void PeerLink::message(ConstBytes bytes) {
  const Turn turn(*this);
  if (state_ != State::handshaking && state_ != State::ready) return;
  ++stats_.messages_in;
  heard_ns_ = host_.executor.clock().now_ns();
  pinged_ = false;
  if (!channel_.has_value()) return step(handshake_.take(bytes));
  auto body = channel_->open(bytes);
  if (body.ok() && state_ == State::handshaking) begin();
  const Status status = body.ok() ? dispatch(body.value()) : body.status();
  if (status.ok() || state_ == State::ending) return;
  ++stats_.violations;
  end(status, false);
}

void PeerLink::step(Handshake::Step step) {
  if (step.admit) port_->admit();
  if (!step.send.empty()) send(step.send);
  if (!step.status.ok()) {
    if (!step.refused_by_peer) ++stats_.violations;
    return end(std::move(step.status), true);
  }
  if (!step.established) return;
  if (const Status status = protect(); !status.ok()) return end(status, false);
  channel_.emplace(handshake_.keys());
  if (role_ == Role::responder) return;  // the initiator has admitted this side once it sends an authenticated message
  begin();
  send_plain(wire::Type::ping, 0);
}

// Protects everything after the last message of the handshake, in both directions.
Status PeerLink::protect() {
  if (protection() == copy::Protection::off) return {};
  const Code code = outbox_.empty() ? port_->protect(protection(), handshake_.frame_keys()) : Code::wrong_state;
  if (code == Code::ok) return {};
  return {code, "peer: the connection cannot be protected (node.protect)"};
}

void PeerLink::begin() {
  state_ = State::ready;
  requests_.begin(handshake_.peer().request_limit);
  announce_ready_ = true;
}

MutableBytes PeerLink::body() noexcept { return MutableBytes(host_.scratch.out).subspan(Channel::kOverhead); }

void PeerLink::commit(size_t bytes) {
  if (state_ != State::ready || bytes == 0) return;
  const MutableBytes message = MutableBytes(host_.scratch.out).first(Channel::kOverhead + bytes);
  channel_->seal(message);
  send(message);
}

void PeerLink::send(ConstBytes message) {
  const Code code = outbox_.empty() ? port_->send(message) : Code::again;
  if (code != Code::again) return;  // any other code is followed by closed()
  outbox_bytes_ += message.size();
  if (outbox_bytes_ > host_.limits.outbox_bytes) {
    overflowed_ = true;  // settle() ends the link: the sender may be in the middle of something
    return;
  }
  outbox_.emplace_back(message.begin(), message.end());
}

void PeerLink::writable() {
  const Turn turn(*this);
  while (!outbox_.empty()) {
    if (port_->send(outbox_.front()) == Code::again) return;
    outbox_bytes_ -= outbox_.front().size();
    outbox_.pop_front();
  }
  sessions_.room();
}

void PeerLink::send_plain(wire::Type type, uint64_t request, uint32_t count) {
  commit(wire::encode(wire::Head{type, request, count}, body()));
}

Status PeerLink::dispatch(ConstBytes body) {
  const auto head = wire::peek(body);
  if (!head.ok()) return head.status();
  wire::Head plain;
  switch (head.value().type) {
    case wire::Type::find:
    case wire::Type::fetch:
    case wire::Type::cancel:
    case wire::Type::release:
    case wire::Type::renew:
    case wire::Type::invalidate:
    case wire::Type::ask_status:
      return service_.take(head.value(), body);
    case wire::Type::offer:
      return dispatch_offer(body);
    case wire::Type::ping:
      if (Status status = wire::decode(body, plain); !status.ok()) return status;
      send_plain(wire::Type::pong, plain.request);
      return {};
    case wire::Type::pong:
      return wire::decode(body, plain);
    case wire::Type::bye:
      if (Status status = wire::decode(body, plain); !status.ok()) return status;
      end({Code::closed, "peer: it said goodbye"}, true);
      return {};
    case wire::Type::session:
      sessions_.message(body.subspan(wire::kHeadBytes));
      return {};
    case wire::Type::host: {
      HostFacts facts;
      if (Status status = decode(body, facts); !status.ok()) return status;
      host_facts_ = std::move(facts);
      return {};
    }
    default:
      return requests_.take(head.value(), body);
  }
}

Status PeerLink::dispatch_offer(ConstBytes body) {
  std::vector<Offered> offered;
  wire::Offer& m = host_.scratch.offer;
  if (Status status = service_.take_offer(body, offered, m); !status.ok()) return status;
  const uint64_t request = m.request;
  // The table is full for all of these families: reports that to the offering node. In a mixed offer they count as
  // not wanted.
  const auto has_no_name = [](const Offered& one) { return one.id.family == kNoFamily; };
  if (!offered.empty() && std::all_of(offered.begin(), offered.end(), has_no_name)) {
    commit(wire::encode(wire::Failed{request, static_cast<int32_t>(Code::at_limit), 0}, this->body()));
    return {};
  }
  wire::Want want;
  want.request = request;
  host_.listener.link_offered(*this, offered, m.lease, want.items);
  std::sort(want.items.begin(), want.items.end());
  want.items.erase(std::unique(want.items.begin(), want.items.end()), want.items.end());
  std::erase_if(want.items, [&](uint32_t index) { return index >= offered.size(); });
  commit(wire::encode(want, this->body()));
  return {};
}

void PeerLink::pushed(uint64_t token, Code code) {
  const Turn turn(*this);
  if (!sessions_.ended(token, code, 0)) service_.pushed(token, code);
}

void PeerLink::received(uint64_t token, Code code, uint64_t bytes) {
  const Turn turn(*this);
  if (code == Code::ok) {
    heard_ns_ = host_.executor.clock().now_ns();
    pinged_ = false;
  }
  if (!sessions_.ended(token, code, bytes)) requests_.received(token, code, bytes);
}

void PeerLink::arrived(uint64_t, uint64_t) {
  heard_ns_ = host_.executor.clock().now_ns();
  pinged_ = false;
}

void PeerLink::record_opened(uint64_t serving, uint32_t index, const OpenedRecord& record) {
  const Turn turn(*this);
  service_.record_opened(serving, index, record);
}

void PeerLink::epochs_taken(const std::vector<EpochWord>& words) {
  const Turn turn(*this);
  std::vector<EpochWord> tell_back;
  service_.epochs_taken(words, tell_back);
  for (const EpochWord& word : tell_back) {
    if (telling_back_ >= host_.limits.epochs_waiting || state_ != State::ready) return;
    ++telling_back_;
    const uint64_t deadline_ns = host_.executor.clock().now_ns() + host_.limits.dead_ns;
    requests_.invalidate(word.base, word.known, deadline_ns, [handle = weak_from_this()](Code) {
      if (const auto link = handle.lock()) --link->telling_back_;
    });
  }
}

// Ends operations now. What the transport still holds ends with its completions; then closed() is called.
void PeerLink::end(Status why, bool flush) {
  if (state_ == State::ending || state_ == State::ended) return;
  state_ = State::ending;
  why_ = std::move(why);
  outbox_.clear();
  outbox_bytes_ = 0;
  service_.end();
  port_->disconnect(flush);
  requests_.end(Code::owner_gone);
}

void PeerLink::closed(const Status& why) {
  const Turn turn(*this);
  if (state_ == State::ended) return;
  if (state_ != State::ending) {
    why_ = why.ok() ? Status(Code::closed, "peer: the connection ended") : why;
    // The transport found bytes that no peer sends, or that were changed in transit.
    if (why_.code() == Code::damaged) ++stats_.violations;
    service_.end();
    requests_.end(Code::owner_gone);
  }
  state_ = State::ended;
  announce_end_ = true;
}

void PeerLink::close() {
  const Turn turn(*this, Callbacks::posted);
  if (state_ == State::ready) send_plain(wire::Type::bye, 0);
  end({Code::closed, "peer: closed by this side"}, true);
}

void PeerLink::drop(Status why) {
  const Turn turn(*this, Callbacks::posted);
  dropped_ = true;
  if (state_ == State::ending) return port_->disconnect(false);
  end(std::move(why), false);
}

uint64_t PeerLink::find(std::unique_ptr<FindBatch> batch) {
  const Turn turn(*this, Callbacks::posted);
  return requests_.find(std::move(batch));
}

uint64_t PeerLink::fetch(std::unique_ptr<FetchBatch> batch) {
  const Turn turn(*this, Callbacks::posted);
  return requests_.fetch(std::move(batch));
}

uint64_t PeerLink::offer(std::unique_ptr<OfferBatch> batch) {
  const Turn turn(*this, Callbacks::posted);
  std::vector<Identity> ids;
  for (const Offered& item : batch->items) ids.push_back(item.id);
  batch->lease_ns = std::min(batch->lease_ns, host_.limits.lease_ns);
  const uint64_t lease =
      state_ == State::ready || state_ == State::handshaking ? service_.grant(ids, batch->lease_ns) : 0;
  if (lease == 0) batch->deadline_ns = 0;  // fails at once
  batch->lease = lease;
  return requests_.offer(std::move(batch), lease);
}

uint64_t PeerLink::ask_status(uint64_t deadline_ns, LinkRequests::StatusDone done) {
  const Turn turn(*this, Callbacks::posted);
  return requests_.ask_status(deadline_ns, std::move(done));
}

uint64_t PeerLink::renew(uint64_t lease, uint64_t lease_ns, uint64_t deadline_ns, LinkRequests::LeaseDone done) {
  const Turn turn(*this, Callbacks::posted);
  return requests_.renew(lease, lease_ns, deadline_ns, std::move(done));
}

uint64_t PeerLink::invalidate(const NamespaceId& base, uint64_t epoch, uint64_t deadline_ns,
                              LinkRequests::CodeDone done) {
  const Turn turn(*this, Callbacks::posted);
  return requests_.invalidate(base, epoch, deadline_ns, std::move(done));
}

bool PeerLink::cancel(uint64_t operation) {
  const Turn turn(*this, Callbacks::posted);
  return requests_.cancel(operation);
}

void PeerLink::release(std::span<const uint64_t> leases) {
  const Turn turn(*this, Callbacks::posted);
  wire::Release& m = host_.scratch.release;
  while (!leases.empty()) {
    const size_t n = std::min<size_t>(leases.size(), wire::kMaxReleases);
    m.leases.assign(leases.begin(), leases.begin() + static_cast<std::ptrdiff_t>(n));
    commit(wire::encode(m, body()));
    leases = leases.subspan(n);
  }
}

Code PeerLink::send_session(ConstBytes bytes) {
  const Turn turn(*this, Callbacks::posted);
  if (state_ != State::ready) return state_ == State::handshaking ? Code::again : Code::closed;
  if (bytes.size() > wire::kMaxBody - wire::kHeadBytes) return Code::invalid_argument;
  if (!clear()) {
    sessions_.wait_for_room();
    return Code::again;
  }
  const MutableBytes out = body();
  std::fill_n(out.begin(), wire::kHeadBytes, std::byte{0});
  out[0] = static_cast<std::byte>(wire::Type::session);
  std::copy(bytes.begin(), bytes.end(), out.begin() + wire::kHeadBytes);
  commit(wire::kHeadBytes + bytes.size());
  return Code::ok;
}

void PeerLink::send_host(const HostFacts& facts) {
  const Turn turn(*this, Callbacks::posted);
  if (state_ == State::ready) commit(encode(facts, body()));
}

Code PeerLink::post_session(uint64_t tag, MutableBytes to, uint64_t name) {
  return state_ == State::ready ? sessions_.post(*port_, tag, to, name) : Code::closed;
}

Code PeerLink::push_session(uint64_t tag, std::span<const ConstBytes> pieces, uint64_t name) {
  return state_ == State::ready ? sessions_.push(*port_, tag, pieces, name) : Code::closed;
}

void PeerLink::cancel_session(uint64_t name) { sessions_.cancel(*port_, name); }

// Ends a turn: sends what has become possible, then runs callbacks, which may start more.
void PeerLink::settle(Callbacks callbacks) {
  if (overflowed_ && state_ == State::ready) {
    ++stats_.violations;
    end({Code::no_room, "peer: it asks and does not take the answers"}, false);
  }
  for (const uint64_t lease : requests_.unwanted_leases()) service_.release(lease);
  service_.pump();
  requests_.pump();
  if (!draining_ && has_news()) {
    if (callbacks == Callbacks::now) run_callbacks();
    // Covers what callbacks have started without end: a link that has ended may get no other call.
    if (has_news()) run_callbacks_later();
  }
  arm();
}

bool PeerLink::has_news() const noexcept {
  return requests_.has_finished() || announce_ready_ || announce_end_ || sessions_.has_news() ||
         host_facts_.has_value();
}

void PeerLink::run_callbacks_later() {
  if (drain_posted_) return;
  host_.executor.post([self = shared_from_this()] {
    self->drain_posted_ = false;
    const Turn turn(*self);
  });
  drain_posted_ = true;
}

void PeerLink::run_callbacks() {
  draining_ = true;
  for (int round = 0; round < 64; ++round) {
    const bool ready = std::exchange(announce_ready_, false);
    const std::optional<HostFacts> facts = std::exchange(host_facts_, std::nullopt);
    const bool idle = !ready && !sessions_.has_news() && !requests_.has_finished() && !announce_end_ && !facts;
    if (idle) break;
    if (ready) host_.listener.link_ready(*this);
    if (facts) host_.listener.link_host(*this, *facts);
    sessions_.deliver(*this, host_.listener);
    requests_.drain();
    if (!requests_.has_finished() && std::exchange(announce_end_, false)) host_.listener.link_ended(*this, why_);
    service_.pump();
    requests_.pump();
  }
  draining_ = false;
}

// Sets the timer for the next thing to check if nothing arrives.
void PeerLink::arm() {
  if (state_ == State::ending || state_ == State::ended) return;
  uint64_t next = std::min(requests_.next_deadline(), service_.next_deadline());
  if (state_ == State::handshaking) {
    next = std::min(next, born_ns_ + host_.limits.handshake_ns);
  } else {
    next = std::min(next, heard_ns_ + (pinged_ ? host_.limits.dead_ns : host_.limits.quiet_ns));
  }
  if (next >= armed_ns_) return;
  armed_ns_ = next;
  host_.executor.post_at(next, [handle = weak_from_this(), next] {
    if (const auto link = handle.lock()) link->tick(next);
  });
}

// Handles a timer. Timers cannot be cancelled: only the one that was armed last counts.
void PeerLink::tick(uint64_t armed) {
  if (armed != armed_ns_) return;
  const Turn turn(*this);
  const uint64_t now = host_.executor.clock().now_ns();
  armed_ns_ = kNever;
  if (state_ == State::ending || state_ == State::ended) return;
  requests_.expire(now);
  service_.expire(now);
  if (state_ == State::handshaking) {
    if (now >= born_ns_ + host_.limits.handshake_ns) {
      end({Code::deadline,
           "peer: it did not finish the handshake in time; is its node.transport another (kvbm: --transport), or is it "
           "stopped or overloaded?"},
          false);
    }
    return;
  }
  // If this process itself was stopped, the peer's messages of that time are still unread: it gets another chance.
  if (now - std::min(now, armed) > host_.limits.quiet_ns) heard_ns_ = now - host_.limits.quiet_ns;
  if (now >= heard_ns_ + host_.limits.dead_ns && pinged_) {
    end({Code::owner_gone, "peer: it has not answered; it is dead, frozen or cut off"}, false);
  } else if (now >= heard_ns_ + host_.limits.quiet_ns && !pinged_) {
    pinged_ = true;
    ++stats_.pings;
    send_plain(wire::Type::ping, 0);
  }
}

}  // namespace kvbm::cluster
