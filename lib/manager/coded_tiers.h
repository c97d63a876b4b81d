// Wraps tiers below the host in a coded tier, which compresses and seals records.
#pragma once

#include <memory>

#include "manager/options.h"
#include "tier/tier.h"

namespace kvbm::manager {

class Manager;

// Returns true for a disk or a plug-in: a tier that stores records outside this host's memory until they are read.
[[nodiscard]] bool is_storage(const tier::Tier& tier) noexcept;

// Wraps disks and plug-ins: their records leave this host's memory, so they are coded and sealed as configured, and
// records that an earlier configuration coded are decoded. Peers are not wrapped: links code on their own
// (node.codec).
std::unique_ptr<tier::Tier> code_tier(Manager& manager, TierIndex index, const TierOptions& options,
                                      std::unique_ptr<tier::Tier> tier);

}  // namespace kvbm::manager
