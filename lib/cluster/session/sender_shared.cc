// Shared memory of the prefill side: which connections learn of it, and which payloads stay in it.
//
// A slot is taken for one pull of one decode rank's session and is free again when that rank has read it, or its
// session has ended. A rank that reads it later finds bytes that do not match the hashes it was sent, and detects
// that.
#include <algorithm>

#include "cluster/session/sender.h"

namespace kvbm::cluster::session {

SliceMover* Sender::mover_that_shares(std::span<const LocalPart> parts) {
  for (const LocalPart& p : parts) {
    if (p.map.mover != nullptr && !p.map.mover->place().empty()) return p.map.mover;
  }
  return nullptr;
}

Sender::Sharing& Sender::sharing_of(SliceMover& mover) {
  for (auto& s : sharings_) {
    if (s->mover == &mover) return *s;
  }
  sharings_.push_back(std::make_unique<Sharing>());
  sharings_.back()->mover = &mover;
  return *sharings_.back();
}

uint32_t Sender::shared_taken() const noexcept {
  uint32_t taken = 0;
  for (const auto& s : sharings_) taken += s->slots != nullptr ? s->slots->taken() : 0;
  return taken;
}

void Sender::share(Offer& offer, uint16_t rank, Sink& sink, const Map& map) {
  if (sink.asked) {
    ++stats_.protocol_errors;
    const Status twice(Code::damaged, "shared memory is asked for twice");
    return end_sink(offer, rank, SinkState::failed, twice, true);
  }
  sink.asked = true;
  const auto decline = [&](const Status& why) { send(sink, rank, Shared{why.code(), 0, 0, {}, why.message()}); };
  SliceMover* mover = mover_that_shares(offer.request.parts);
  if (mover == nullptr) return decline({Code::unsupported, "no blocks of a device that shares memory are offered"});
  if (const Status near = mover->near(map.place); !near.ok()) return decline(near);
  Sharing& sharing = sharing_of(*mover);
  if (sharing.slots != nullptr) return tell_shared(sink, rank, sharing);
  sharing.waiting.push_back({offer.request.request, rank, sink.session});
  if (sharing.making) return;
  sharing.making = true;
  mover->share(staging_.slots() * round_up(staging_.slice_bytes(), Staging::kSharedAlignment),
               [self = std::weak_ptr<Sender*>(self_), mover](Result<SharedMemory> memory) {
                 if (const auto alive = self.lock()) (*alive)->shared(mover, std::move(memory));
               });
}

void Sender::shared(const SliceMover* mover, Result<SharedMemory> memory) {
  const auto at = std::find_if(sharings_.begin(), sharings_.end(), [&](const auto& s) { return s->mover == mover; });
  Sharing& sharing = **at;
  sharing.making = false;
  if (memory.ok()) {
    sharing.slots = std::make_unique<SharedSlots>(std::move(memory).value(), staging_.slots(),
                                                  round_up(staging_.slice_bytes(), Staging::kSharedAlignment));
  }
  for (const SinkName& name : std::exchange(sharing.waiting, {})) {
    Sink* sink = find(name);
    if (sink == nullptr) continue;
    if (sharing.slots != nullptr) {
      tell_shared(*sink, name.rank, sharing);
    } else {  // the next request may succeed
      send(*sink, name.rank, Shared{memory.status().code(), 0, 0, {}, memory.status().message()});
    }
  }
}

void Sender::tell_shared(Sink& sink, uint16_t rank, Sharing& sharing) {
  const auto known = std::find(sharing.notified.begin(), sharing.notified.end(), sink.peer);
  if (known == sharing.notified.end()) sharing.notified.push_back(sink.peer);
  const SharedSlots& slots = *sharing.slots;
  send(sink, rank, Shared{Code::ok, slots.slots(), slots.slot_bytes(), slots.memory().said, {}});
}

void Sender::place(const Sink& sink, const LocalPart& local, uint32_t slot, SliceMove& move) {
  Push& push = pushes_[slot];
  if ((push.entry.ways & kWayShared) == 0) return;
  const Sharing& sharing = sharing_of(*local.map.mover);
  if (std::find(sharing.notified.begin(), sharing.notified.end(), sink.peer) == sharing.notified.end()) return;
  if (move.runs.size() != move.leaves.size()) return;  // only the CPU could hash these
  SharedSlots& slots = *sharing.slots;
  const uint32_t taken = slots.take(push.sink, push.entry.tag);
  if (taken == SharedSlots::kNone) return;
  push.shared = &slots;
  push.shared_slot = taken;
  push.apart = false;
  move.payload = slots.data(taken);
  move.shared = true;
  move.keep = slots.memory().keep;
}

}  // namespace kvbm::cluster::session
