#include "cluster/placement/locations.h"

#include <algorithm>

namespace kvbm::cluster {
namespace {

__extension__ using Wide = unsigned __int128;
constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kPayloadMask = (uint64_t{1} << 56) - 1;

// Compares two words of each key: an array's own comparison is a call of memcmp, sixteen of them a lookup.
bool same(const Key& a, const Key& b) noexcept { return a.low() == b.low() && a.high() == b.high(); }

}  // namespace

Locations::Locations(uint64_t memory_bytes)
    : buckets_(std::max<size_t>(1, memory_bytes / (kWays * kEntryBytes))), entries_(buckets_ * kWays) {}

Result<NodeIndex> Locations::set_node(const NodeId& id, uint64_t incarnation) {
  if (const auto known = by_id_.find(id); known != by_id_.end()) {
    Node& node = nodes_[known->second];
    if (node.incarnation != incarnation) raise(node);
    node.incarnation = incarnation;
    return known->second;
  }
  if (free_.empty() && nodes_.size() == kNoNode) return Status(Code::at_limit, "locations: more than 65,534 nodes");
  if (free_.empty()) {
    free_.push_back(static_cast<NodeIndex>(nodes_.size()));
    nodes_.emplace_back();
  }
  const NodeIndex index = free_.back();
  free_.pop_back();
  Node& node = nodes_[index];
  node.id = id;
  node.incarnation = incarnation;
  node.used = true;
  by_id_[id] = index;
  return index;
}

void Locations::drop_node(const NodeId& id) {
  const auto known = by_id_.find(id);
  if (known == by_id_.end()) return;
  Node& node = nodes_[known->second];
  raise(node);
  node.used = false;
  free_.push_back(known->second);
  by_id_.erase(known);
}

NodeIndex Locations::node(const NodeId& id) const {
  const auto known = by_id_.find(id);
  return known == by_id_.end() ? kNoNode : known->second;
}

// Raises the generation; never to 0, which marks an empty entry.
void Locations::raise(Node& node) noexcept {
  node.generation = static_cast<uint16_t>(node.generation + 1);
  if (node.generation == 0) node.generation = 1;
}

std::array<std::span<Locations::Entry>, 2> Locations::buckets(const Identity& id) noexcept {
  const auto of = [this](uint64_t hash) {
    const auto index = static_cast<size_t>((static_cast<Wide>(hash) * buckets_) >> 64);
    return entries_.all().subspan(index * kWays, kWays);
  };
  const uint64_t hash = (id.key.high() ^ id.family) * 0x9E3779B97F4A7C15ULL;
  const auto first = of(hash);
  const auto second = of((id.key.low() ^ id.family) * 0xD6E8FEB86659FD93ULL);
  // If both hashes give the same bucket, its entries must not be seen twice.
  return {first, first.data() == second.data() ? second.first(0) : second};
}

uint64_t Locations::age_ns(const Entry& entry, uint64_t now_ns) const noexcept {
  return uint64_t{static_cast<uint32_t>(now_ns / kMs) - entry.stamp} * kMs;
}

bool Locations::valid(const Entry& entry, uint64_t now_ns) const noexcept {
  if (entry.generation == 0) return false;
  return nodes_[entry.node].generation == entry.generation && age_ns(entry, now_ns) < kKeepNs;
}

// Returns the entry of this identity and node, or the one that it replaces.
Locations::Entry& Locations::place(const Identity& id, NodeIndex node, uint64_t now_ns) noexcept {
  Entry* best = nullptr;
  uint64_t best_age = 0;
  size_t best_free = 0;
  for (const std::span<Entry> bucket : buckets(id)) {
    Entry* oldest = nullptr;
    uint64_t oldest_age = 0;
    size_t free = 0;
    for (Entry& entry : bucket) {
      const bool of_it = entry.generation != 0 && entry.family == id.family && same(entry.key, id.key);
      if (of_it && entry.node == node) entry.generation = 0;
      const uint64_t age = valid(entry, now_ns) ? age_ns(entry, now_ns) : kNever;
      if (age == kNever) ++free;
      if (oldest != nullptr && age <= oldest_age) continue;
      oldest = &entry;
      oldest_age = age;
    }
    // Takes the emptier bucket; of two full ones the one with the oldest entry.
    if (oldest == nullptr || (best != nullptr && (free < best_free || (free == best_free && oldest_age <= best_age)))) {
      continue;
    }
    best = oldest;
    best_age = oldest_age;
    best_free = free;
  }
  best->key = id.key;
  best->family = id.family;
  best->node = node;
  best->stamp = static_cast<uint32_t>(now_ns / kMs);
  return *best;
}

void Locations::put(const Identity& id, const Location& where, uint64_t now_ns) {
  if (where.node >= nodes_.size() || !nodes_[where.node].used) return;
  Entry& entry = place(id, where.node, now_ns);
  entry.hint = where.hint;
  entry.tier_and_payload = (uint64_t{where.tier} << 56) | (where.payload_bytes & kPayloadMask);
  entry.head_bytes = where.head_bytes;
  entry.generation = nodes_[where.node].generation;
}

void Locations::forget(const Identity& id, NodeIndex node) {
  for (const std::span<Entry> bucket : buckets(id)) {
    for (Entry& entry : bucket) {
      if (entry.family == id.family && entry.node == node && same(entry.key, id.key)) entry.generation = 0;
    }
  }
}

// Inserts into a short list, youngest first; the oldest is dropped.
void Locations::insert(const Location& found, std::span<Location> out, size_t& n) noexcept {
  size_t at = n < out.size() ? n++ : n;
  while (at > 0 && out[at - 1].age_ns > found.age_ns) {
    if (at < out.size()) out[at] = out[at - 1];
    --at;
  }
  if (at < out.size()) out[at] = found;
}

size_t Locations::find(const Identity& id, uint64_t now_ns, std::span<Location> out) const {
  size_t n = 0;
  for (const std::span<Entry> bucket : const_cast<Locations*>(this)->buckets(id)) {
    for (const Entry& entry : bucket) {
      if (entry.family != id.family || !same(entry.key, id.key) || !valid(entry, now_ns)) continue;
      insert({entry.node, static_cast<uint8_t>(entry.tier_and_payload >> 56), entry.head_bytes,
              entry.tier_and_payload & kPayloadMask, entry.hint, age_ns(entry, now_ns)},
             out, n);
    }
  }
  return n;
}

}  // namespace kvbm::cluster
