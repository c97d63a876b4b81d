#include "base/family_table.h"

namespace kvbm {

FamilyTable::FamilyTable() = default;

Result<FamilyId> FamilyTable::intern(const Family& family) {
  MutexLock lock(mutex_);
  const auto it = ids_.find(family);
  if (it != ids_.end()) return it->second;
  const uint32_t id = size_.load(std::memory_order_relaxed);
  if (id >= kMaxFamilies) return Status(Code::no_room, "65,536 namespace, component and shard combinations are in use");
  auto& page = pages_[id / kPage];
  if (page == nullptr) page = std::make_unique<Family[]>(kPage);
  page[id % kPage] = family;
  ids_.emplace(family, id);
  size_.store(id + 1, std::memory_order_release);
  return id;
}

bool FamilyTable::find(const Family& family, FamilyId& out) const {
  MutexLock lock(mutex_);
  const auto it = ids_.find(family);
  if (it == ids_.end()) return false;
  out = it->second;
  return true;
}

const Family& FamilyTable::get(FamilyId id) const noexcept { return pages_[id / kPage][id % kPage]; }

}  // namespace kvbm
