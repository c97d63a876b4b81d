#include "cluster/tier/peer_in_place.h"

namespace kvbm::cluster {

namespace {

copy::local::RecordPlace place_of(const tier::InPlace& what) noexcept { return {what.head, what.payload}; }

bool lies(const std::shared_ptr<const MappedPools::Pool>& pool, uint64_t hint, tier::InPlace& out) {
  if (pool == nullptr) return false;
  const copy::local::RecordPlace place = pool->place(hint);
  if (place.head.empty()) return false;
  out.head = place.head;
  out.payload = place.payload;
  out.memory = pool;
  return true;
}

}  // namespace

void PeerInPlace::find(std::span<tier::InPlace> items) const {
  if (context_->options.pools == nullptr) return;
  // Caches the last holder: most records of one find are of one node.
  uint64_t holder = 0;
  bool holds = false;
  std::shared_ptr<const Pool> pool;
  for (tier::InPlace& item : items) {
    if (const uint64_t next = PeerPlaces::holder_of(item.location); next != holder) {
      holder = next;
      NodeId node;
      holds = context_->places.node_of(item.location, node);
      pool = holds ? context_->options.pools->of(node) : nullptr;
    }
    Place where;
    if (holds) {
      lies(pool, PeerPlaces::hint_of(item.location), item);
    } else if (context_->places.locate(item.id, where)) {
      find(where, item);
    }
  }
}

bool PeerInPlace::find(const Place& where, tier::InPlace& out) const {
  if (context_->options.pools == nullptr || where.tier != kHostTier || where.hint == 0) return false;
  return lies(context_->options.pools->of(where.node), where.hint, out);
}

Code PeerInPlace::read(tier::GetItem& item, const tier::InPlace& what) const {
  std::optional<codec::HeadView> head;
  const Family family = context_->families.get(item.id.family);
  const Code code = copy::local::read_head(place_of(what), family, item.id.key, item.head, head);
  if (code != Code::ok) return code;
  const uint64_t bytes = head->header().stored_bytes;
  if (bytes > item.payload.size()) return Code::mismatch;
  item.head_bytes = static_cast<uint32_t>(head->head_bytes());
  item.payload_bytes = bytes;
  return copy::local::fetch_record(place_of(what), *head, item.payload.first(bytes), codec::CopyHint::automatic);
}

void PeerInPlace::ended(std::span<const tier::InPlace> items) const {
  for (size_t i = 0; i < items.size();) {
    const Pool& pool = *static_cast<const Pool*>(items[i].memory.get());
    uint64_t records = 0;
    uint64_t bytes = 0;
    for (; i < items.size() && items[i].memory.get() == &pool; ++i) {
      if (items[i].code == Code::ok) {
        ++records;
        bytes += items[i].bytes;
      } else {
        stale(items[i], pool);
      }
    }
    pool.records.fetch_add(records, std::memory_order_relaxed);
    pool.bytes.fetch_add(bytes, std::memory_order_relaxed);
  }
}

void PeerInPlace::stale(const tier::InPlace& item, const Pool& pool) const {
  pool.stale.fetch_add(1, std::memory_order_relaxed);
  // There is no head yet: the owner makes one when the record is first requested.
  if (!copy::local::has_head(place_of(item))) return;
  Place where;
  if (!context_->places.locate(item.id, where) || where.node != pool.node) return;
  if (pool.place(where.hint).head.data() == item.head.data()) context_->places.forget_slot(item.id, where);
}

bool PeerInPlace::worth_asking(const Place& where) const {
  const bool placed = where.tier == kHostTier && where.hint != 0;
  return !placed && context_->options.pools != nullptr && context_->options.pools->of(where.node) != nullptr;
}

}  // namespace kvbm::cluster
