#include "cluster/mesh/session_host.h"

#include <algorithm>

#include "base/memory/memory.h"
#include "cluster/coding/slice_coder.h"
#include "cluster/mesh/mesh.h"
#include "cluster/session/receiver.h"
#include "cluster/session/sender.h"
#include "cluster/session/staging.h"

namespace kvbm::cluster {

using session::PeerId;
using session::RequestId;

namespace {

// Top bits of the names of transfers (session/staging.h): of received ones, and of those that a rank sends.
constexpr uint16_t kReceiverBase = 2;
constexpr uint16_t kFirstSenderBase = 0x1000;
// Limit of refusals that wait for one peer.
constexpr size_t kRefusalBytes = 64 << 10;
// Least number of slots of a prefill rank.
constexpr uint64_t kLeastSlots = 4;

}  // namespace

struct SessionHost::Rank final : session::Holder {
  Rank(SessionHost& the_host, uint16_t the_number) : host(the_host), number(the_number) {}
  Status hold(const RequestId&, std::span<const session::LocalPart>) override { return {}; }  // the caller keeps them
  void release(const RequestId& request) override { host.released_.emplace_back(number, request); }

  SessionHost& host;
  const uint16_t number;
  std::shared_ptr<Arena> memory;
  std::unique_ptr<session::Sender> sender;
};

SessionHost::SessionHost(const Options& options, Mesh& mesh, const Log* log)
    : options_(options), mesh_(mesh), log_(log), refusals_(static_cast<session::Link&>(*this), kRefusalBytes) {
  if (options_.coder == nullptr || options_.core == nullptr) return;
  const auto node_of = [this](PeerId peer) -> std::optional<NodeId> {
    const PeerLink* link = link_of(peer);
    return link != nullptr ? std::optional(link->peer().node) : std::nullopt;
  };
  coder_ = std::make_unique<LinkSliceCoder>(
      LinkSliceCoder::Options{options_.coder, options_.core, node_of, options_.in_place}, mesh_.executor());
}

SessionHost::~SessionHost() = default;

uint64_t SessionHost::now() const { return mesh_.executor().clock().now_ns(); }

void SessionHost::detach() {
  if (coder_ != nullptr) coder_->detach();
}

// ---- Made on demand ----

Result<std::pair<std::shared_ptr<Arena>, session::Staging>> SessionHost::make_staging(uint64_t bytes) {
  ArenaOptions arena;
  arena.bytes = std::max(bytes, kLeastSlots * session::Staging::slot_bytes_for(options_.slice_bytes));
  arena.huge_pages = false;  // an idle node uses none of it
  auto mapped = Arena::map(arena);
  if (!mapped.ok()) return mapped.status();
  std::shared_ptr<Arena> memory = std::move(mapped).value();
  auto staging = session::Staging::make({memory->data(), memory->bytes()}, options_.slice_bytes);
  if (!staging.ok()) return staging.status();
  if (options_.staging_mapped) options_.staging_mapped(memory);
  if (coder_ != nullptr) coder_->keep(memory);
  return std::pair(std::move(memory), std::move(staging).value());
}

Result<SessionHost::Rank*> SessionHost::rank(uint16_t number, size_t limit) {
  if (const auto known = ranks_.find(number); known != ranks_.end()) return known->second.get();
  if (ranks_.size() >= limit) {
    return Status(Code::at_limit, "this node has too many prefill ranks", std::to_string(ranks_.size()));
  }
  auto staging = make_staging(options_.staging_bytes / 4);
  if (!staging.ok()) return staging.status();
  auto made = std::make_unique<Rank>(*this, number);
  made->memory = std::move(staging.value().first);
  session::Sender::Options options;
  options.rank = number;
  options.transfer_base = static_cast<uint16_t>(kFirstSenderBase + ranks_.size());
  options.moved = [this] { settle(); };
  options.unlinked = [this] { return unlinked(); };
  options.named = [this](PeerId peer) {
    const PeerLink* link = link_of(peer);
    return link != nullptr ? mesh_.name_of(*link) : std::string("a node that is gone");
  };
  options.coder = coder_.get();
  options.note = notes();
  session::Link& links = *this;
  made->sender = std::make_unique<session::Sender>(options, std::move(staging.value().second), links, *made);
  return (ranks_[number] = std::move(made)).get();
}

std::function<void(const std::string&)> SessionHost::notes() const {
  return [log = log_](const std::string& text) {
    if (log != nullptr) log->write(LogLevel::info, "session", text);
  };
}

Status SessionHost::make_receiver() {
  if (receiver_ != nullptr) return {};
  auto staging = make_staging(options_.staging_bytes);
  if (!staging.ok()) return staging.status();
  memory_ = std::move(staging.value().first);
  session::Receiver::Options options;
  options.transfer_base = kReceiverBase;
  options.moved = [this] { settle(); };
  options.coder = coder_.get();
  options.note = notes();
  session::Link& links = *this;
  receiver_ = std::make_unique<session::Receiver>(options, std::move(staging.value().second), links);
  return {};
}

uint32_t SessionHost::staging_taken() const noexcept {
  uint32_t taken = receiver_ != nullptr ? receiver_->staging_taken() : 0;
  for (const auto& [number, rank] : ranks_) taken += rank->sender->staging_taken();
  return taken;
}

SessionCounts SessionHost::counts() const noexcept {
  SessionCounts out;
  out.sessions = sessions_.size();
  out.offers = offers_.size();
  out.staging_taken = staging_taken();
  if (receiver_ != nullptr) {
    out.received = receiver_->stats();
    out.direct_taken = receiver_->direct_taken();
    out.direct_failures = receiver_->direct_failures();
  }
  for (const auto& [number, rank] : ranks_) {
    const session::SenderStats& s = rank->sender->stats();
    out.shared_taken += rank->sender->shared_taken();
    out.direct_taken += rank->sender->direct_taken();
    out.direct_failures += rank->sender->direct_failures();
    out.sent.slices += s.slices;
    out.sent.bytes += s.bytes;
    out.sent.shared_slices += s.shared_slices;
    out.sent.shared_bytes += s.shared_bytes;
    out.sent.direct_slices += s.direct_slices;
    out.sent.direct_bytes += s.direct_bytes;
    out.sent.ended += s.ended;
    out.sent.failed += s.failed;
  }
  return out;
}

// ---- The prefill side ----

void SessionHost::offer(uint16_t number, const session::OfferRequest& request, OfferDone done) {
  const OfferKey key{number, request.request};
  Status status;
  if (offers_.count(key) != 0) status = Status(Code::exists, "the request is offered already");
  auto sender = status.ok() ? rank(number, 2 * kMaxRanks) : Result<Rank*>(status);
  if (sender.ok()) {
    offers_[key].done = std::move(done);
    status = sender.value()->sender->offer(request, now());
    if (status.ok()) return settle();
    done = std::move(offers_[key].done);
    offers_.erase(key);
  } else {
    status = sender.status();
  }
  callbacks_.emplace_back(
      [done = std::move(done), end = session::SenderEvent{key.second, status}]() mutable { done(end); });
  settle();
}

void SessionHost::publish(uint16_t number, const RequestId& request, Component component, uint32_t first_layer,
                          uint32_t layers, session::Range range) {
  const auto known = ranks_.find(number);
  if (known == ranks_.end()) return;
  const Status status = known->second->sender->publish(request, component, first_layer, layers, range);
  if (!status.ok() && status.code() != Code::stale_handle) {
    (void)known->second->sender->abort(request, status.code(), status.message());
  }
  settle();
}

void SessionHost::publish_all(uint16_t number, const RequestId& request) {
  const auto known = ranks_.find(number);
  if (known == ranks_.end()) return;
  (void)known->second->sender->publish_all(request);  // an offer that has ended needs nothing
  settle();
}

void SessionHost::abort_offer(uint16_t number, const RequestId& request, Code code, const std::string& why) {
  const auto known = ranks_.find(number);
  if (known == ranks_.end()) return;
  (void)known->second->sender->abort(request, code, why);
  settle();
}

// ---- The decode side ----

void SessionHost::open(uint64_t name, Session session) {
  Session& opened = sessions_[name] = std::move(session);
  if (Status status = make_receiver(); !status.ok()) {
    end_waiting(name, std::move(status));
  } else {
    try_open(name, opened);
  }
  settle();
}

// Sends no request before all sources are connected: the plan needs an answer from each.
bool SessionHost::try_open(uint64_t name, Session& session) {
  for (session::SourceRank& source : session.request.sources) {
    const auto link = mesh_.link_named(source.name);
    if (!link.ok() && link.status().code() == Code::invalid_argument) {
      end_waiting(name, Status(Code::invalid_argument, "a session reads from another node", source.name));
      return true;
    }
    source.peer = link.ok() ? peer_of(*link.value()) : 0;
    if (source.peer == 0) return false;
  }
  const auto id = receiver_->open(std::move(session.request), now());
  if (!id.ok()) {
    end_waiting(name, id.status());
    return true;
  }
  session.id = id.value();
  opened_as_[session.id] = name;
  return true;
}

void SessionHost::open_waiting() {
  std::vector<uint64_t> waiting;
  for (const auto& [name, opened] : sessions_) {
    if (opened.id == 0) waiting.push_back(name);
  }
  for (const uint64_t name : waiting) try_open(name, sessions_.at(name));
}

std::string SessionHost::missing(const Session& session) const {
  std::string text;
  for (const session::SourceRank& source : session.request.sources) {
    const auto link = mesh_.link_named(source.name);
    if (!link.ok()) text += (text.empty() ? "" : ", ") + link.status().message();
  }
  const std::string others = mesh_.missing(text);
  return text.empty() || others.empty() ? text + others : text + "; " + others;
}

std::string SessionHost::unlinked() const {
  const std::string text = mesh_.missing("");
  return text.empty() && links_.empty() ? "no node is connected to this one" : text;
}

void SessionHost::end_waiting(uint64_t name, Status why) {
  const auto known = sessions_.find(name);
  if (known == sessions_.end()) return;
  callbacks_.emplace_back([session = std::make_unique<Session>(std::move(known->second)),
                           status = std::move(why)]() mutable { session->done(status); });
  sessions_.erase(known);
}

void SessionHost::abort(uint64_t name, Code code, const std::string& why) {
  const auto known = sessions_.find(name);
  if (known == sessions_.end()) return;
  if (known->second.id == 0) {
    end_waiting(name, Status(code, "the session was given up", why));
  } else {
    (void)receiver_->abort(known->second.id, code, why);
  }
  settle();
}

// ---- Links ----

PeerLink* SessionHost::link_of(PeerId peer) const {
  const auto known = links_.find(peer);
  return known == links_.end() ? nullptr : known->second;
}

PeerId SessionHost::peer_of(const PeerLink& link) const {
  const auto known =
      std::find_if(links_.begin(), links_.end(), [&](const auto& entry) { return entry.second == &link; });
  return known == links_.end() ? 0 : known->first;
}

void SessionHost::link_ready(PeerLink& link) {
  links_[++last_peer_] = &link;
  open_waiting();
  settle();
}

void SessionHost::link_ended(PeerLink& link, const Status& /*why*/) {
  const PeerId peer = peer_of(link);
  if (peer == 0) return;
  links_.erase(peer);
  refusals_.closed(peer);
  for (const auto& [number, rank] : ranks_) rank->sender->on_closed(peer);
  if (receiver_ != nullptr) receiver_->on_closed(peer);
  settle();
}

void SessionHost::link_session(PeerLink& link, ConstBytes bytes) {
  const PeerId peer = peer_of(link);
  const auto header = session::peek(bytes);
  if (peer == 0 || !header.ok()) return;  // of an unknown protocol
  if (!session::goes_to_sender(header.value().type)) {
    if (receiver_ != nullptr) receiver_->on_message(peer, bytes);
    return settle();
  }
  const bool opens = header.value().type == session::Type::open;
  const auto sender = rank(header.value().source_rank, opens ? kMaxRanks : 0);
  if (sender.ok()) {
    sender.value()->sender->on_message(peer, bytes, now());
  } else if (opens) {
    session::Header answer = header.value();
    answer.type = session::Type::source_abort;
    answer.sequence = 0;
    (void)refusals_.send(peer,
                         session::encode(answer, session::Abort{sender.status().code(), sender.status().message()}));
  }
  settle();
}

void SessionHost::link_session_moved(PeerLink&, uint64_t name, Code code, uint64_t bytes) {
  const auto base = static_cast<uint16_t>(name >> 48);
  if (base == kReceiverBase) {
    if (receiver_ != nullptr) receiver_->on_received(name, code, bytes);
  } else {
    for (const auto& [number, rank] : ranks_) rank->sender->on_pushed(name, code);
  }
  settle();
}

void SessionHost::link_session_writable(PeerLink& link) {
  const PeerId peer = peer_of(link);
  if (peer == 0) return;
  refusals_.writable(peer);
  for (const auto& [number, rank] : ranks_) rank->sender->on_writable(peer);
  if (receiver_ != nullptr) receiver_->on_writable(peer);
  settle();
}

Code SessionHost::send(PeerId peer, ConstBytes message) {
  PeerLink* link = link_of(peer);
  return link != nullptr ? link->send_session(message) : Code::closed;
}

Code SessionHost::post(PeerId peer, uint64_t tag, MutableBytes to, uint64_t token) {
  PeerLink* link = link_of(peer);
  return link != nullptr ? link->post_session(tag, to, token) : Code::closed;
}

Code SessionHost::push(PeerId peer, uint64_t tag, std::span<const ConstBytes> pieces, uint64_t token) {
  PeerLink* link = link_of(peer);
  return link != nullptr ? link->push_session(tag, pieces, token) : Code::closed;
}

void SessionHost::cancel(PeerId peer, uint64_t token) {
  if (PeerLink* link = link_of(peer)) link->cancel_session(token);
}

// Always true for a connected peer: every version that this library supports has both.
bool SessionHost::takes_grain(PeerId peer) const { return link_of(peer) != nullptr; }
bool SessionHost::takes_ways(PeerId peer) const { return link_of(peer) != nullptr; }

void SessionHost::drop(PeerId peer) {
  if (PeerLink* link = link_of(peer)) {
    link->drop({Code::no_room, "session: the other side does not take what is said to it"});
  }
}

// ---- Ends and timers ----

void SessionHost::take_events() {
  session::ReceiverEvent got;
  while (receiver_ != nullptr && receiver_->take_event(&got)) {
    const auto name = opened_as_.find(got.session);
    if (name == opened_as_.end()) continue;
    const auto opened = sessions_.find(name->second);
    if (got.kind == session::ReceiverEvent::Kind::layer_ready) {
      opened->second.layer_ready(got.component, got.layer);
      continue;
    }
    if (!got.status.ok() && log_ != nullptr) {
      log_->write(LogLevel::warning, "session", "a session has failed: " + got.status.message());
    }
    end_waiting(name->second, got.status);
    opened_as_.erase(name);
  }
  for (const auto& [number, rank] : ranks_) {
    session::SenderEvent end;
    while (rank->sender->take_event(&end)) {
      const auto offered = offers_.find({number, end.request});
      if (!end.status.ok() && log_ != nullptr) {
        log_->write(LogLevel::warning, "session", "an offer has failed: " + end.status.message());
      }
      if (offered != offers_.end()) offered->second.end = std::move(end);
    }
  }
  for (const OfferKey& key : std::exchange(released_, {})) {
    const auto offered = offers_.find(key);
    if (offered == offers_.end()) continue;
    callbacks_.emplace_back(
        [offer = std::make_unique<Offered>(std::move(offered->second))] { offer->done(offer->end); });
    offers_.erase(offered);
  }
}

void SessionHost::settle() {
  take_events();
  run_callbacks();
  arm();
}

// Callbacks belong to the caller of this node and must not call it back; but their destructors may.
void SessionHost::run_callbacks() {
  for (UniqueFunction<void()>& callback : std::exchange(callbacks_, {})) callback();
}

void SessionHost::arm() {
  uint64_t next = receiver_ != nullptr ? receiver_->next_deadline() : kNever;
  for (const auto& [number, rank] : ranks_) next = std::min(next, rank->sender->next_deadline());
  for (const auto& [name, opened] : sessions_) {
    if (opened.id == 0) next = std::min(next, opened.request.deadline_ns);
  }
  if (next >= armed_ns_) return;
  armed_ns_ = next;
  mesh_.executor().post_at(next, [this, next] { tick(next); });
}

// Handles a timer. Timers cannot be cancelled: only the one that was armed last counts.
void SessionHost::tick(uint64_t armed) {
  if (armed != armed_ns_) return;
  armed_ns_ = kNever;
  const uint64_t at = now();
  for (const auto& [number, rank] : ranks_) rank->sender->tick(at);
  if (receiver_ != nullptr) receiver_->tick(at);
  std::vector<uint64_t> due;
  for (const auto& [name, opened] : sessions_) {
    if (opened.id == 0 && opened.request.deadline_ns <= at) due.push_back(name);
  }
  for (const uint64_t name : due) {
    end_waiting(name, Status(Code::deadline, "the deadline of the session has passed", missing(sessions_.at(name))));
  }
  settle();
}

}  // namespace kvbm::cluster
