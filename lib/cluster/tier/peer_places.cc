#include "cluster/tier/peer_places.h"

#include "codec/record/record.h"

namespace kvbm::cluster {

namespace {

uint64_t location_of(const PeerPlaces::Place& place, uint16_t forgets) noexcept {
  const bool in_place = place.tier == kHostTier && place.hint <= UINT32_MAX;
  return uint64_t{place.index} << 48 | uint64_t{forgets} << 32 | (in_place ? place.hint : 0);
}

}  // namespace

void PeerPlaces::find(std::span<const Identity> ids, std::span<tier::Found> out) noexcept {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < ids.size(); ++i) {
    out[i] = {};
    Place known;
    if (!place_of(ids[i], known)) continue;
    out[i].present = true;
    out[i].head_bytes = known.head_bytes;
    out[i].payload_bytes = known.payload_bytes;
    out[i].location = location_of(known, forgets_);
  }
}

bool PeerPlaces::node_of(uint64_t location, NodeId& out) const {
  MutexLock lock(mutex_);
  if (static_cast<uint16_t>(location >> 32) != forgets_) return false;
  out = locations_.node_id(static_cast<NodeIndex>(location >> 48));
  return true;
}

bool PeerPlaces::locate(const Identity& id, Place& out) {
  MutexLock lock(mutex_);
  return place_of(id, out);
}

bool PeerPlaces::place_of(const Identity& id, Place& out) const {
  const uint64_t now = clock_.now_ns();
  Location held;
  if (locations_.find(id, now, {&held, 1}) == 0) return false;
  const auto forgotten = forgotten_.find(id.family);
  if (forgotten != forgotten_.end() && now - held.age_ns <= forgotten->second) return false;
  out = {locations_.node_id(held.node), held.node, held.head_bytes, held.payload_bytes, held.hint, held.tier};
  return true;
}

void PeerPlaces::learn(const NodeFacts& node, std::span<const Offered> offered) {
  MutexLock lock(mutex_);
  for (const Offered& one : offered) {
    put_place(node, one.id, 0, one.head_bytes, one.payload_bytes, one.location);
  }
}

void PeerPlaces::learn(const NodeFacts& node, const FindBatch& answer) {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < answer.ids.size(); ++i) {
    if (answer.status[i] != Code::ok || answer.found[i].present == 0) continue;
    const wire::FoundItem& item = answer.found[i];
    put_place(node, answer.ids[i], item.tier, item.head_bytes, item.payload_bytes, item.location);
  }
}

void PeerPlaces::learn(const NodeFacts& node, const Identity& id, const wire::FoundItem& found) {
  MutexLock lock(mutex_);
  put_place(node, id, found.tier, found.head_bytes, found.payload_bytes, found.location);
}

void PeerPlaces::put_place(const NodeFacts& node, const Identity& id, uint8_t tier, uint32_t head_bytes,
                           uint64_t payload_bytes, uint64_t hint) {
  const auto index = locations_.set_node(node.node, node.incarnation);
  // No record is as large: a node that reports such sizes must not be read from.
  const bool possible = payload_bytes <= codec::kMaxRecordBytes &&
                        head_bytes <= codec::head_bytes(codec::kMaxLeaves, codec::kMaxAttributeBytes);
  if (!index.ok() || payload_bytes == 0 || !possible) return;
  locations_.put(id, {index.value(), tier, head_bytes, payload_bytes, hint, 0}, clock_.now_ns());
}

void PeerPlaces::forget(std::span<const Identity> ids) {
  MutexLock lock(mutex_);
  for (const Identity& id : ids) forget_all(id);
}

void PeerPlaces::raise_forgets() {
  if (++forgets_ == 0) forgets_ = 1;
}

void PeerPlaces::forget_all(const Identity& id) {
  raise_forgets();
  Place held;
  for (size_t tries = 0; tries < Locations::kHolders && place_of(id, held); ++tries) locations_.forget(id, held.index);
}

void PeerPlaces::forget_holder(const Identity& id, NodeIndex node) {
  MutexLock lock(mutex_);
  locations_.forget(id, node);
}

void PeerPlaces::forget_slot(const Identity& id, const Place& where) {
  MutexLock lock(mutex_);
  Place now;
  if (!place_of(id, now) || now.index != where.index || now.hint != where.hint) return;
  locations_.put(id, {now.index, now.tier, now.head_bytes, now.payload_bytes, 0, 0}, clock_.now_ns());
}

void PeerPlaces::forget_node(const NodeId& node) {
  MutexLock lock(mutex_);
  locations_.drop_node(node);
  raise_forgets();
}

void PeerPlaces::forget_family(FamilyId family) {
  MutexLock lock(mutex_);
  forgotten_[family] = clock_.now_ns();
  raise_forgets();
}

void PeerPlaces::forget_families(std::span<const FamilyId> gone) {
  MutexLock lock(mutex_);
  for (const FamilyId family : gone) forgotten_.erase(family);
}

void PeerPlaces::reject(const Identity& id) {
  MutexLock lock(mutex_);
  forget_all(id);
  ++stats_.damaged;
}

tier::TierStats PeerPlaces::stats() const {
  MutexLock lock(mutex_);
  tier::TierStats out = stats_;
  out.index_bytes = locations_.bytes();
  return out;
}

size_t PeerPlaces::forgotten_families() const {
  MutexLock lock(mutex_);
  return forgotten_.size();
}

void PeerPlaces::count_miss() {
  MutexLock lock(mutex_);
  ++stats_.misses;
}

void PeerPlaces::count_get(Code code, uint64_t bytes) {
  MutexLock lock(mutex_);
  count(code, bytes);
}

void PeerPlaces::count_gets(std::span<const tier::InPlace> ended) {
  MutexLock lock(mutex_);
  for (const tier::InPlace& one : ended) count(one.code, one.bytes);
}

void PeerPlaces::count(Code code, uint64_t bytes) {
  ++stats_.gets;
  if (code == Code::ok) stats_.get_bytes += bytes;
  if (code == Code::miss) ++stats_.misses;
  if (code != Code::ok && code != Code::miss) ++stats_.get_errors;
}

void PeerPlaces::count_put(uint64_t bytes) {
  MutexLock lock(mutex_);
  ++stats_.puts;
  stats_.put_bytes += bytes;
}

void PeerPlaces::count_put_errors(uint64_t n) {
  MutexLock lock(mutex_);
  stats_.put_errors += n;
}

}  // namespace kvbm::cluster
