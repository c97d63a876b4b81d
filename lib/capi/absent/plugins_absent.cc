// Stands in for stores, and for tiers and eviction policies of callers, in a build without them.
#include "capi/absent/absent.h"
#include "capi/plugin/plugin_policy.h"
#include "capi/plugin/plugin_tier.h"
#include "capi/plugin/store.h"

namespace kvbm::capi {

Result<policy::MakePolicy> plugin_policy(const kvbm_policy_table_t&, void*) { return absent(kNoPlugins); }

manager::MakeTier plugin_tier(const kvbm_tier_table_t&, void*, Executor&) {
  return [](TierIndex, FamilyTable&, tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
    return absent(kNoPlugins);
  };
}

Result<manager::MakeTier> store_tier(const std::string&, const kvbm_store_table_t*, uint64_t,
                                     const manager::Environment&) {
  return absent(kNoPlugins);
}

Status make_stores(std::vector<manager::TierOptions>& tiers, const manager::Environment&) {
  for (const manager::TierOptions& tier : tiers) {
    if (!tier.url.empty()) return absent(kNoPlugins);
  }
  return {};
}

}  // namespace kvbm::capi
