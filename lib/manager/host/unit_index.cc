#include "manager/host/unit_index.h"

#include <algorithm>

namespace kvbm::manager {

void UnitIndex::forget(uint32_t at) {
  const Stored& old = ring_[at];
  for (const Key& unit : old.units) {
    const auto place = places_.find({unit, old.id.family});
    if (place != places_.end() && place->second.stored == at) places_.erase(place);
  }
  units_ -= old.units.size();
}

void UnitIndex::add(FamilyId family, const Key& stored, std::span<const Key> units) {
  if (capacity_ == 0 || units.size() < 2) return;
  MutexLock lock(mutex_);
  // Stored again: the known entry stays valid.
  const auto known = places_.find({units.back(), family});
  if (known != places_.end() && ring_[known->second.stored].id.key == stored) return;
  const auto at = static_cast<uint32_t>(next_);
  if (ring_.size() < capacity_) {
    ring_.emplace_back();
  } else {
    forget(at);
  }
  next_ = (next_ + 1) % capacity_;
  ring_[at].id = {stored, family};
  ring_[at].units.assign(units.begin(), units.end());
  units_ += units.size();
  for (uint32_t u = 0; u < units.size(); ++u) places_[{units[u], family}] = Place{at, u};
}

UnitIndex::Found UnitIndex::find(FamilyId family, std::span<const Key> units, uint32_t below) const {
  MutexLock lock(mutex_);
  for (size_t n = std::min<size_t>(units.size(), below); n != 0; --n) {
    const auto place = places_.find({units[n - 1], family});
    if (place == places_.end() || place->second.unit != n - 1) continue;
    const Stored& stored = ring_[place->second.stored];
    // A key determines the blocks before it only if keys are chained.
    if (std::equal(units.begin(), units.begin() + static_cast<ptrdiff_t>(n), stored.units.begin())) {
      return {stored.id.key, static_cast<uint32_t>(n)};
    }
  }
  return {};
}

uint64_t UnitIndex::bytes() const {
  MutexLock lock(mutex_);
  constexpr uint64_t kMapEntry = sizeof(Identity) + sizeof(Place) + 3 * sizeof(void*);
  return ring_.size() * sizeof(Stored) + units_ * (sizeof(Key) + kMapEntry);
}

}  // namespace kvbm::manager
