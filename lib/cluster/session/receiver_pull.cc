// The data half of the decode side: chooses the next slice to request, and handles what arrives.
#include <algorithm>
#include <cstring>
#include <utility>

#include "cluster/session/receiver.h"

namespace kvbm::cluster::session {

// Returns the source with the lowest ready layer, among those with a connection that accepts messages.
Receiver::Source* Receiver::next_source(Session& session) {
  Source* best = nullptr;
  for (Source& s : session.sources) {
    if (s.ready.empty() || !outbox_.clear(s.rank.peer)) continue;
    if (best == nullptr || s.ready.top() < best->ready.top()) best = &s;
  }
  return best;
}

const LocalPart& Receiver::target_of(const Session& session, const Extent& extent) {
  return *std::find_if(session.request.targets.begin(), session.request.targets.end(),
                       [&](const auto& t) { return t.part.component == extent.component; });
}

uint32_t Receiver::grain_for(const Session& session, const Slice& slice) {
  const layout::ComponentGeometry& c = session.request.facts.components[slice.extent.component];
  const Source& source = session.sources[slice.source];
  uint32_t theirs = 0;
  for (size_t i = 0; i < source.parts.size(); ++i) {
    if (source.parts[i].component == slice.extent.component) theirs = source.grains[i];
  }
  for (const LocalPart& t : session.request.targets) {
    if (t.part.component != slice.extent.component) continue;
    if (t.map.mover == nullptr && (theirs & Accept::kOnDevice) == 0) return 0;
    Extent extent = slice.extent;
    extent.grain = common_grain(c, block_grain(c, t.map), theirs & ~Accept::kOnDevice);
    return SliceShape::fits_grain(c, extent) ? extent.grain : 0;
  }
  return 0;
}

// Pulls one slice. False: nothing to do, or no space for it now.
Result<bool> Receiver::pull_one(Session& session) {
  Source* source = next_source(session);
  if (source == nullptr) return false;
  const uint32_t index = source->ready.top();
  const Slice& slice = session.plan.slices()[index];
  Extent extent = slice.extent;
  extent.grain = grain_for(session, slice);
  const SliceShape shape(session.request.facts.components[extent.component], extent);
  const uint64_t front_bytes = slice_front_bytes(shape.leaf_count());
  const uint64_t bytes = front_bytes + slice.payload_bytes;
  const uint64_t taken = Staging::slot_bytes_for(staging_.slice_bytes());
  if (session.under_way > 0 && session.under_way + taken > session.request.budget_bytes) return false;
  const uint32_t slot = staging_.take();
  if (slot == Staging::kNone) return false;
  const uint64_t name = names_.next(slot);
  SliceState& state = session.slices[index];
  const uint64_t room = may_come_coded(*source) ? coded_slice_room(shape.leaf_count(), slice.payload_bytes) : 0;
  const Code code = link_.post(source->rank.peer, name, {staging_.data(slot), std::max(bytes, room)}, name);
  if (code != Code::ok) {
    staging_.give(slot);
    if (code == Code::again || code == Code::no_room) return false;
    return Status(Code::owner_gone, "a prefill rank cannot be reached any more", "\"" + source->rank.name + "\"");
  }
  source->ready.pop();
  const SliceCoder::Asked asked = ask_coded(session, *source, state, slice.payload_bytes);
  // A slice that was damaged once is pulled by the safe way.
  const bool shares = state.attempts == 0 && may_share(session, slice, extent);
  transfers_[slot] = {name, source->rank.peer, session.id, index, bytes, false, shares, front_bytes, false, asked};
  const bool direct = !shares && state.attempts == 0 && !asked.coding.any() &&
                      post_direct(session, *source, extent, slice.payload_bytes, transfers_[slot]);
  session.under_way += taken;
  state.step = SliceState::Step::pulling;
  state.grain = extent.grain;
  ++state.attempts;
  if (asked.coding.any()) source->batch.coding = asked.coding;
  const auto ways =
      static_cast<uint8_t>((shares ? kWayShared : 0) | (asked.coding.any() ? kWayCoded : 0) | (direct ? kWayApart : 0));
  source->batch.entries.push_back({name, index, extent, ways});
  if (source->batch.entries.size() == kMaxPullEntries) {
    send(session, *source, std::exchange(source->batch, {}));
  }
  return true;
}

void Receiver::pump() {
  std::set<SessionId> asked;
  std::vector<std::pair<SessionId, Status>> failed;
  // Sessions take turns, starting behind the one that was served last, until none gets anything.
  for (bool any = true; any && failed.empty();) {
    any = false;
    auto it = wanting_.upper_bound(last_served_);
    for (size_t n = wanting_.size(); n > 0 && staging_.free() > 0; --n) {
      if (it == wanting_.end()) it = wanting_.begin();
      const SessionId id = *it++;
      Session& session = *find(id);
      auto pulled = pull_one(session);
      if (!pulled.ok()) {
        failed.emplace_back(id, pulled.status());
        continue;
      }
      if (!pulled.value()) continue;
      last_served_ = id;
      any = true;
      asked.insert(id);
      const bool more =
          std::any_of(session.sources.begin(), session.sources.end(), [](const Source& s) { return !s.ready.empty(); });
      if (!more) wanting_.erase(id);
    }
  }
  for (const SessionId id : asked) {
    Session& session = *find(id);
    for (Source& s : session.sources) {
      if (s.batch.entries.empty()) continue;
      send(session, s, std::exchange(s.batch, {}));
    }
  }
  for (const auto& [id, status] : failed) end(id, status);
}

void Receiver::free_slot(uint32_t slot) {
  Transfer& transfer = transfers_[slot];
  if (options_.coder != nullptr) {
    using Came = SliceCoder::Came;
    const Came how = !transfer.right ? Came::no : transfer.coded ? Came::coded : Came::plain;
    options_.coder->ended(transfer.asked, how);
  }
  direct_.give(transfer.direct);
  transfer = {};
  staging_.give(slot);
}

void Receiver::on_received(uint64_t token, Code status, uint64_t bytes) {
  const uint32_t slot = TransferNames::slot_of(token);
  if (!names_.mine(token) || slot >= transfers_.size()) return;
  Transfer& transfer = transfers_[slot];
  if (transfer.name != TransferNames::whole_of(token) || transfer.moving) return;
  if (transfer.direct.taken() && !both_ended(transfer, token, status, bytes)) return;
  transfer.is_shared = transfer.may_share && bytes != transfer.bytes && !is_coded_slice(staging_.data(slot), bytes);
  Session* session = find(transfer.session);
  bool moving = false;
  if (session == nullptr) {
    ++stats_.late_slices;
  } else if (session->sources[session->plan.slices()[transfer.slice].source].state == SourceState::gone) {
    session->under_way -= Staging::slot_bytes_for(staging_.slice_bytes());  // on_closed ended, or ends, the session
  } else {
    bool right = status == Code::ok;
    if (right && begin_decoding(*session, slot, bytes, &right)) return pump();
    right = right && bytes == (transfer.is_shared || transfer.is_direct ? transfer.front_bytes : transfer.bytes) &&
            landed(*session, transfer, slot, &moving);
    return after_landing(slot, status, right, moving);
  }
  free_slot(slot);
  pump();
}

void Receiver::after_landing(uint32_t slot, Code status, bool right, bool moving) {
  if (!moving) {
    const Transfer transfer = transfers_[slot];
    Session& session = *find(transfer.session);
    session.under_way -= Staging::slot_bytes_for(staging_.slice_bytes());
    const Status ended = settled(session, transfer, status, right);
    release(transfer);
    if (!ended.ok()) end(transfer.session, ended);
    if (ended.ok() && session.layers_left == 0) end(transfer.session, {});
    free_slot(slot);
  }
  pump();
}

bool Receiver::landed(Session& session, const Transfer& transfer, uint32_t slot, bool* moving) {
  const Slice& slice = session.plan.slices()[transfer.slice];
  const Facts& facts = session.request.facts;
  SliceInSlot want = slice_in(session, transfer, slot);
  std::byte* const front = want.slot;
  std::byte* const payload = front + slice_front_bytes(want.head.leaves);
  const uint32_t place = transfer.is_shared ? slice_place(front) : transfer.is_direct ? kPlaceApart : 0;
  want.head.place = place;
  if (!check_slice_front(want.head, front)) return false;
  const Extent& extent = want.head.extent;
  const LocalPart& target = target_of(session, slice.extent);
  if (target.map.mover != nullptr) {
    auto move = slice_move(facts, target, extent, payload);
    if (transfer.is_shared && !place_shared(transfer, session.sources[slice.source].rank, place, target, *move)) {
      return false;
    }
    if (transfer.is_direct) direct_.place(transfer.direct, *move);
    std::memcpy(move->hashes.data(), slice_hashes(front), move->hashes.size() * sizeof(uint64_t));
    *moving = transfers_[slot].moving = true;
    ++session.moving;
    ++session.sources[slice.source].moving;
    target.map.mover->scatter(std::move(move), [self = std::weak_ptr<Receiver*>(self_), name = transfer.name](
                                                   const SliceMove&, const Status& status) {
      if (const auto alive = self.lock()) (*alive)->moved(name, status);
    });
    return true;
  }
  const std::span<uint64_t> hashes = std::span(hashes_).first(want.head.leaves);
  std::memcpy(hashes.data(), slice_hashes(front), hashes.size_bytes());
  return copy_.scatter(facts, target, extent, payload, hashes) == want.head.leaves;
}

void Receiver::moved(uint64_t name, const Status& status) {
  const uint32_t slot = TransferNames::slot_of(name);
  const Transfer transfer = transfers_[slot];
  judge_direct(transfer, status);
  if (Session* session = find(transfer.session); session != nullptr) {
    session->under_way -= Staging::slot_bytes_for(staging_.slice_bytes());
    --session->moving;
    --session->sources[session->plan.slices()[transfer.slice].source].moving;
    // Damage may be in the slice; any other error of a mover would repeat for the next one.
    const bool fatal = !status.ok() && status.code() != Code::damaged;
    const Status ended = fatal ? status : settled(*session, transfer, Code::ok, status.ok());
    release(transfer);
    if (!ended.ok()) end(transfer.session, ended);
    if (ended.ok() && session->layers_left == 0) end(transfer.session, {});
  } else if (const auto ending = ending_.find(transfer.session); --ending->second.moving == 0) {
    events_.push_back(std::move(ending->second.event));
    ending_.erase(ending);
  }
  free_slot(slot);
  pump();
  if (options_.moved) options_.moved();
}

Status Receiver::settled(Session& session, const Transfer& transfer, Code code, bool right) {
  const Slice& slice = session.plan.slices()[transfer.slice];
  Source& source = session.sources[slice.source];
  if (code == Code::ok && !right) ++stats_.damaged_slices;
  if (right) {
    transfers_[TransferNames::slot_of(transfer.name)].right = !transfer.is_shared;
    stats_.coded_slices += transfer.coded ? 1 : 0;
    in_place(session, transfer.slice);
    if (transfer.is_shared) ++stats_.shared_slices, stats_.shared_bytes += slice.payload_bytes;
    if (transfer.is_direct) ++stats_.direct_slices, stats_.direct_bytes += slice.payload_bytes;
    return {};
  }
  SliceState& state = session.slices[transfer.slice];
  if (source.state == SourceState::gone || (code == Code::closed && state.attempts >= options_.attempts)) {
    return Status(Code::owner_gone, "the connection to a prefill rank is gone, and a slice arrived damaged",
                  source.rank.name);
  }
  if (state.attempts >= options_.attempts) {
    return Status(code == Code::ok ? Code::damaged : code, "a slice did not arrive undamaged",
                  "layer " + std::to_string(slice.extent.layer) + " from \"" + source.rank.name + "\", " +
                      std::to_string(state.attempts) + " attempts");
  }
  state.step = SliceState::Step::ready;
  source.ready.push(transfer.slice);
  wanting_.insert(session.id);
  return {};
}

void Receiver::in_place(Session& session, uint32_t index) {
  const Slice& slice = session.plan.slices()[index];
  session.slices[index].step = SliceState::Step::done;
  --session.sources[slice.source].left;
  done_if_all(session, session.sources[slice.source]);
  ++stats_.slices;
  stats_.bytes += slice.payload_bytes;
  const size_t layer = session.plan.find_layer(slice.extent.component, slice.extent.layer);
  if (--session.layer_left[layer] > 0) return;
  --session.layers_left;
  ReceiverEvent event;
  event.kind = ReceiverEvent::Kind::layer_ready;
  event.session = session.id;
  event.request = session.request.request;
  event.component = slice.extent.component;
  event.layer = slice.extent.layer;
  events_.push_back(std::move(event));
}

}  // namespace kvbm::cluster::session
