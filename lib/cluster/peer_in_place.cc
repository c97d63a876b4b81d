#include "cluster/peer_in_place.h"

namespace kvbm::cluster {

namespace {
constexpr uint8_t kHostTier = 0;

copy::local::RecordPlace place_of(const tier::InPlace& what) noexcept { return {what.head, what.payload}; }
}  // namespace

bool PeerInPlace::find(const Identity& id, tier::InPlace& out) const {
  Place where;
  return commons_->options.pools != nullptr && commons_->places.locate(id, where) && find(where, out);
}

bool PeerInPlace::find(const Place& where, tier::InPlace& out) const {
  if (commons_->options.pools == nullptr || where.tier != kHostTier || where.hint == 0) return false;
  std::shared_ptr<const MappedPools::Pool> pool = commons_->options.pools->of(where.node);
  if (pool == nullptr) return false;
  const copy::local::RecordPlace place = pool->place(where.hint);
  if (place.head.empty()) return false;
  out = {place.head, place.payload, std::move(pool)};
  return true;
}

Code PeerInPlace::read(tier::GetItem& item, const tier::InPlace& what) const {
  std::optional<codec::HeadView> head;
  const Family family = commons_->families.get(item.id.family);
  const Code code = copy::local::read_head(place_of(what), family, item.id.key, item.head, head);
  if (code != Code::ok) return code;
  const uint64_t bytes = head->header().stored_bytes;
  if (bytes > item.payload.size()) return Code::mismatch;
  item.head_bytes = static_cast<uint32_t>(head->head_bytes());
  item.payload_bytes = bytes;
  return copy::local::fetch_record(place_of(what), *head, item.payload.first(bytes), codec::CopyHint::automatic);
}

void PeerInPlace::ended(const Identity& id, const tier::InPlace& what, Code code, uint64_t bytes) const {
  const auto pool = std::static_pointer_cast<const MappedPools::Pool>(what.memory);
  if (code == Code::ok) {
    pool->records.fetch_add(1, std::memory_order_relaxed);
    pool->bytes.fetch_add(bytes, std::memory_order_relaxed);
    return;
  }
  pool->stale.fetch_add(1, std::memory_order_relaxed);
  // No head yet: its owner makes one when it is first asked for the record.
  if (!copy::local::has_head(place_of(what))) return;
  Place where;
  if (!commons_->places.locate(id, where) || where.node != pool->node) return;
  if (pool->place(where.hint).head.data() == what.head.data()) commons_->places.forget_slot(id, where);
}

bool PeerInPlace::worth_asking(const Place& where) const {
  const bool placed = where.tier == kHostTier && where.hint != 0;
  return !placed && commons_->options.pools != nullptr && commons_->options.pools->of(where.node) != nullptr;
}

}  // namespace kvbm::cluster
