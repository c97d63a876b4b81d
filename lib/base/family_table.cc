#include "base/family_table.h"

namespace kvbm {

FamilyTable::FamilyTable() = default;

Result<FamilyId> FamilyTable::add(const Family& family, bool foreign) {
  const auto it = ids_.find(family);
  if (it != ids_.end()) {
    if (!foreign && is_foreign_[it->second]) {
      is_foreign_[it->second] = false;
      foreign_.fetch_sub(1, std::memory_order_relaxed);
    }
    return it->second;
  }
  const uint32_t id = size_.load(std::memory_order_relaxed);
  if (foreign && foreign_.load(std::memory_order_relaxed) >= kForeignFamilies) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    return Status(Code::no_room, "other nodes have named 16,384 namespace, component and shard combinations");
  }
  if (id >= kMaxFamilies) return Status(Code::no_room, "65,536 namespace, component and shard combinations are in use");
  auto& page = pages_[id / kPage];
  if (page == nullptr) page = std::make_unique<Family[]>(kPage);
  page[id % kPage] = family;
  ids_.emplace(family, id);
  is_foreign_[id] = foreign;
  if (foreign) foreign_.fetch_add(1, std::memory_order_relaxed);
  size_.store(id + 1, std::memory_order_release);
  return id;
}

Result<FamilyId> FamilyTable::intern(const Family& family) {
  MutexLock lock(mutex_);
  return add(family, false);
}

Result<FamilyId> FamilyTable::intern(const Family& family, const NamespaceId& base) {
  MutexLock lock(mutex_);
  auto id = add(family, false);
  if (id.ok()) bases_[id.value()] = base;
  return id;
}

Result<FamilyId> FamilyTable::intern_foreign(const Family& family) {
  MutexLock lock(mutex_);
  return add(family, true);
}

bool FamilyTable::find(const Family& family, FamilyId& out) const {
  MutexLock lock(mutex_);
  const auto it = ids_.find(family);
  if (it == ids_.end()) return false;
  out = it->second;
  return true;
}

bool FamilyTable::base_of(FamilyId id, NamespaceId& out) const {
  MutexLock lock(mutex_);
  const auto known = bases_.find(id);
  if (known == bases_.end()) return false;
  out = known->second;
  return true;
}

const Family& FamilyTable::get(FamilyId id) const noexcept { return pages_[id / kPage][id % kPage]; }

}  // namespace kvbm
