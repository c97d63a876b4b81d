// Payloads that the transport writes into a device of the decode side. The pull's own post can take the whole slice,
// as always, because the serving side decides. Beside it the payload alone is posted in a slot of the device, under
// the pull's tag with kPayloadBit. A front alone means that its payload was sent there. The slice is examined when
// both posts have ended, so nothing writes into either place any more; the post that cannot complete it is cancelled.
#include "cluster/session/receiver.h"

namespace kvbm::cluster::session {

// Requires a grain, with which every leaf is one run that the device can hash.
bool Receiver::post_direct(const Session& session, Source& source, const Extent& extent, uint64_t payload_bytes,
                           Transfer& transfer) {
  const PeerId peer = source.rank.peer;
  if ((source.ways & kWayApart) == 0 || extent.grain == 0 || !link_.takes_ways(peer)) return false;
  SliceMover* const mover = target_of(session, extent).map.mover;
  if (mover == nullptr) return false;
  DirectStaging::Slot slot = direct_.take(peer, *mover, payload_bytes);
  if (!slot.taken()) return false;
  const uint64_t name = TransferNames::payload_of(transfer.name);
  if (link_.post(peer, name, {direct_.data(slot), payload_bytes}, name) != Code::ok) {
    direct_.give(slot);  // the whole slice arrives, or the connection ends
    return false;
  }
  transfer.direct = slot;
  return true;
}

bool Receiver::both_ended(Transfer& t, uint64_t token, Code& status, uint64_t& bytes) {
  const bool is_payload = TransferNames::is_payload(token);
  (is_payload ? t.payload : t.whole) = {true, status, bytes};
  const std::byte* const front = staging_.data(TransferNames::slot_of(token));
  const bool front_alone =
      t.whole.ended && t.whole.code == Code::ok && t.whole.bytes == t.front_bytes && slice_place(front) == kPlaceApart;
  if (!t.whole.ended || !t.payload.ended) {
    const bool goes_on = is_payload ? status == Code::ok : front_alone;
    if (!goes_on) link_.cancel(t.peer, is_payload ? t.name : TransferNames::payload_of(t.name));
    return false;
  }
  const bool broken = t.payload.code != Code::ok && t.payload.code != Code::cancelled;
  if (broken) direct_.failed(t.direct, t.peer, Status(t.payload.code, "a payload did not land"));
  status = front_alone || (broken && t.whole.code != Code::ok) ? t.payload.code : t.whole.code;
  bytes = t.whole.bytes;
  t.is_direct = front_alone && t.payload.code == Code::ok && t.payload.bytes == t.bytes - t.front_bytes;
  return true;
}

void Receiver::judge_direct(const Transfer& transfer, const Status& status) {
  if (!transfer.is_direct) return;
  if (status.ok()) return direct_.worked(transfer.direct);
  direct_.failed(transfer.direct, transfer.peer, status);
}

void Receiver::cancel(const Transfer& transfer) {
  link_.cancel(transfer.peer, transfer.name);
  if (transfer.direct.taken()) link_.cancel(transfer.peer, TransferNames::payload_of(transfer.name));
}

}  // namespace kvbm::cluster::session
