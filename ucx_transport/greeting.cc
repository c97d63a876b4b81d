// Control frames: from the first one of a connection to its last.
#include <cstring>

#include "base/io/listen_refusal.h"
#include "base/process/signal_keeper.h"
#include "callbacks.h"
#include "status.h"
#include "transport.h"

namespace kvbm::ucx {

namespace {
constexpr uint64_t kGreetingNs = 10'000'000'000;  // for the first answer of a peer, or its first frame
constexpr uint64_t kFlushNs = 3'000'000'000;
constexpr uint64_t kLeavingNs = 500'000'000;  // the side that sent bye disconnects at once, or is gone
constexpr size_t kGreetingPeers = 256;        // accepted without a frame so far; more are refused
// UCX cannot distinguish a port without a listener from a listener that disconnects a client it does not understand.
// Short: the state of a node's row takes 127 characters; UCX's own text is last.
constexpr char kNotReached[] =
    "no answer by UCX: is a node listening there, with node.transport ucx too (kvbm: --transport)?";
}  // namespace

int32_t Transport::check_reach(const Address& address, std::string* error) const {
  if (!worker_->loopback_only() || is_loopback(address.storage)) return 0;
  *error =
      address_text(address.storage) +
      " is beyond this host, and UCX was opened for loopback alone; name its devices (\"all\", \"eth0\", \"mlx5_0:1\")";
  return value(Code::bad_config);
}

int32_t Transport::listen(std::string_view text, std::string* bound, std::string* error) {
  const auto address = parse_address(text);
  if (!address) {
    *error = "\"" + std::string(text) + "\" is no address; give host:port or [v6]:port, in numbers";
    return value(Code::invalid_argument);
  }
  if (const int32_t refused = check_reach(*address, error); refused != 0) return refused;
  const SignalKeeper keeper;
  listeners_.push_back({this, nullptr});
  Listener& listener = listeners_.back();
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&address->storage);
  params.sockaddr.addrlen = address->size;
  params.conn_handler.cb = &Callbacks::knock;
  params.conn_handler.arg = &listener;
  ucs_status_t status = ucp_listener_create(worker_->handle(), &params, &listener.handle);
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (status == UCS_OK) {
    status = ucp_listener_query(listener.handle, &attributes);
    if (status != UCS_OK) ucp_listener_destroy(listener.handle);
  }
  if (status != UCS_OK) {
    listeners_.pop_back();
    // UCX only reports "Device is busy" and "Input/output error".
    if (const auto known = listen_refusal(bind_error(*address), text)) {
      *error = known->message();
      return value(known->code());
    }
    *error = "cannot listen on " + std::string(text) + ": " + ucs_status_string(status);
    return from_ucs(status);
  }
  *bound = address_text(attributes.sockaddr);
  return 0;
}

int32_t Transport::connect(std::string_view text, kvbm_transport_peer_t* id, std::string* error) {
  const auto address = parse_address(text);
  if (!address) {
    *error = "\"" + std::string(text) + "\" is no address; give host:port or [v6]:port, in numbers";
    return value(Code::invalid_argument);
  }
  if (const int32_t refused = check_reach(*address, error); refused != 0) return refused;
  Peer& peer = add_peer();
  peer.dialled = true;
  peer.reported = true;
  peer.address = std::string(text);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_FLAGS;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr.addr = reinterpret_cast<const sockaddr*>(&address->storage);
  params.sockaddr.addrlen = address->size;
  if (const Status status = make_endpoint(peer, &params); !status.ok()) {
    *error = "cannot connect to " + std::string(text) + ": " + status.message();
    peers_.erase(peer.id);
    return value(status.code());
  }
  set_deadline(peer, kGreetingNs);
  *id = peer.id;
  send_control(peer, Control::hello);
  return 0;
}

