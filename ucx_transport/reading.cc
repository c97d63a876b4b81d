// One-sided reads of a peer's memory.
#include <cstring>

#include "callbacks.h"
#include "lanes.h"
#include "status.h"
#include "transport.h"

namespace kvbm::ucx {

namespace {

constexpr size_t kRemoteKeys = 64;  // limit of unpacked keys of one peer

RemoteKey* unpack(Peer& peer, const KeyHead& head, const void* key, size_t key_size, int32_t* status) {
  std::string packed(static_cast<const char*>(key), key_size);
  for (auto it = peer.keys.begin(); it != peer.keys.end(); ++it) {
    if (it->first != packed) continue;
    peer.keys.splice(peer.keys.begin(), peer.keys, it);
    return &it->second;
  }
  if (peer.keys.size() >= kRemoteKeys) {
    auto last = peer.keys.end();
    while (last != peer.keys.begin() && (--last)->second.users != 0) {
    }
    if (last->second.users != 0) {
      *status = value(Code::again);
      return nullptr;
    }
    ucp_rkey_destroy(last->second.handle);
    peer.keys.erase(last);
  }
  // UCX reads a packed key without knowing its length, so zeroes follow it here.
  std::byte room[2 * KVBM_TRANSPORT_KEY_BYTES] = {};
  std::memcpy(room, static_cast<const std::byte*>(key) + sizeof(KeyHead), head.packed);
  RemoteKey out{nullptr, head.base, head.bytes, 0};
  if (const ucs_status_t given = ucp_ep_rkey_unpack(peer.endpoint, room, &out.handle); given != UCS_OK) {
    *status = from_ucs(given);
    return nullptr;
  }
  peer.keys.emplace_front(std::move(packed), out);
  return &peer.keys.front().second;
}

}  // namespace

void Transport::ask_lanes(Peer& peer) {
  if (peer.lanes_known) return;
  const std::string lanes = printed([&](FILE* stream) { ucp_ep_print_info(peer.endpoint, stream); });
  peer.native_get = has_lane(lanes, one_sided);
  peer.by_card = has_lane(lanes, is_rdma);
  peer.lanes_known = true;
}

bool Transport::reads_natively(Peer& peer) {
  ask_lanes(peer);
  return peer.native_get;
}

bool Transport::reaches_devices(Peer& peer) {
  if (worker_->emulated_device()) return true;
  if (worker_->cards() == 0) return false;
  ask_lanes(peer);
  return peer.by_card;
}

int32_t Transport::get(kvbm_transport_peer_t id, void* to, uint64_t remote, const void* key, size_t key_size,
                       uint64_t bytes, kvbm_transport_token_t token) {
  Peer* peer = find(id);
  if (peer == nullptr) return value(Code::stale_handle);
  if (peer->silent || !peer->usable() || peer->failure != 0) return value(Code::closed);
  if (!worker_->can_get()) return value(Code::unsupported);
  if (!peer->admitted || peer->phase != Phase::open) return value(Code::wrong_state);
  const auto head = parse_key(key, key_size);
  if (!head || to == nullptr || bytes == 0 || remote < head->base || bytes > head->bytes ||
      remote - head->base > head->bytes - bytes) {
    return value(Code::invalid_argument);
  }
  if (peer->token_in_use(token)) return value(Code::exists);
  if (!worker_->emulated_get() && !reads_natively(*peer)) return value(Code::unsupported);
  int32_t refused = 0;
  RemoteKey* unpacked = unpack(*peer, *head, key, key_size, &refused);
  if (unpacked == nullptr) return refused;

  auto owned = std::make_unique<Get>();
  Get& get = *owned;
  get.token = token;
  get.key = unpacked;
  get.bytes = bytes;
  peer->gets.emplace(token, std::move(owned));
  ++peer->unended;
  ++unpacked->users;
  Operation* op = start_operation(*peer, Operation::Kind::get);
  op->get = &get;
  ucp_request_param_t param = Callbacks::sending(op, 0);
  memory_.describe(to, bytes, worker_->knows_device_memory(), &param);
  (void)took(op, ucp_get_nbx(peer->endpoint, to, bytes, remote, unpacked->handle, &param));
  return 0;
}

void Transport::end(Peer& peer, Get& get, ucs_status_t status) {
  --get.key->users;
  if (status != UCS_OK && get.status == 0) get.status = value(Code::closed);
  get.ended = true;
  --peer.unended;
  events_.push_back({Event::Kind::received, peer.id, get.token, get.status, get.status == 0 ? get.bytes : 0, {}});
  mark(peer);
}

}  // namespace kvbm::ucx
