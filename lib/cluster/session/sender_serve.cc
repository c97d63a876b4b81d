// The data half of the prefill side: which pulls are served, and how a slice gets out of engine memory.
#include <algorithm>
#include <cstring>

#include "cluster/session/sender.h"

namespace kvbm::cluster::session {

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
    ++sink.pulls;
    pulls_.push_back({{offer.request.request, rank, sink.session}, entry});
  }
}

void Sender::pump() {
  while (!pulls_.empty()) {
    const QueuedPull next = pulls_.front();
    Sink* sink = find(next.sink);
    if (sink == nullptr) {  // ended meanwhile
      pulls_.pop_front();
      continue;
    }
    const uint32_t slot = staging_.take();
    if (slot == Staging::kNone) return;
    pulls_.pop_front();
    push(next.sink, *find(next.sink.request), *sink, next.entry, slot);
  }
}

void Sender::push(const SinkName& name, Offer& offer, Sink& sink, const PullEntry& entry, uint32_t slot) {
  const Facts& facts = offer.request.facts;
  const auto local = std::find_if(offer.request.parts.begin(), offer.request.parts.end(),
                                  [&](const LocalPart& p) { return p.part.component == entry.extent.component; });
  const layout::ComponentGeometry& c = facts.components[entry.extent.component];
  const SliceShape shape(c, entry.extent);
  std::byte* front = staging_.data(slot);
  const size_t front_bytes = slice_front_bytes(shape.leaf_count());
  const std::span<uint64_t> hashes = std::span(hashes_).first(shape.leaf_count());
  const bool straight = options_.straight_from_bytes != 0 &&
                        copy_.straight(facts, *local, entry.extent, options_.straight_from_bytes, pieces_, hashes);
  if (!straight) {
    pieces_.clear();
    copy_.gather(facts, *local, entry.extent, front + front_bytes, hashes);
    pieces_.emplace_back(front, front_bytes + shape.payload_bytes());
  } else {
    pieces_.insert(pieces_.begin(), ConstBytes(front, front_bytes));
  }
  std::memcpy(slice_hashes(front), hashes.data(), hashes.size_bytes());
  encode_slice_front({name.session, entry.tag, name.request, entry.slice, static_cast<uint32_t>(shape.payload_bytes()),
                      shape.leaf_count(), row_bytes(c), entry.extent},
                     front);
  Push& p = pushes_[slot];
  p = {names_.next(slot), name, sink.peer, straight};
  const Code code = link_.push(sink.peer, entry.tag, pieces_, p.name);
  if (code != Code::ok) {
    p.name = 0;
    staging_.give(slot);
    end_sink(offer, name.rank, SinkState::failed, Status(code, "a slice could not be sent"), true);
    end_offer_if_due(offer);
    return forget_if_quiet(RequestId(name.request));
  }
  if (straight) ++offer.straight_pushes, ++stats_.straight_slices;
  ++stats_.slices;
  stats_.bytes += shape.payload_bytes();
  offer.bytes += shape.payload_bytes();
}

void Sender::on_pushed(uint64_t token, Code status) {
  const uint32_t slot = TransferNames::slot_of(token);
  if (!names_.mine(token) || slot >= pushes_.size() || pushes_[slot].name != token) return;
  const Push push = pushes_[slot];
  pushes_[slot].name = 0;
  staging_.give(slot);
  const auto it = offers_.find(push.sink.request);
  if (it != offers_.end() && push.straight) --it->second.straight_pushes;
  if (Sink* sink = find(push.sink); sink != nullptr) {
    --sink->pulls;
    if (status != Code::ok) {
      end_sink(it->second, push.sink.rank, SinkState::failed, Status(status, "a slice could not be sent"), true);
      end_offer_if_due(it->second);
    }
  }
  forget_if_quiet(push.sink.request);
  pump();
}

}  // namespace kvbm::cluster::session
