// An eviction policy made of a caller's C table (kvbm_policy_table_t), checked at every call.
#pragma once

#include <memory>
#include <span>

#include "kvbm.h"
#include "policy/eviction.h"

namespace kvbm::capi {

std::unique_ptr<policy::EvictionPolicy> make_plugin_policy(const kvbm_policy_table_t& table, void* user,
                                                           std::span<policy::Facts> facts,
                                                           const policy::Residents& residents);
// Returns true if the table has every function.
bool policy_table_complete(const kvbm_policy_table_t& table) noexcept;

}  // namespace kvbm::capi
