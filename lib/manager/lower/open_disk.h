// Opens the disk tier of a manager's options.
#pragma once

#include <memory>

#include "manager/common/environment.h"
#include "manager/common/options.h"

namespace kvbm::manager {

// Blocks, and has the errors of DiskTier::open; unsupported in a build without disks (KVBM_WITH_DISK=OFF).
Result<std::unique_ptr<tier::Tier>> open_disk(const TierOptions& options, const Environment& env, FamilyTable& families,
                                              tier::TierListener* listener, TierIndex index);

}  // namespace kvbm::manager
