// How a tier below the host becomes one that codes and seals.
#pragma once

#include <memory>

#include "manager/options.h"
#include "tier/tier.h"

namespace kvbm::manager {

class Manager;

// Disks and plug-ins keep records that leave this host's memory: they are coded and sealed as configured, and what an
// earlier configuration coded there is decoded. Other nodes are not: links code on their own (node.codec).
std::unique_ptr<tier::Tier> code_tier(Manager& manager, TierIndex index, const TierOptions& options,
                                      std::unique_ptr<tier::Tier> tier);

}  // namespace kvbm::manager
