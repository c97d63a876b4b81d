#include "base/family_table.h"

namespace kvbm {

Result<FamilyId> FamilyTable::intern(const Family& family) {
  MutexLock lock(mutex_);
  if (const auto known = ids_.find(family); known != ids_.end()) return known->second;
  const uint32_t id = count_.load(std::memory_order_relaxed);
  if (id == kMaxFamilies) return Status(Code::no_room, "65536 families of blocks are the most one manager knows");
  auto& chunk = chunks_[id / kChunk];
  if (chunk == nullptr) chunk = std::make_unique<std::array<Family, kChunk>>();
  (*chunk)[id % kChunk] = family;
  ids_.emplace(family, id);
  count_.store(id + 1, std::memory_order_release);
  return id;
}

std::optional<FamilyId> FamilyTable::find(const Family& family) const {
  MutexLock lock(mutex_);
  const auto known = ids_.find(family);
  if (known == ids_.end()) return std::nullopt;
  return known->second;
}

const Family* FamilyTable::get(FamilyId id) const noexcept {
  if (id >= size()) return nullptr;
  return &(*chunks_[id / kChunk])[id % kChunk];
}

}  // namespace kvbm
