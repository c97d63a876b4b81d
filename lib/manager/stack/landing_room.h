// Destination buffers for records read from a tier below: host slots, or memory beside the host. The latter is for
// loads and loans, which only pass the bytes to an engine or a node, while no slot is free (LandingStaging).
//
// What reads may evict. If a tier gets only blocks that the host evicts, the host has the only copies of others. A load
// or loan takes free slots there, and memory beside the host. A prefetch has blocks written down and waits for their
// slots, like a store. Like a store it evicts others only if the tier below takes none of them for as long as it waits.
//
// Why no load waits for a slot, and so none can wait forever. A load with nothing in flight always gets a place for
// one block: a slot, or staging, which may exceed its limit for that one block. A load asks for more only while it
// has some, and gets no more than there is. So a load only ever waits for its own work: a tier that answers it, or a
// batch of its device. No other caller has to release, offload, store or load first, however full the host is and
// whatever holds it. Loans hold staging too, but never wait and get no more than the limit allows. The price is one
// block of memory beyond the limit for each load in progress. An operation that needs a slot waits in the space queue
// (space_queue.h), such as a prefetch: its purpose is that the block stays.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "block/quotas.h"
#include "manager/host/landing_staging.h"

namespace kvbm::manager {

class TierStack;

// Places for the leading items of a batch, one each: slots[i], or staged[i] where slots[i] is kNoSlot.
struct LandingRoom {
  std::vector<SlotId> slots;
  std::vector<std::shared_ptr<StagedBlock>> staged;  // as long as slots, or empty: all are slots
  [[nodiscard]] size_t count() const noexcept { return slots.size(); }
};

// Takes slots for as many of `n` leading items as possible. ok, or why there are none. `evicting`: as
// TierStack::allocate.
Code take_slots(TierStack& stack, block::AccountId account, size_t n, LandingRoom& out, bool evicting = true);
// Takes slots without losing a last copy (TierStack::slots_to_store_in). With too few slots, blocks are being written
// down to free more: the caller tries again.
Code take_slots_without_loss(TierStack& stack, block::AccountId account, size_t n, LandingRoom& out);
// Takes slots, then staging for as many as follow. `alone`: the caller has nothing else in flight, and gets at least
// one place unless the system has no memory.
void take_places(TierStack& stack, block::AccountId account, size_t n, bool alone, LandingRoom& out);

}  // namespace kvbm::manager
