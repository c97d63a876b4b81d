// Messages, pushes into posts, and one-sided reads.
#include <algorithm>
#include <cstring>

#include "callbacks.h"
#include "status.h"
#include "transport.h"

namespace kvbm::ucx {

namespace {
// Size of a part of a push. Large enough to hide a rendezvous; small enough that a cancel takes effect soon and that
// the first bytes can be used while the last are in flight.
constexpr uint64_t kPartBytes = 1 << 20;
}  // namespace

int32_t Transport::send(kvbm_transport_peer_t id, const void* bytes, size_t size) {
  Peer* peer = find(id);
  if (peer == nullptr) return value(Code::stale_handle);
  if (peer->silent || !peer->usable() || peer->failure != 0) return value(Code::closed);
  const size_t most = peer->admitted ? KVBM_TRANSPORT_MESSAGE_BYTES : KVBM_TRANSPORT_STRANGER_BYTES;
  if ((bytes == nullptr && size != 0) || size > most) return value(Code::invalid_argument);
  if (peer->queued_bytes >= limits_.queue_bytes) {
    peer->wants_writable = true;
    return value(Code::again);
  }
  Operation* op = start_operation(*peer, Operation::Kind::message);
  op->payload.resize(size);
  if (size != 0) std::memcpy(op->payload.data(), bytes, size);
  op->bytes = size;
  const MessageHead head{peer->next_out++};
  std::memcpy(op->head, &head, sizeof head);
  peer->queued_bytes += size;
  const ucp_request_param_t param = Callbacks::sending(op, UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER);
  const bool sent = took(op, ucp_am_send_nbx(peer->endpoint, static_cast<unsigned>(Frame::message), op->head,
                                             sizeof head, op->payload.data(), size, &param));
  return sent ? 0 : value(Code::closed);
}

int32_t Transport::post(kvbm_transport_peer_t id, uint64_t tag, void* to, uint64_t bytes,
                        kvbm_transport_token_t token) {
  Peer* peer = find(id);
  if (peer == nullptr) return value(Code::stale_handle);
  if (peer->silent || !peer->usable() || peer->failure != 0) return value(Code::closed);
  if (to == nullptr && bytes != 0) return value(Code::invalid_argument);
  if (peer->tags.count(tag) != 0 || peer->token_in_use(token)) return value(Code::exists);
  auto post = std::make_unique<Post>();
  post->token = token;
  post->tag = tag;
  post->to = static_cast<std::byte*>(to);
  post->room = bytes;
  post->device = memory_.on_device(to, bytes);
  peer->tags.emplace(tag, post.get());
  peer->posts.emplace(token, std::move(post));
  ++peer->unended;
  return 0;
}

int32_t Transport::push(kvbm_transport_peer_t id, uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n_pieces,
                        kvbm_transport_token_t token) {
  Peer* peer = find(id);
  if (peer == nullptr) return value(Code::stale_handle);
  if (peer->silent || !peer->usable() || peer->failure != 0) return value(Code::closed);
  if (pieces == nullptr && n_pieces != 0) return value(Code::invalid_argument);
  if (!peer->admitted) return value(Code::wrong_state);
  if (peer->token_in_use(token)) return value(Code::exists);
  auto push = std::make_unique<Push>();
  push->token = token;
  push->tag = tag;
  push->id = peer->next_push;
  for (size_t i = 0; i < n_pieces; ++i) {
    if (pieces[i].bytes == 0) continue;
    if (pieces[i].data == nullptr || pieces[i].bytes > UINT64_MAX - push->total) return value(Code::invalid_argument);
    push->total += pieces[i].bytes;
    push->device = push->device || memory_.on_device(pieces[i].data, pieces[i].bytes);
    push->pieces.push_back(pieces[i]);
  }
  ++peer->next_push;
  peer->sending.push_back(push.get());
  peer->pushes.emplace(token, std::move(push));
  ++peer->unended;
  pump(*peer);
  return 0;
}

void Transport::pump(Peer& peer) {
  // Sends no bulk before the other side has answered: it would wait in UCX, where cancel() cannot reach it.
  if (peer.phase != Phase::open && peer.phase != Phase::flushing) return;
  while (!peer.sending.empty() && peer.bulk_bytes < limits_.bulk_bytes) {
    Push& push = *peer.sending.front();
    if (push.device && push.status == 0 && !reaches_devices(peer)) push.status = value(Code::unsupported);
    if (push.status == 0 && !push.all_sent && !send_part(peer, push)) return;
    if (push.status != 0 || push.all_sent) {
      peer.sending.pop_front();
      end_if_done(peer, push);
    }
  }
}

bool Transport::send_part(Peer& peer, Push& push) {
  const kvbm_transport_piece_t piece = push.total != 0 ? push.pieces[push.piece] : kvbm_transport_piece_t{nullptr, 0};
  const uint64_t bytes = std::min({kPartBytes, limits_.bulk_bytes, piece.bytes - push.within});
  const auto* from = static_cast<const std::byte*>(piece.data) + push.within;
  Operation* op = start_operation(peer, Operation::Kind::part_out);
  op->push = &push;
  op->bytes = bytes;
  const BulkHead head{push.id, push.tag, push.total, push.sent};
  std::memcpy(op->head, &head, sizeof head);
  push.begun = true;
  push.sent += bytes;
  push.within += bytes;
  if (push.within == piece.bytes) {
    ++push.piece;
    push.within = 0;
  }
  push.all_sent = push.sent == push.total;
  ++push.requests;
  peer.bulk_bytes += bytes;
  // UCX would copy a short last part, or any part if the sender's threshold is high. The receiver cannot put a copy
  // into a device, and only the receiver knows whether it must. So such pushes are forced to rendezvous.
  const bool rendezvous = bytes != 0 && reaches_devices(peer) &&
                          (push.total >= KVBM_TRANSPORT_DEVICE_BYTES || memory_.on_device(from, bytes));
  ucp_request_param_t param =
      Callbacks::sending(op, UCP_AM_SEND_FLAG_REPLY | (rendezvous ? uint32_t{UCP_AM_SEND_FLAG_RNDV} : 0U));
  memory_.describe(from, bytes, worker_->knows_device_memory(), &param);
  return took(op, ucp_am_send_nbx(peer.endpoint, static_cast<unsigned>(Frame::bulk), op->head, sizeof head, from, bytes,
                                  &param));
}

Post* Transport::place(Peer& peer, const BulkHead& head, uint64_t bytes) {
  Post* post = nullptr;
  if (head.offset == 0) {
    const auto it = peer.tags.find(head.tag);
    if (it == peer.tags.end() || it->second->ended || it->second->push != 0 || it->second->status != 0) return nullptr;
    post = it->second;
    if (head.total > post->room) {
      post->status = value(Code::mismatch);
      end_if_done(peer, *post);
      return nullptr;
    }
    post->push = head.push;
    post->total = head.total;
    peer.receiving[head.push] = post;
  } else {
    const auto it = peer.receiving.find(head.push);
    if (it == peer.receiving.end()) return nullptr;
    post = it->second;
    if (post->status != 0) return nullptr;
    if (head.tag != post->tag || head.total != post->total || head.offset != post->next) {
      fail(peer, KVBM_TRANSPORT_PROTOCOL, "parts of a push do not fit together");
      return nullptr;
    }
  }
  post->next = head.offset + bytes;
  return post;
}

void Transport::landed(Peer& peer, Post& post, uint64_t offset, uint64_t bytes) {
  if (post.status == 0) {
    if (offset == post.prefix) {
      post.prefix += bytes;
      for (auto it = post.islands.begin(); it != post.islands.end() && it->first == post.prefix;) {
        post.prefix += it->second;
        it = post.islands.erase(it);
      }
    } else {
      post.islands.emplace(offset, bytes);
    }
    if (host_.arrived != nullptr && post.prefix > post.told && post.prefix < post.total) {
      post.told = post.prefix;
      events_.push_back({Event::Kind::arrived, peer.id, post.token, 0, post.prefix, {}});
    }
  }
  end_if_done(peer, post);
}

void Transport::refuse(Peer& peer, Post& post) {
  post.status = value(Code::unsupported);
  end_if_done(peer, post);
}

void Transport::end_if_done(Peer& peer, Post& post) {
  if (post.ended || post.requests != 0) return;
  if (post.status == 0 && (post.push == 0 || post.prefix != post.total)) return;
  post.ended = true;
  --peer.unended;
  if (post.push != 0) peer.receiving.erase(post.push);
  const uint64_t bytes = post.status == 0 ? post.total : 0;
  events_.push_back({Event::Kind::received, peer.id, post.token, post.status, bytes, {}});
  mark(peer);
}

void Transport::end_if_done(Peer& peer, Push& push) {
  if (push.ended || push.requests != 0 || (push.status == 0 && !push.all_sent)) return;
  push.ended = true;
  --peer.unended;
  events_.push_back({Event::Kind::pushed, peer.id, push.token, push.status, 0, {}});
  mark(peer);
}

void Transport::end_all(Peer& peer) {
  constexpr int32_t status = value(Code::closed);
  peer.sending.clear();
  for (auto& [token, push] : peer.pushes) {
    if (push->ended) continue;
    if (push->status == 0 && !push->all_sent) push->status = status;
    end_if_done(peer, *push);
  }
  for (auto& [token, post] : peer.posts) {
    if (post->ended) continue;
    if (post->status == 0) post->status = status;
    end_if_done(peer, *post);
  }
  for (auto& [token, get] : peer.gets) {
    if (!get->ended && get->status == 0) get->status = status;
  }
}

int32_t Transport::cancel(kvbm_transport_peer_t id, kvbm_transport_token_t token) {
  Peer* peer = find(id);
  if (peer == nullptr) return value(Code::stale_handle);
  if (const auto post = peer->posts.find(token); post != peer->posts.end() && !post->second->ended) {
    if (post->second->status == 0) post->second->status = value(Code::cancelled);
    end_if_done(*peer, *post->second);
    return 0;
  }
  if (const auto found = peer->pushes.find(token); found != peer->pushes.end() && !found->second->ended) {
    Push& push = *found->second;
    if (push.begun) return 0;
    push.status = value(Code::cancelled);
    peer->sending.erase(std::remove(peer->sending.begin(), peer->sending.end(), &push), peer->sending.end());
    end_if_done(*peer, push);
    return 0;
  }
  if (const auto get = peer->gets.find(token); get != peer->gets.end() && !get->second->ended) {
    if (get->second->status == 0) get->second->status = value(Code::cancelled);
    return 0;
  }
  return value(Code::stale_handle);
}

}  // namespace kvbm::ucx
