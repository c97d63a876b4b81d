// An eviction policy made of a caller's C table (kvbm_policy_table_t), checked at every call.
#pragma once

#include <memory>
#include <span>

#include "base/status.h"
#include "kvbm.h"
#include "policy/eviction.h"

namespace kvbm::capi {

// Returns the maker of policies over the table. unsupported if the table lacks a function.
Result<policy::MakePolicy> plugin_policy(const kvbm_policy_table_t& table, void* user);
std::unique_ptr<policy::EvictionPolicy> make_plugin_policy(const kvbm_policy_table_t& table, void* user,
                                                           std::span<policy::Facts> facts,
                                                           const policy::Residents& residents);

}  // namespace kvbm::capi
