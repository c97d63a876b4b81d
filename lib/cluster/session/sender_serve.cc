// The data half of the prefill side: which pulls are served, and how a slice is read from engine memory.
#include <algorithm>
#include <cstring>

#include "cluster/session/sender.h"

namespace kvbm::cluster::session {
namespace {

// A link may refuse or end pushes to a dead peer before it reports that it is closed.
Status not_sent(Code code) {
  if (code == Code::closed) return {Code::owner_gone, "the connection to a decode rank is gone"};
  return {code, "a slice could not be sent"};
}

}  // namespace

Status Sender::check_pull(const Offer& offer, const Sink& sink, const PullEntry& entry) const {
  const auto refused = [&](const char* why) {
    return Status(Code::damaged, "a pull is refused", std::string(why) + ": slice " + std::to_string(entry.slice));
  };
  if (sink.pulls >= options_.max_pulls_per_sink) return refused("too many at once");
  for (size_t i = 0; i < offer.request.parts.size(); ++i) {
    const Part& part = offer.request.parts[i].part;
    if (!inside(part, entry.extent)) continue;
    const layout::ComponentGeometry& c = offer.request.facts.components[part.component];
    const uint64_t column = uint64_t{c.planes} * row_bytes(c) * entry.extent.heads;
    if (entry.extent.range.size() > staging_.slice_bytes() / column) return refused("larger than a slice");
    if (!SliceShape::fits_grain(c, entry.extent)) return refused("cut into too little");
    const IntervalSet& set = offer.published[i][entry.extent.layer - part.shard.first_layer];
    if (!set.covers(entry.extent.range)) return refused("not published");
    return {};
  }
  return refused("not offered");
}

void Sender::pulled(Offer& offer, uint16_t rank, Sink& sink, const Pull& pull) {
  for (const PullEntry& entry : pull.entries) {
    if (auto s = check_pull(offer, sink, entry); !s.ok()) {
      ++stats_.protocol_errors;
      return end_sink(offer, rank, SinkState::failed, s, true);
    }
    const SliceCoder::Plan plan = plan_for(entry, pull.coding);
    if (plan == SliceCoder::Plan::refused) return end_sink(offer, rank, SinkState::failed, must_be_sealed(), true);
    if (plan == SliceCoder::Plan::plain && options_.coder != nullptr) options_.coder->gave_plain();
    ++sink.pulls;
    pulls_.push_back({{offer.request.request, rank, sink.session},
                      entry,
                      plan == SliceCoder::Plan::coded ? pull.coding : wire::Coding{}});
  }
}

void Sender::pump() {
  while (!pulls_.empty()) {
    const Push next = pulls_.front();
    Sink* sink = find(next.sink);
    if (sink == nullptr) {  // ended meanwhile
      pulls_.pop_front();
      continue;
    }
    const uint32_t slot = staging_.take();
    if (slot == Staging::kNone) return;
    pulls_.pop_front();
    push(next, *find(next.sink.request), *sink, slot);
  }
}

void Sender::push(const Push& next, Offer& offer, Sink& sink, uint32_t slot) {
  const Facts& facts = offer.request.facts;
  const PullEntry& entry = next.entry;
  const auto local = std::find_if(offer.request.parts.begin(), offer.request.parts.end(),
                                  [&](const LocalPart& p) { return p.part.component == entry.extent.component; });
  pushes_[slot] = next;
  pushes_[slot].name = names_.next(slot);
  pushes_[slot].peer = sink.peer;
  pushes_[slot].apart = goes_apart(entry, next.coding);
  if (local->map.mover != nullptr) return gather(offer, sink, *local, slot);
  const SliceShape shape(facts.components[entry.extent.component], entry.extent);
  std::byte* front = staging_.data(slot);
  const size_t front_bytes = slice_front_bytes(shape.leaf_count());
  const std::span<uint64_t> hashes = std::span(hashes_).first(shape.leaf_count());
  if (next.coding.any()) {
    copy_.gather(facts, *local, entry.extent, front + front_bytes, hashes);
    std::memcpy(slice_hashes(front), hashes.data(), hashes.size_bytes());
    return begin_coding(offer, slot, shape);
  }
  const bool straight = options_.straight_from_bytes != 0 &&
                        copy_.straight(facts, *local, entry.extent, options_.straight_from_bytes, pieces_, hashes);
  if (!straight) {
    copy_.gather(facts, *local, entry.extent, front + front_bytes, hashes);
    lay(slot, shape);
  } else {
    pieces_.insert(pieces_.begin(), ConstBytes(front, front_bytes));
  }
  std::memcpy(slice_hashes(front), hashes.data(), hashes.size_bytes());
  pushes_[slot].straight = straight;
  send_slice(offer, sink, slot, shape);
}

void Sender::gather(Offer& offer, const Sink& sink, const LocalPart& local, uint32_t slot) {
  const Facts& facts = offer.request.facts;
  const PullEntry& entry = pushes_[slot].entry;
  const SliceShape shape(facts.components[entry.extent.component], entry.extent);
  pushes_[slot].moving = true;
  ++offer.readers;
  auto slice = slice_move(facts, local, entry.extent, staging_.data(slot) + slice_front_bytes(shape.leaf_count()));
  place(sink, local, slot, *slice);
  if (pushes_[slot].shared == nullptr) place_direct(local, slot, *slice);
  local.map.mover->gather(std::move(slice), [self = std::weak_ptr<Sender*>(self_), push = pushes_[slot].name](
                                                const SliceMove& move, const Status& status) {
    if (const auto alive = self.lock()) (*alive)->gathered(push, move, status);
  });
}

void Sender::gathered(uint64_t name, const SliceMove& move, const Status& status) {
  const uint32_t slot = TransferNames::slot_of(name);
  Push& push = pushes_[slot];
  push.moving = false;
  const RequestId request = push.sink.request;
  Offer& offer = offers_.find(request)->second;  // exists while it has readers
  --offer.readers;
  Sink* sink = find(push.sink);
  if (push.shared != nullptr) {
    sink == nullptr || !status.ok() ? push.shared->give(push.shared_slot) : push.shared->filled(push.shared_slot);
  }
  if (sink == nullptr || !status.ok()) {
    const uint16_t rank = push.sink.rank;
    free_push(slot);  // a lost device may still write there: the receiver of the slot's next slice checks the hashes
    if (sink != nullptr) {
      end_sink(offer, rank, SinkState::failed, status, true);
      end_offer_if_due(offer);
    }
  } else {
    const layout::ComponentGeometry& c = offer.request.facts.components[push.entry.extent.component];
    const SliceShape shape(c, push.entry.extent);
    std::byte* front = staging_.data(slot);
    std::memcpy(slice_hashes(front), move.hashes.data(), move.hashes.size() * sizeof(uint64_t));
    if (push.shared == nullptr && push.coding.any()) {
      begin_coding(offer, slot, shape);
    } else {
      lay(slot, shape);
      send_slice(offer, *sink, slot, shape);
    }
  }
  forget_if_quiet(request);
  pump();
  if (options_.moved) options_.moved();
}

SliceHead Sender::head_of(const Offer& offer, const Push& push, const SliceShape& shape) const {
  const layout::ComponentGeometry& c = offer.request.facts.components[push.entry.extent.component];
  return {push.sink.session,
          push.entry.tag,
          push.sink.request,
          push.entry.slice,
          static_cast<uint32_t>(shape.payload_bytes()),
          shape.leaf_count(),
          row_bytes(c),
          push.entry.extent,
          push.shared != nullptr ? push.shared_slot + 1
          : push.apart           ? kPlaceApart
                                 : 0};
}

void Sender::send_slice(Offer& offer, Sink& sink, uint32_t slot, const SliceShape& shape) {
  encode_slice_front(head_of(offer, pushes_[slot], shape), staging_.data(slot));
  send_pieces(offer, sink, slot, shape.payload_bytes());
}

void Sender::send_pieces(Offer& offer, Sink& sink, uint32_t slot, uint64_t payload_bytes) {
  Push& p = pushes_[slot];
  const Code code = push_pieces(sink, p);
  if (code != Code::ok) {
    const SinkName name = p.sink;
    if (p.under_way == 0) free_push(slot);
    end_sink(offer, name.rank, SinkState::failed, not_sent(code), true);
    end_offer_if_due(offer);
    return forget_if_quiet(name.request);
  }
  if (p.straight) ++offer.readers, ++stats_.straight_slices;
  if (p.shared != nullptr) ++stats_.shared_slices, stats_.shared_bytes += payload_bytes;
  p.payload_bytes = payload_bytes;
  if (!p.direct.taken()) ++stats_.slices, stats_.bytes += payload_bytes;  // direct: counted when it has ended well
  offer.bytes += payload_bytes;
}

void Sender::on_pushed(uint64_t token, Code status) {
  const uint32_t slot = TransferNames::slot_of(token);
  if (!names_.mine(token) || slot >= pushes_.size()) return;
  if (Push& p = pushes_[slot]; p.name != TransferNames::whole_of(token) || p.under_way == 0) {
    return;
  } else {
    if (status != Code::ok) p.failed = status;
    if (--p.under_way > 0) return;
  }
  const Push push = pushes_[slot];
  const bool again = sent_direct(push);
  free_push(slot);
  const auto it = offers_.find(push.sink.request);
  if (it != offers_.end() && push.straight) --it->second.readers;
  if (Sink* sink = find(push.sink); sink != nullptr && !again) {
    --sink->pulls;
    if (push.failed != Code::ok) {
      end_sink(it->second, push.sink.rank, SinkState::failed, not_sent(push.failed), true);
      end_offer_if_due(it->second);
    }
  }
  forget_if_quiet(push.sink.request);
  pump();
}

}  // namespace kvbm::cluster::session
