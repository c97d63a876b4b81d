#include "transport.h"

#include <algorithm>
#include <ctime>

#include "callbacks.h"
#include "status.h"

namespace kvbm::ucx {

namespace {
// Rounds of one progress(): one TCP socket's buffer takes a few; the host checks its own queue in between.
constexpr int kRounds = 16;
constexpr uint64_t kCloseNs = 5'000'000'000;
}  // namespace

uint64_t now_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

Transport::Transport(const kvbm_transport_host_t& host, Limits limits, std::unique_ptr<Worker> worker)
    : host_(host),
      limits_(limits),
      worker_(std::move(worker)),
      memory_(worker_->context(), worker_->cards(), worker_->emulated_device()) {}

Transport::~Transport() {
  closing_ = true;
  for (const Knock& knock : knocking_) (void)ucp_listener_reject(knock.listener->handle, knock.request);
  knocking_.clear();
  for (const Listener& listener : listeners_) ucp_listener_destroy(listener.handle);
  for (auto& [id, peer] : peers_) {
    if (peer->phase < Phase::closing) begin_close(*peer);
  }
  const auto busy = [this] {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const auto& p) { return !p.second->endpoint_closed || p.second->operations != 0; });
  };
  const uint64_t until = now_ns() + kCloseNs;
  while (busy() && now_ns() < until) ucp_worker_progress(worker_->handle());
  for (auto& [id, peer] : peers_) {
    for (auto& [packed, key] : peer->keys) ucp_rkey_destroy(key.handle);
  }
}

Status Transport::start() { return Callbacks::install(*this); }

Peer* Transport::find(kvbm_transport_peer_t id) {
  const auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : it->second.get();
}

Peer& Transport::add_peer() {
  auto peer = std::make_unique<Peer>();
  peer->id = next_peer_++;
  Peer& out = *peer;
  peers_.emplace(out.id, std::move(peer));
  return out;
}

void Transport::mark(Peer& peer) {
  if (peer.dirty) return;
  peer.dirty = true;
  dirty_.push_back(peer.id);
}

Operation* Transport::start_operation(Peer& peer, Operation::Kind kind) {
  if (idle_operations_.empty()) {
    operations_.push_back(std::make_unique<Operation>());
    idle_operations_.reserve(operations_.size());  // releasing one then never allocates
    idle_operations_.push_back(operations_.back().get());
  }
  Operation* out = idle_operations_.back();
  idle_operations_.pop_back();
  out->transport = this;
  out->peer = &peer;
  out->kind = kind;
  out->push = nullptr;
  out->post = nullptr;
  out->get = nullptr;
  out->offset = 0;
  out->bytes = 0;
  out->payload.clear();
  if (kind != Operation::Kind::close) ++peer.operations;
  return out;
}

bool Transport::took(Operation* operation, ucs_status_ptr_t given) {
  if (given == nullptr) {
    finish(operation, UCS_OK);
  } else if (UCS_PTR_IS_ERR(given)) {
    Peer& peer = *operation->peer;
    const ucs_status_t status = UCS_PTR_STATUS(given);
    const bool closing = operation->kind == Operation::Kind::close;
    finish(operation, status);
    if (!closing) fail(peer, from_ucs(status), ucs_status_string(status));
    return false;
  }
  return true;
}

void Transport::finish(Operation* operation, ucs_status_t status) {
  Peer& peer = *operation->peer;
  if (operation->kind != Operation::Kind::close) --peer.operations;
  switch (operation->kind) {
    case Operation::Kind::control:
      break;
    case Operation::Kind::message:
      peer.queued_bytes -= operation->bytes;
      break;
    case Operation::Kind::part_out: {
      Push& push = *operation->push;
      peer.bulk_bytes -= operation->bytes;
      --push.requests;
      if (status != UCS_OK && push.status == 0) push.status = value(Code::closed);
      end_if_done(peer, push);
      break;
    }
    case Operation::Kind::part_in: {
      Post& post = *operation->post;
      --post.requests;
      if (status != UCS_OK && post.status == 0) post.status = value(Code::closed);
      landed(peer, post, operation->offset, operation->bytes);
      break;
    }
    case Operation::Kind::get:
      end(peer, *operation->get, status);
      break;
    case Operation::Kind::close:
      peer.endpoint_closed = true;
      break;
  }
  mark(peer);
  idle_operations_.push_back(operation);
}

