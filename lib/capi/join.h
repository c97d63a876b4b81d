// Connects a new manager with other processes: makes its node, and its share of a tier set.
#pragma once

#include "base/status.h"
#include "capi/handles.h"
#include "manager/common/environment.h"
#include "manager/common/options.h"

namespace kvbm::capi {

// Makes the share and the node that the options ask for, with their tiers in `options`. They are started once there is
// a manager.
Status join(const manager::Environment& environment, manager::Options& options, Tenancy& out);

}  // namespace kvbm::capi
