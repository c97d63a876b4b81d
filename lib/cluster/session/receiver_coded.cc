// The decode side of coded or sealed slices: how they are requested, and the steps between their arrival and the
// scatter.
#include <algorithm>
#include <utility>

#include "cluster/session/receiver.h"

namespace kvbm::cluster::session {

SliceCoder::Asked Receiver::ask_coded(Session& session, Source& source, const SliceState& state,
                                      uint64_t payload_bytes) {
  if (!may_come_coded(source)) return {};
  SliceCoder::Asked asked = options_.coder->ask(source.rank.peer, payload_bytes, state.attempts > 0);
  // A message has one coding for all of its pulls that may be coded.
  const wire::Coding& batched = source.batch.coding;
  if (asked.coding.any() && batched.any() && asked.coding != batched) {
    send(session, source, std::exchange(source.batch, {}));
  }
  return asked;
}

SliceInSlot Receiver::slice_in(const Session& session, const Transfer& transfer, uint32_t slot) const {
  const Slice& slice = session.plan.slices()[transfer.slice];
  const Facts& facts = session.request.facts;
  const layout::ComponentGeometry& c = facts.components[slice.extent.component];
  Extent extent = slice.extent;
  extent.grain = session.slices[transfer.slice].grain;
  const SliceShape shape(c, extent);
  return {{session.id, transfer.name, session.request.request, transfer.slice, slice.payload_bytes, shape.leaf_count(),
           row_bytes(c), extent},
          facts.model,
          c,
          staging_.data(slot)};
}

bool Receiver::begin_decoding(Session& session, uint32_t slot, uint64_t bytes, bool* right) {
  SliceCoder* const coder = options_.coder;
  Transfer& transfer = transfers_[slot];
  if (coder == nullptr || transfer.is_shared) return false;
  const SliceInSlot slice = slice_in(session, transfer, slot);
  if (!transfer.asked.coding.any() || !is_coded_slice(slice.slot, bytes)) {
    *right = coder->take_plain(transfer.peer);
    return false;
  }
  // A session that ends meanwhile does not wait: decoding writes into staging only.
  transfer.moving = transfer.coded = true;
  ++session.sources[session.plan.slices()[transfer.slice].source].moving;
  stats_.coded_bytes += bytes;
  coder->decode(transfer.peer, slice, bytes,
                [self = std::weak_ptr<Receiver*>(self_), name = transfer.name](const Status& status, uint64_t) {
                  if (const auto alive = self.lock()) (*alive)->decoded(name, status);
                });
  return true;
}

void Receiver::decoded(uint64_t name, const Status& status) {
  const uint32_t slot = TransferNames::slot_of(name);
  transfers_[slot].moving = false;
  const Transfer transfer = transfers_[slot];
  Session* session = find(transfer.session);
  if (session == nullptr) {
    ++stats_.late_slices;
    free_slot(slot);
    pump();
  } else {
    --session->sources[session->plan.slices()[transfer.slice].source].moving;
    // Another attempt would be refused as well: the slice is lossy, or sealed with a key that is not here.
    const bool refused = status.code() == Code::not_permitted || status.code() == Code::mismatch;
    if (refused) {
      end(transfer.session, status);
      free_slot(slot);
      pump();
    } else {
      bool moving = false;
      const bool right = status.ok() && landed(*session, transfer, slot, &moving);
      after_landing(slot, Code::ok, right, moving);
    }
  }
  if (options_.moved) options_.moved();
}

}  // namespace kvbm::cluster::session
