// Payloads that the transport reads from a device of the prefill side, and fronts sent apart from their payloads.
//
// The place of the payload concerns this side only: the bytes of a push are the same. The decode side asks for a
// separate tag, so that the payload can be written into device memory there, while the CPU reads the front.
#include "cluster/session/sender.h"

namespace kvbm::cluster::session {

bool Sender::goes_apart(const PullEntry& entry, const wire::Coding& coding) {
  return (entry.ways & kWayApart) != 0 && !TransferNames::is_payload(entry.tag) && !coding.any() &&
         entry.extent.grain != 0;
}

void Sender::place_direct(const LocalPart& local, uint32_t slot, SliceMove& move) {
  Push& push = pushes_[slot];
  // The CPU codes such slices; it also hashes a leaf of several runs.
  if (push.coding.any() || move.runs.size() != move.leaves.size()) return;
  push.direct = direct_.take(push.peer, *local.map.mover, move.bytes());
  if (push.direct.taken()) direct_.place(push.direct, move);
}

void Sender::lay(uint32_t slot, const SliceShape& shape) {
  const Push& push = pushes_[slot];
  const std::byte* const front = staging_.data(slot);
  const size_t front_bytes = slice_front_bytes(shape.leaf_count());
  pieces_.clear();
  if (push.shared != nullptr) {
    pieces_.emplace_back(front, front_bytes);
  } else if (push.direct.taken() || push.apart) {
    pieces_.emplace_back(front, front_bytes);
    pieces_.emplace_back(push.direct.taken() ? direct_.data(push.direct) : front + front_bytes, shape.payload_bytes());
  } else {
    pieces_.emplace_back(front, front_bytes + shape.payload_bytes());
  }
}

// Pushes the pieces. If only the first of two pushes was started, its end frees the slot; the connection is gone
// then.
Code Sender::push_pieces(const Sink& sink, Push& push) {
  const std::span<const ConstBytes> all(pieces_);
  Code code = link_.push(sink.peer, push.entry.tag, push.apart ? all.first(1) : all, push.name);
  if (code != Code::ok) return code;
  push.under_way = 1;
  if (!push.apart) return code;
  code = link_.push(sink.peer, push.entry.tag | kPayloadBit, all.subspan(1), TransferNames::payload_of(push.name));
  if (code == Code::ok) ++push.under_way;
  return code;
}

bool Sender::sent_direct(const Push& push) {
  if (!push.direct.taken()) return false;
  if (push.failed == Code::ok) {
    direct_.worked(push.direct);
    ++stats_.slices, stats_.bytes += push.payload_bytes;
    ++stats_.direct_slices, stats_.direct_bytes += push.payload_bytes;
  }
  if (push.failed == Code::ok || find(push.sink) == nullptr) return false;
  direct_.failed(push.direct, push.peer, Status(push.failed, "a payload could not be sent"));
  // The decode side's post may still be there. If it is not, that side pulls the slice again.
  pulls_.push_front({push.sink, push.entry, push.coding});
  return true;
}

void Sender::free_push(uint32_t slot) {
  direct_.give(pushes_[slot].direct);
  pushes_[slot].name = 0;
  staging_.give(slot);
}

}  // namespace kvbm::cluster::session
