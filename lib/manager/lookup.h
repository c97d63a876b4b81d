// Finding blocks in all tiers, from memory alone.
#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "manager/match.h"

namespace kvbm::manager {

struct LookupRequest {
  LookupMode mode = LookupMode::prefix;
  bool host_only = false;
  bool no_use = false;  // the policies do not hear of it
};

// A match with at least one hit, or null. Budget: one reference per hit, no lock, a handful of
// allocations per call.
std::shared_ptr<Match> look_up(const std::shared_ptr<Manager>& manager, const std::shared_ptr<Namespace>& ns,
                               std::span<const PartPlan> parts, std::span<const Key> keys, const LookupRequest& request);

}  // namespace kvbm::manager
