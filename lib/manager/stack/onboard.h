// Onboarding: reads records of one tier below into host slots.
#pragma once

#include <memory>
#include <vector>

#include "base/function.h"
#include "block/block_table.h"
#include "manager/stack/delivery.h"
#include "manager/stack/landing_room.h"
#include "tier/tier.h"

namespace kvbm::manager {

class HostTier;
class TierStack;

// Returns the request for a record that find() has found, without targets.
[[nodiscard]] inline tier::GetItem request_of(const Identity& id, const tier::Found& found) {
  tier::GetItem item;
  item.id = id;
  item.location = found.location;
  item.head_bytes = found.head_bytes;
  item.payload_bytes = found.payload_bytes;
  return item;
}

// Reads the items of `batch` from `tier` into `room`, which has a place for each and is consumed. The caller has set
// what it wants (request_of), the deadline and what the receiver accepts. A receiver that verifies gets private slots
// with unverified leaves, and their references. For any other the blocks in slots are registered: the next lookup finds
// them in the host; `waits` is as in TierStack::Bringer. `done` runs once, on the executor, or on a tier's thread if
// the receiver verifies. It must be short there, and must release what it does not take.
void onboard(const std::shared_ptr<TierStack>& stack, TierIndex tier, std::unique_ptr<tier::GetBatch> batch,
             LandingRoom room, UniqueFunction<void(std::vector<Delivery>)> done, bool waits = false);

}  // namespace kvbm::manager
