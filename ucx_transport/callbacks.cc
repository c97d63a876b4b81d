#include "callbacks.h"

#include <cstring>

#include "status.h"
#include "transport.h"

namespace kvbm::ucx {

template <class Body>
void Callbacks::guarded(Transport& transport, Peer* peer, Body&& body) noexcept {
  try {
    body();
  } catch (...) {
    if (peer != nullptr) transport.fail(*peer, value(Code::no_memory), "out of memory");
  }
}

Status Callbacks::install(Transport& transport) {
  const struct {
    Frame id;
    ucp_am_recv_callback_t call;
    uint32_t flags;
  } handlers[] = {{Frame::control, &Callbacks::control, UCP_AM_FLAG_WHOLE_MSG},
                  {Frame::message, &Callbacks::message, UCP_AM_FLAG_WHOLE_MSG},
                  {Frame::bulk, &Callbacks::bulk, UCP_AM_FLAG_WHOLE_MSG}};
  for (const auto& h : handlers) {
    ucp_am_handler_param_t param{};
    param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    param.id = static_cast<unsigned>(h.id);
    param.flags = h.flags;
    param.cb = h.call;
    param.arg = &transport;
    if (const ucs_status_t status = ucp_worker_set_am_recv_handler(transport.worker().handle(), &param);
        status != UCS_OK) {
      return {Code::unsupported, "UCX takes no handler of active messages", ucs_status_string(status)};
    }
  }
  return {};
}

ucp_request_param_t Callbacks::sending(Operation* operation, uint32_t flags) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = flags;
  param.cb.send = &Callbacks::sent;
  param.user_data = operation;
  return param;
}

ucp_request_param_t Callbacks::receiving(Operation* operation) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &Callbacks::landed;
  param.user_data = operation;
  return param;
}

void Callbacks::sent(void* request, ucs_status_t status, void* operation) {
  auto* op = static_cast<Operation*>(operation);
  guarded(*op->transport, nullptr, [&] { op->transport->finish(op, status); });
  ucp_request_free(request);
}

void Callbacks::landed(void* request, ucs_status_t status, size_t bytes, void* operation) {
  auto* op = static_cast<Operation*>(operation);
  if (status == UCS_OK && bytes != op->bytes) status = UCS_ERR_MESSAGE_TRUNCATED;
  guarded(*op->transport, nullptr, [&] { op->transport->finish(op, status); });
  ucp_request_free(request);
}

void Callbacks::knock(ucp_conn_request_h request, void* listener) {
  auto* at = static_cast<Listener*>(listener);
  guarded(*at->transport, nullptr, [&] { at->transport->knocking_.push_back({at, request}); });
}

void Callbacks::broken(void* transport, ucp_ep_h endpoint, ucs_status_t status) {
  auto& t = *static_cast<Transport*>(transport);
  guarded(t, nullptr, [&] {
    const auto it = t.by_endpoint_.find(endpoint);
    if (it != t.by_endpoint_.end()) t.fail(*it->second, from_ucs(status), ucs_status_string(status));
  });
}

namespace {

// Returns the peer of an active message; NULL if it is gone or the endpoint is unknown.
Peer* sender(const std::unordered_map<ucp_ep_h, Peer*>& peers, const ucp_am_recv_param_t& param) {
  if ((param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return nullptr;
  const auto it = peers.find(param.reply_ep);
  return it == peers.end() || it->second->failure != 0 || it->second->phase >= Phase::closing ? nullptr : it->second;
}

}  // namespace

ucs_status_t Callbacks::control(void* transport, const void* head, size_t head_size, void*, size_t size,
                                const ucp_am_recv_param_t* param) {
  auto& t = *static_cast<Transport*>(transport);
  Peer* peer = sender(t.by_endpoint_, *param);
  if (peer == nullptr) return UCS_OK;
  guarded(t, peer, [&] {
    const auto parsed = parse<ControlHead>(head, head_size);
    if (!parsed || size != 0 || !valid(*parsed)) {
      t.fail(*peer, KVBM_TRANSPORT_PROTOCOL, "a control frame that is not one");
    } else {
      t.hear(*peer, *parsed);
    }
  });
  return UCS_OK;
}

ucs_status_t Callbacks::message(void* transport, const void* head, size_t head_size, void* data, size_t size,
                                const ucp_am_recv_param_t* param) {
  auto& t = *static_cast<Transport*>(transport);
  Peer* peer = sender(t.by_endpoint_, *param);
  if (peer == nullptr || peer->silent) return UCS_OK;
  guarded(t, peer, [&] {
    const auto parsed = parse<MessageHead>(head, head_size);
    if (!parsed || size > KVBM_TRANSPORT_MESSAGE_BYTES || peer->phase != Phase::open ||
        (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
      return t.fail(*peer, KVBM_TRANSPORT_PROTOCOL, "a message that is not one");
    }
    if (parsed->sequence != peer->next_in) return t.fail(*peer, KVBM_TRANSPORT_PROTOCOL, "messages out of order");
    ++peer->next_in;
    Event event{Event::Kind::message, peer->id, 0, 0, size, {}};
    event.message.resize(size / 8 + 1);  // not empty, so that even an empty message has an address
    if (size != 0) std::memcpy(event.message.data(), data, size);
    t.events_.push_back(std::move(event));
  });
  return UCS_OK;
}

ucs_status_t Callbacks::bulk(void* transport, const void* head, size_t head_size, void* data, size_t size,
                             const ucp_am_recv_param_t* param) {
  auto& t = *static_cast<Transport*>(transport);
  Peer* peer = sender(t.by_endpoint_, *param);
  if (peer == nullptr || peer->silent) return UCS_OK;
  ucs_status_t answer = UCS_OK;
  guarded(t, peer, [&] {
    const auto parsed = parse<BulkHead>(head, head_size);
    if (!parsed || !valid(*parsed, size) || !peer->admitted || peer->phase != Phase::open) {
      return t.fail(*peer, KVBM_TRANSPORT_PROTOCOL, "bulk that is none, or before it was admitted");
    }
    Post* post = t.place(*peer, *parsed, size);
    if (post == nullptr) return;
    if (size == 0) return t.landed(*peer, *post, 0, 0);
    const bool rendezvous = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
    // The data is in host memory of UCX, or would pass through it. UCX would copy it into the device on this
    // thread, which has no context there, and the CPU cannot. So the post fails, independent of the sender.
    if (post->device && (!rendezvous || !t.reaches_devices(*peer))) return t.refuse(*peer, *post);
    if (!rendezvous) {
      std::memcpy(post->to + parsed->offset, data, size);
      return t.landed(*peer, *post, parsed->offset, size);
    }
    Operation* op = t.start_operation(*peer, Operation::Kind::part_in);
    op->post = post;
    op->offset = parsed->offset;
    op->bytes = size;
    ++post->requests;
    ucp_request_param_t receive = receiving(op);
    t.memory_.describe(post->to + parsed->offset, size, t.worker_->knows_device_memory(), &receive);
    (void)t.took(op, ucp_am_recv_data_nbx(t.worker_->handle(), data, post->to + parsed->offset, size, &receive));
    answer = UCS_INPROGRESS;
  });
  return answer;
}

}  // namespace kvbm::ucx
