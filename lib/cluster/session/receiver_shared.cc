// Shared memory of the decode side: requests it from each prefill rank once, maps what is announced, and reads
// payloads there. No transfer waits for it: until it is mapped, and if it cannot be, payloads are sent behind their
// heads.
//
// Mapped memory contains whatever the other process wrote there last. A payload is accepted if each leaf has the hash
// in its head, which was sent over the link; else the slice is pulled again, by the link.
#include <algorithm>

#include "cluster/session/receiver.h"

namespace kvbm::cluster::session {

Receiver::Mapped* Receiver::find_mapped(PeerId peer, uint16_t rank, const SliceMover* mover) {
  for (auto& m : mapped_) {
    if (m->peer == peer && m->rank == rank && m->mover == mover) return m.get();
  }
  return nullptr;
}

uint32_t Receiver::mapped() const noexcept {
  return static_cast<uint32_t>(
      std::count_if(mapped_.begin(), mapped_.end(), [](const auto& m) { return m->step == Mapped::Step::there; }));
}

void Receiver::ask_to_share(Session& session, Source& source, const Accept& accept) {
  if ((accept.ways & kWayShared) == 0 || !link_.takes_ways(source.rank.peer)) return;
  for (const LocalPart& target : session.request.targets) {
    SliceMover* mover = target.map.mover;
    if (mover == nullptr || mover->place().empty()) continue;
    if (find_mapped(source.rank.peer, source.rank.rank, mover) != nullptr) return;
    auto asked = std::make_unique<Mapped>();
    asked->peer = source.rank.peer;
    asked->rank = source.rank.rank;
    asked->mover = mover;
    asked->by = session.id;
    asked->name = source.rank.name;
    mapped_.push_back(std::move(asked));
    return send(session, source, Map{mover->place()});
  }
}

Status Receiver::told_shared(Session& session, Source& source, const Shared& shared) {
  const auto at = std::find_if(mapped_.begin(), mapped_.end(), [&](const auto& m) {
    return m->peer == source.rank.peer && m->rank == source.rank.rank && m->by == session.id;
  });
  if (at == mapped_.end() || (*at)->step != Mapped::Step::asked) {
    return Status(Code::damaged, "the prefill rank reports shared memory that was not asked for");
  }
  Mapped& known = **at;
  if (shared.code != Code::ok) {
    refused(known, Status(shared.code, "the prefill side shares no memory", shared.text));
    return {};
  }
  known.step = Mapped::Step::mapping;
  known.slots = shared.slots;
  known.slot_bytes = shared.slot_bytes;
  known.mover->map(shared.memory, shared.slots * shared.slot_bytes,
                   [self = std::weak_ptr<Receiver*>(self_), peer = known.peer, rank = known.rank,
                    mover = known.mover](Result<SharedMemory> memory) {
                     if (const auto alive = self.lock()) (*alive)->mapped(peer, rank, mover, std::move(memory));
                   });
  return {};
}

void Receiver::mapped(PeerId peer, uint16_t rank, const SliceMover* mover, Result<SharedMemory> memory) {
  Mapped* known = find_mapped(peer, rank, mover);
  if (known == nullptr) return;  // the connection has closed meanwhile
  if (!memory.ok()) return refused(*known, memory.status());
  ++stats_.maps;
  known->step = Mapped::Step::there;
  known->memory = std::move(memory).value();
}

void Receiver::refused(Mapped& known, const Status& why) {
  ++stats_.refused_maps;
  known.step = Mapped::Step::refused;
  if (options_.note) {
    options_.note("payloads from prefill rank " + std::to_string(known.rank) + " at \"" + known.name +
                  "\" come through host memory: " + why.message());
  }
}

// Requires a grain, with which every leaf is one run on both sides. Without one the CPU would have to hash memory
// that it cannot reach.
bool Receiver::may_share(const Session& session, const Slice& slice, const Extent& extent) {
  if (extent.grain == 0) return false;
  const SourceRank& rank = session.sources[slice.source].rank;
  const SliceMover* mover = target_of(session, extent).map.mover;
  if (mover == nullptr) return false;
  const Mapped* known = find_mapped(rank.peer, rank.rank, mover);
  return known != nullptr && known->step == Mapped::Step::there && slice.payload_bytes <= known->slot_bytes;
}

bool Receiver::place_shared(const Transfer& transfer, const SourceRank& rank, uint32_t place, const LocalPart& target,
                            SliceMove& move) {
  const Mapped* known = find_mapped(transfer.peer, rank.rank, target.map.mover);
  if (known == nullptr || known->step != Mapped::Step::there || place == 0 || place > known->slots) return false;
  move.payload = known->memory.data + (place - 1) * known->slot_bytes;
  move.shared = true;
  move.keep = known->memory.keep;
  return true;
}

void Receiver::release(const Transfer& transfer) {
  Session* session = transfer.is_shared ? find(transfer.session) : nullptr;
  if (session == nullptr) return;
  Source& source = session->sources[session->plan.slices()[transfer.slice].source];
  if (source.state == SourceState::gone || source.done) return;  // its slot is released already
  send(*session, source, Release{{transfer.name}});
}

}  // namespace kvbm::cluster::session
