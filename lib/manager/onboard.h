// Onboarding: records of one tier below land in host slots.
#pragma once

#include <memory>
#include <vector>

#include "base/function.h"
#include "block/block_table.h"
#include "tier/tier.h"

namespace kvbm::manager {

class Manager;

struct OnboardItem {
  Identity id;
  tier::Found found;
};

// What became of one item. With code ok, `slot` holds the verified record and the receiver owns a reference.
struct Landed {
  Code code = Code::internal;
  SlotId slot = kNoSlot;
};

// Reads `items` from `tier`. Slots are taken from `account`; what lands is registered, so that the
// next lookup finds it in the host, unless `keep` is false: then it is a private slot that goes with
// its reference. `done` runs once on the executor; what it does not take it must release.
void onboard(const std::shared_ptr<Manager>& manager, TierIndex tier, block::AccountId account,
             std::vector<OnboardItem> items, uint64_t deadline_ns, bool keep,
             UniqueFunction<void(std::vector<Landed>)> done);

}  // namespace kvbm::manager
