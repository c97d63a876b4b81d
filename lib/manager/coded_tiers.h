// How a tier below the host becomes one that codes and seals.
#pragma once

#include <memory>

#include "manager/options.h"
#include "tier/tier.h"

namespace kvbm::manager {

class Manager;

// A tier that records leave this host's memory for, to lie there until they are read: a disk or a plug-in.
[[nodiscard]] bool is_storage(const tier::Tier& tier) noexcept;

// Disks and plug-ins keep records that leave this host's memory: they are coded and sealed as configured, and what an
// earlier configuration coded there is decoded. Other nodes are not: links code on their own (node.codec).
std::unique_ptr<tier::Tier> code_tier(Manager& manager, TierIndex index, const TierOptions& options,
                                      std::unique_ptr<tier::Tier> tier);

}  // namespace kvbm::manager
