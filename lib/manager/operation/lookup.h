// Finds blocks in all tiers, from memory alone.
#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "manager/operation/match.h"

namespace kvbm::manager {

struct LookupRequest {
  LookupMode mode = LookupMode::prefix;
  bool host_only = false;
  bool no_use = false;     // does not count as a use for the eviction policies
  bool uncounted = false;  // not a caller's lookup: left out of the statistics
  // Keys of the prompt's engine blocks from its start. Behind the whole stored blocks, a stored block that begins
  // with the next of these keys is found too. Empty: only whole stored blocks.
  std::span<const Key> unit_keys;
  uint32_t units = 1;  // engine blocks of a stored block
};

// Returns a match with at least one hit or leading unit, or null. Budget: one reference per hit, no lock, a handful
// of allocations per call.
std::shared_ptr<Match> look_up(const std::shared_ptr<TierStack>& stack, const std::shared_ptr<Namespace>& ns,
                               std::span<const PartPlan> parts, std::span<const Key> keys,
                               const LookupRequest& request);

}  // namespace kvbm::manager
