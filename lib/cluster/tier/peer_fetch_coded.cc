// Reads of records that arrive coded or sealed.
#include <algorithm>

#include "cluster/tier/peer_fetch.h"

namespace kvbm::cluster {

size_t PeerFetch::room_of(const Place& place) const {
  const auto& coder = context_->options.coder;
  if (coder == nullptr) return place.head_bytes + place.payload_bytes;
  return coder->room(place.head_bytes, place.payload_bytes);
}

// Returns how the next request to a node asks for records; null: plain, and no outcome is reported. Depends on the
// items that wait for that node, as many as one request carries.
std::shared_ptr<PeerFetch::Request> PeerFetch::ask(const NodeId& node) const {
  const auto& coder = context_->options.coder;
  if (coder == nullptr) return nullptr;
  uint64_t bytes = 0;
  size_t items = 0;
  bool lossy = true;
  uint64_t deadline_ns = kNever;
  for (const Waiting& next : waiting_) {
    if (where(next).node != node || items == kFetchItems || bytes >= kFetchBytes) break;
    bytes += where(next).head_bytes + where(next).payload_bytes;
    lossy = lossy && coder->takes_lossy(item(next).id.family);
    deadline_ns = std::min(deadline_ns, next.op->deadline_ns);
    ++items;
  }
  return std::make_shared<Request>(coder, node, coder->ask(node, bytes, lossy, LinkCoder::Use::records, deadline_ns));
}

// Checks how a record arrived: whether it must be decoded, and may be used at all.
Code PeerFetch::look(Piece& piece, const FetchItem& came) const {
  if (piece.request == nullptr) return came.coded ? Code::mismatch : Code::ok;
  if (!piece.request->coder->take(piece.request->node, came.coded, came.sealed)) return Code::not_permitted;
  piece.coded = came.coded;
  piece.request->got.fetch_add(came.raw_bytes, std::memory_order_relaxed);
  if (piece.coded) piece.request->coded.store(true, std::memory_order_relaxed);
  return Code::ok;
}

// Opens and decodes each leaf, and compares it with the hash that it had when it was stored.
Code PeerFetch::decode(const Piece& piece) {
  tier::GetItem& target = item(piece.what);
  const auto head = codec::HeadView::parse(piece.head());
  if (!head.ok()) return head.status().code();
  const uint64_t raw_bytes = head.value().header().raw_bytes;
  const size_t head_bytes = codec::plain_head_bytes(head.value());
  if (raw_bytes > target.payload.size() || head_bytes > target.head.size()) return Code::mismatch;
  const Request& request = *piece.request;
  const Code code = request.coder->decode(request.node, target.id.family, head.value(), piece.payload(),
                                          target.head.first(head_bytes), target.payload.first(raw_bytes));
  if (code != Code::ok) return code;
  target.head_bytes = static_cast<uint32_t>(head_bytes);
  target.payload_bytes = raw_bytes;
  return Code::ok;
}

}  // namespace kvbm::cluster
