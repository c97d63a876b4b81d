#include "manager/host/duplicate_resolver.h"

#include <optional>

#include "base/thread/memory_wait.h"
#include "manager/host/host_record.h"
#include "manager/host/host_tier.h"

namespace kvbm::manager {

bool DuplicateResolver::stands_in(SlotId there, size_t i) const noexcept {
  if (!takes_lossy_ && host_.has_lossy() && lies_lossy(host_, there)) return false;
  if (!knows_positions_) return true;
  if (positions_.empty() && !host_.has_positions()) return true;
  const std::optional<codec::Position> has = position_of(host_, there);
  return positions_.empty() ? !has.has_value() : has == positions_[i];
}

bool DuplicateResolver::doubt_what_is_below() const noexcept {
  return !positions_.empty() || (!takes_lossy_ && host_.has_lossy());
}

bool DuplicateResolver::gives_way(SlotId there, size_t i) noexcept {
  if (stands_in(there, i)) return false;
  const MemoryWait no_error_path;
  replaced_.push_back(i);
  if (are_callers() && !takes_lossy_ && lies_lossy(host_, there)) add(host_.counters().lossy_refused, 1);
  return true;
}

}  // namespace kvbm::manager