Status Transport::make_endpoint(Peer& peer, ucp_ep_params_t* params) {
  const SignalKeeper keeper;
  params->field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params->err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params->err_handler.cb = &Callbacks::broken;
  params->err_handler.arg = this;
  if (const ucs_status_t status = ucp_ep_create(worker_->handle(), params, &peer.endpoint); status != UCS_OK) {
    return {static_cast<Code>(from_ucs(status)), "UCX makes no endpoint", ucs_status_string(status)};
  }
  by_endpoint_[peer.endpoint] = &peer;
  return {};
}

void Transport::accept(const Knock& knock) {
  if (greeting_ >= kGreetingPeers) {
    (void)ucp_listener_reject(knock.listener->handle, knock.request);
    return;
  }
  Peer& peer = add_peer();
  ucp_conn_request_attr_t attributes{};
  attributes.field_mask = UCP_CONN_REQUEST_ATTR_FIELD_CLIENT_ADDR;
  peer.address =
      ucp_conn_request_query(knock.request, &attributes) == UCS_OK ? address_text(attributes.client_address) : "?";
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  params.conn_request = knock.request;
  if (const Status status = make_endpoint(peer, &params); !status.ok()) {
    peers_.erase(peer.id);  // UCX has answered the client itself
    return;
  }
  ++greeting_;
  set_deadline(peer, kGreetingNs);
}

void Transport::set_deadline(Peer& peer, uint64_t in_ns) {
  timed_ -= peer.deadline_ns != 0 ? 1 : 0;
  peer.deadline_ns = in_ns == 0 ? 0 : now_ns() + in_ns;
  timed_ += peer.deadline_ns != 0 ? 1 : 0;
}

void Transport::check_timers() {
  const uint64_t now = now_ns();
  for (auto& [id, peer] : peers_) {
    if (peer->deadline_ns == 0 || peer->deadline_ns > now) continue;
    set_deadline(*peer, 0);
    if (peer->phase == Phase::leaving) {
      fail(*peer, value(Code::closed), "");
    } else {
      fail(*peer, value(Code::deadline),
           peer->phase == Phase::flushing ? "not all went out in time" : "no answer in time");
    }
  }
}

void Transport::send_control(Peer& peer, Control kind) {
  Operation* op = start_operation(peer, Operation::Kind::control);
  const ControlHead head{kMagic, kWireVersion, kind, 0};
  std::memcpy(op->head, &head, sizeof head);
  const ucp_request_param_t param = Callbacks::sending(op, UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER);
  (void)took(op, ucp_am_send_nbx(peer.endpoint, static_cast<unsigned>(Frame::control), op->head, sizeof head, nullptr,
                                 0, &param));
}

void Transport::pay_answers(Peer& peer) {
  if (std::exchange(peer.owes_welcome, false)) send_control(peer, Control::welcome);
  if (std::exchange(peer.owes_bye_ack, false)) send_control(peer, Control::bye_ack);
}

void Transport::hear(Peer& peer, const ControlHead& head) {
  const bool greeting = head.kind == Control::hello || head.kind == Control::welcome;
  if (greeting && head.version != kWireVersion) {
    const std::string reason = "the peer's module speaks version " + std::to_string(head.version) + " and this one " +
                               std::to_string(kWireVersion) + "; use one kvbm on both sides";
    return fail(peer, value(Code::newer_version), reason);
  }
  if (head.kind == Control::hello && !peer.dialled && peer.phase == Phase::greeting) {
    peer.phase = Phase::open;
    --greeting_;
    set_deadline(peer, 0);
    peer.owes_welcome = true;
    events_.push_back({Event::Kind::accepted, peer.id, 0, 0, 0, {}});
  } else if (head.kind == Control::welcome && peer.dialled && peer.phase == Phase::greeting) {
    peer.phase = Phase::open;
    set_deadline(peer, 0);
    events_.push_back({Event::Kind::connected, peer.id, 0, 0, 0, {}});
  } else if (head.kind == Control::bye && peer.phase == Phase::open) {
    peer.phase = Phase::leaving;
    peer.owes_bye_ack = true;
    set_deadline(peer, kLeavingNs);
  } else if (peer.phase == Phase::flushing && head.kind != Control::hello) {
    peer.owes_bye_ack = head.kind == Control::bye;
    peer.bye_answered |= head.kind != Control::welcome;
  } else {
    return fail(peer, KVBM_TRANSPORT_PROTOCOL, "a control frame out of its time");
  }
  mark(peer);
}