int32_t Transport::arm(uint64_t* within_ns) {
  *within_ns = UINT64_MAX;
  if (!events_.empty() || !dirty_.empty() || !knocking_.empty()) return value(Code::again);
  const ucs_status_t status = ucp_worker_arm(worker_->handle());
  if (status == UCS_ERR_BUSY) return value(Code::again);
  if (status != UCS_OK) return value(Code::internal);
  if (timed_ != 0) {
    const uint64_t now = now_ns();
    for (const auto& [id, peer] : peers_) {
      if (peer->deadline_ns == 0) continue;
      *within_ns = std::min(*within_ns, peer->deadline_ns > now ? peer->deadline_ns - now : 0);
    }
  }
  return 0;
}

uint32_t Transport::progress() {
  uint32_t moved = 0;
  for (int round = 0; round < kRounds; ++round) {
    const unsigned by_ucx = ucp_worker_progress(worker_->handle());
    bool more = after_worker();
    more |= deliver();
    if (by_ucx == 0 && !more) return moved;
    ++moved;
  }
  return moved;
}

bool Transport::after_worker() {
  std::vector<Knock> knocking;
  knocking.swap(knocking_);
  for (const Knock& knock : knocking) accept(knock);
  if (timed_ != 0) check_timers();
  std::vector<kvbm_transport_peer_t> dirty;
  dirty.swap(dirty_);
  for (kvbm_transport_peer_t id : dirty) {
    if (Peer* peer = find(id); peer != nullptr) settle(*peer);
  }
  return !knocking.empty() || !dirty.empty();
}

void Transport::settle(Peer& peer) {
  peer.dirty = false;
  if (peer.failure != 0 && peer.phase < Phase::closing) begin_close(peer);
  if (peer.phase < Phase::closing) pay_answers(peer);
  if (peer.phase < Phase::closing) pump(peer);
  if (peer.wants_writable && peer.usable() && peer.queued_bytes <= limits_.queue_bytes / 2) {
    peer.wants_writable = false;
    events_.push_back({Event::Kind::writable, peer.id, 0, 0, 0, {}});
  }
  if (peer.phase == Phase::flushing) check_flushed(peer);
  if (peer.phase == Phase::closing) check_gone(peer);
}

bool Transport::deliver() {
  const size_t n = events_.size();
  for (size_t i = 0; i < n; ++i) {
    Event event = std::move(events_.front());
    events_.pop_front();
    deliver_one(event);
  }
  return n != 0;
}

void Transport::deliver_one(Event& event) {
  Peer* peer = find(event.peer);
  if (peer == nullptr) return;
  switch (event.kind) {
    case Event::Kind::accepted:
      if (peer->silent) return;
      peer->reported = true;
      host_.accepted(host_.context, peer->id, peer->address.c_str());
      return;
    case Event::Kind::connected:
      if (!peer->silent) host_.connected(host_.context, peer->id);
      return;
    case Event::Kind::message:
      if (peer->silent) return;
      if (!peer->admitted && event.bytes > KVBM_TRANSPORT_STRANGER_BYTES) {
        if (peer->phase < Phase::closing)
          fail(*peer, KVBM_TRANSPORT_PROTOCOL, "a large message before it was admitted");
        return;
      }
      host_.message(host_.context, peer->id, event.message.data(), event.bytes);
      return;
    case Event::Kind::writable:
      if (peer->usable()) host_.writable(host_.context, peer->id);
      return;
    case Event::Kind::arrived:
      if (!peer->silent) host_.arrived(host_.context, peer->id, event.token, event.bytes);
      return;
    case Event::Kind::pushed:
      peer->pushes.erase(event.token);
      host_.pushed(host_.context, peer->id, event.token, event.status);
      return;
    case Event::Kind::received:
      if (const auto it = peer->posts.find(event.token); it != peer->posts.end()) {
        peer->tags.erase(it->second->tag);
        peer->posts.erase(it);
      } else {
        peer->gets.erase(event.token);
      }
      host_.received(host_.context, peer->id, event.token, event.status, event.bytes);
      return;
    case Event::Kind::closed: {
      const auto node = peers_.extract(event.peer);
      if (peer->reported) host_.closed(host_.context, peer->id, peer->failure, peer->reason.c_str());
      return;
    }
  }
}

}  // namespace kvbm::ucx
