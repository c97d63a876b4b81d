// Wraps tiers below the host in a coded tier, which compresses and seals records.
#pragma once

#include <memory>

#include "copy/cost.h"
#include "manager/common/environment.h"
#include "manager/common/options.h"
#include "tier/tier.h"

namespace kvbm::manager {

class CodingTerms;

struct CodedTierParts {
  const Environment& env;
  std::shared_ptr<const codec::KeyRing> seal_keys;  // null: nothing is sealed
  std::shared_ptr<CodingTerms> terms;
  uint64_t block_bytes = 0;
  copy::SourceCost& link_cost;  // outlives the tier
};

// Returns true for a disk or a plug-in: a tier that stores records outside this host's memory until they are read.
[[nodiscard]] bool is_storage(const tier::Tier& tier) noexcept;

// Wraps disks and plug-ins: their records leave this host's memory, so they are coded and sealed as configured, and
// records that an earlier configuration coded are decoded. Peers are not wrapped: links code on their own
// (node.codec).
std::unique_ptr<tier::Tier> code_tier(const CodedTierParts& parts, const TierOptions& options,
                                      std::unique_ptr<tier::Tier> tier);

}  // namespace kvbm::manager
