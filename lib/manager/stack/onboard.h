// Onboarding: reads records of one tier below into host slots.
#pragma once

#include <memory>
#include <vector>

#include "base/function.h"
#include "block/block_table.h"
#include "manager/stack/coded_landing.h"
#include "manager/stack/landing_room.h"
#include "tier/tier.h"

namespace kvbm::manager {

class HostTier;
class TierStack;

struct OnboardItem {
  Identity id;
  tier::Found found;
};

// Result of one item. With code ok, `slot` has the record and the receiver owns a reference. With kNoSlot the record
// is beside the host: the payload in `lent`, and the head here unless the record is coded.
struct Landed {
  Code code = Code::internal;
  SlotId slot = kNoSlot;
  uint64_t location = 0;  // in the tier, for reject()
  uint64_t mark = 0;      // Invalidations::mark at the time of the request
  // Address of the payload, unless it is in the slot. `lender` keeps it, and must be released soon.
  ConstBytes lent;
  std::shared_ptr<void> lender;
  // Coded leaves of the payload; the slot has no head yet (coded_landing.h). Null: the payload is plain.
  std::shared_ptr<const CodedLanding> coded;
  std::shared_ptr<const std::vector<std::byte>> head;  // with kNoSlot
};

// Reads `items` from `tier` into `room`, which has a place for each and is consumed. A receiver that verifies gets
// private slots with unverified leaves, and their references. For any other the blocks are registered: the next lookup
// finds them in the host, so each place is a slot; `waits` is as in TierStack::Bringer. `done` runs once, on the
// executor, or on a tier's thread if the receiver verifies. It must be short there, and must release what it does not
// take.
void onboard(const std::shared_ptr<TierStack>& stack, TierIndex tier, std::vector<OnboardItem> items, LandingRoom room,
             uint64_t deadline_ns, tier::Accepts accepts, UniqueFunction<void(std::vector<Landed>)> done,
             bool waits = false);
// Reads them into slots of `account`; if there are not enough, each item ends with the allocation's code.
void onboard(const std::shared_ptr<TierStack>& stack, TierIndex tier, block::AccountId account,
             std::vector<OnboardItem> items, uint64_t deadline_ns, tier::Accepts accepts,
             UniqueFunction<void(std::vector<Landed>)> done);

// Sets the head of a private slot with a plain payload in place. The head is from a tier (kOtherSize: was made here).
Code settle_head(HostTier& host, SlotId slot, TierIndex tier, ConstBytes head);

// Registers a private slot, after its leaves were verified, unless its family was invalidated since the mark. If the
// block is there already, the reference moves to that one. `waits`: as TierStack::Bringer.
Code register_landed(TierStack& stack, SlotId& inout_slot, const Identity& id, uint64_t mark, bool waits = false);

}  // namespace kvbm::manager
