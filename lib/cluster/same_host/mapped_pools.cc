#include "cluster/same_host/mapped_pools.h"

#include <utility>

namespace kvbm::cluster {

copy::local::RecordPlace MappedPools::Pool::place(uint64_t location) const noexcept {
  if (location == 0 || location > memory->shape().slots) return {};
  return copy::local::place_of(*memory, static_cast<SlotId>(location - 1));
}

void MappedPools::set(const NodeId& node, uint64_t incarnation, std::shared_ptr<const copy::local::RemotePool> memory) {
  auto pool = std::make_shared<Pool>();
  pool->memory = std::move(memory);
  pool->node = node;
  pool->incarnation = incarnation;
  std::shared_ptr<const Pool> former;  // declared before the lock: unmapped, if at all, after its release
  MutexLock lock(mutex_);
  former = std::exchange(pools_[node], std::move(pool));
  if (former != nullptr) former_bytes_ += former->bytes.load(std::memory_order_relaxed);
}

bool MappedPools::drop(const NodeId& node, uint64_t pool_id) {
  std::shared_ptr<const Pool> former;
  MutexLock lock(mutex_);
  const auto known = pools_.find(node);
  if (known == pools_.end() || known->second->memory->id() != pool_id) return false;
  former = std::move(known->second);
  former_bytes_ += former->bytes.load(std::memory_order_relaxed);
  pools_.erase(known);
  return true;
}

uint64_t MappedPools::bytes() const {
  MutexLock lock(mutex_);
  uint64_t sum = former_bytes_;
  for (const auto& [node, pool] : pools_) sum += pool->bytes.load(std::memory_order_relaxed);
  return sum;
}

bool MappedPools::empty() const {
  MutexLock lock(mutex_);
  return pools_.empty();
}

std::shared_ptr<const MappedPools::Pool> MappedPools::of(const NodeId& node) const {
  MutexLock lock(mutex_);
  const auto known = pools_.find(node);
  return known == pools_.end() ? nullptr : known->second;
}

}  // namespace kvbm::cluster
