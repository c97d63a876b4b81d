// Eviction policies of a replay: those of the library, and published ones to compare them with. The latter were never
// the best on any trace (lib/policy/README.md), so no cache uses them.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "policy/eviction.h"

namespace kvbm::replay {

[[nodiscard]] std::unique_ptr<policy::EvictionPolicy> make_arc(std::span<policy::Facts> facts,
                                                               const policy::Residents& residents);
[[nodiscard]] std::unique_ptr<policy::EvictionPolicy> make_s3fifo(std::span<policy::Facts> facts,
                                                                  const policy::Residents& residents);
[[nodiscard]] std::unique_ptr<policy::EvictionPolicy> make_sieve(std::span<policy::Facts> facts,
                                                                 const policy::Residents& residents);

// The names of all policies, the library's first.
[[nodiscard]] std::span<const std::string_view> policy_names();
// Like policy::make_eviction_policy, of these names.
[[nodiscard]] std::unique_ptr<policy::EvictionPolicy> make_policy(std::string_view name, std::span<policy::Facts> facts,
                                                                  const policy::Residents& residents);

}  // namespace kvbm::replay
