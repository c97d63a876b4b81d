// The prefill side of coded or sealed slices: which slices those are, and the steps between gathering and sending.
#include "cluster/session/sender.h"

namespace kvbm::cluster::session {

Status Sender::must_be_sealed() {
  return {Code::not_permitted, "slices are sealed here, and the decode rank cannot open them",
          "it needs this node's seal.key_file"};
}

SliceCoder::Plan Sender::plan_for(const PullEntry& entry, const wire::Coding& coding) const {
  if (options_.coder == nullptr) return SliceCoder::Plan::plain;
  return options_.coder->plan((entry.ways & kWayCoded) != 0 ? coding : wire::Coding{});
}

// Starts coding. Engine memory is not read any more: the offer may end meanwhile, and its blocks may be released.
void Sender::begin_coding(Offer& offer, uint32_t slot, const SliceShape& shape) {
  Push& push = pushes_[slot];
  push.moving = true;
  const SliceInSlot slice{head_of(offer, push, shape), offer.request.facts.model,
                          offer.request.facts.components[push.entry.extent.component], staging_.data(slot)};
  options_.coder->encode(
      slice, push.coding,
      [self = std::weak_ptr<Sender*>(self_), name = push.name](const Status& status, uint64_t bytes) {
        if (const auto alive = self.lock()) (*alive)->encoded(name, status, bytes);
      });
}

void Sender::encoded(uint64_t name, const Status& status, uint64_t bytes) {
  const uint32_t slot = TransferNames::slot_of(name);
  Push& push = pushes_[slot];
  push.moving = false;
  const RequestId request = push.sink.request;
  Sink* sink = find(push.sink);
  const bool useless = status.code() == Code::again;
  if (sink == nullptr || !(status.ok() || useless)) {
    const uint16_t rank = push.sink.rank;
    free_push(slot);
    if (sink != nullptr) {
      Offer& offer = *find(request);
      end_sink(offer, rank, SinkState::failed, status, true);
      end_offer_if_due(offer);
    }
  } else {
    Offer& offer = *find(request);
    const SliceShape shape(offer.request.facts.components[push.entry.extent.component], push.entry.extent);
    std::byte* front = staging_.data(slot);
    pieces_.clear();
    if (useless) {
      options_.coder->gave_plain();
      lay(slot, shape);
      send_slice(offer, *sink, slot, shape);
    } else {
      ++stats_.coded_slices;
      stats_.coded_bytes += bytes;
      pieces_.emplace_back(front, bytes);
      send_pieces(offer, *sink, slot, shape.payload_bytes());
    }
  }
  forget_if_quiet(request);
  pump();
  if (options_.moved) options_.moved();
}

}  // namespace kvbm::cluster::session