int32_t Transport::admit(kvbm_transport_peer_t id) {
  Peer* peer = find(id);
  if (peer == nullptr) return value(Code::stale_handle);
  if (peer->silent) return value(Code::closed);
  peer->admitted = true;
  return 0;
}

int32_t Transport::disconnect(kvbm_transport_peer_t id, bool flush) {
  Peer* peer = find(id);
  if (peer == nullptr) return value(Code::stale_handle);
  peer->silent = true;
  mark(*peer);
  if (peer->phase >= Phase::closing) return 0;
  if (flush && peer->failure == 0 && peer->usable()) {
    if (peer->phase == Phase::greeting && !peer->dialled) --greeting_;
    peer->phase = Phase::flushing;
    peer->reason = "disconnected";
    set_deadline(*peer, kFlushNs);
    for (auto& [token, post] : peer->posts) {
      if (post->ended) continue;
      if (post->status == 0) post->status = value(Code::closed);
      end_if_done(*peer, *post);
    }
    return 0;
  }
  if (flush && peer->phase == Phase::flushing) return 0;
  if (peer->failure == 0) peer->reason = "disconnected";
  begin_close(*peer);
  return 0;
}

void Transport::fail(Peer& peer, int32_t status, std::string reason) {
  if (peer.failure != 0 || peer.phase >= Phase::closing) return;
  // A side that sent bye may break the connection; the receiver of the bye ignores how.
  if (peer.phase == Phase::leaving) {
    status = value(Code::closed);
    reason = "the peer disconnected";
  }
  const bool silent = status == value(Code::closed) || status == value(Code::deadline);
  if (silent && peer.dialled && peer.phase == Phase::greeting) {
    if (status == value(Code::closed)) status = value(Code::io_error);
    reason = std::string(kNotReached) + " (" + reason + ")";
  }
  // Everything was sent and received.
  if (peer.phase == Phase::flushing && peer.bye_answered) return mark(peer);
  peer.failure = status == 0 ? value(Code::closed) : status;
  peer.reason = std::move(reason);
  mark(peer);
}

void Transport::check_flushed(Peer& peer) {
  if (peer.bye_answered && peer.operations == 0) return begin_close(peer);
  if (peer.bye_sent || peer.operations != 0 || !peer.sending.empty()) return;
  peer.bye_sent = true;
  send_control(peer, Control::bye);
}

void Transport::begin_close(Peer& peer) {
  if (peer.phase == Phase::greeting && !peer.dialled) --greeting_;
  peer.phase = Phase::closing;
  set_deadline(peer, 0);
  if (peer.failure == 0) peer.failure = value(Code::closed);
  end_all(peer);
  close_endpoint(peer);
  mark(peer);
}

void Transport::close_endpoint(Peer& peer) {
  by_endpoint_.erase(peer.endpoint);
  for (auto it = peer.keys.begin(); it != peer.keys.end();) {
    if (it->second.users != 0) {
      ++it;
      continue;
    }
    ucp_rkey_destroy(it->second.handle);
    it = peer.keys.erase(it);
  }
  Operation* op = start_operation(peer, Operation::Kind::close);
  const ucp_request_param_t param = Callbacks::sending(op, UCP_EP_CLOSE_FLAG_FORCE);
  (void)took(op, ucp_ep_close_nbx(peer.endpoint, &param));
}

void Transport::check_gone(Peer& peer) {
  if (!peer.endpoint_closed || peer.operations != 0 || peer.unended != 0) return;
  peer.phase = Phase::gone;
  for (auto& [packed, key] : peer.keys) ucp_rkey_destroy(key.handle);
  peer.keys.clear();
  events_.push_back({Event::Kind::closed, peer.id, 0, 0, 0, {}});
}

}  // namespace kvbm::ucx
