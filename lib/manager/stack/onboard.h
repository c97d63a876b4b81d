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
  // Landing::borrowed: address of the payload, unless it is in the slot. `lender` keeps it, and must be released
  // soon.
  ConstBytes lent;
  std::shared_ptr<void> lender;
  // Coded leaves of the payload; the slot has no head yet (coded_landing.h). Null: the payload is plain.
  std::shared_ptr<const CodedLanding> coded;
  std::shared_ptr<const std::vector<std::byte>> head;  // with kNoSlot
};

enum class Landing : uint8_t {
  registered,  // verified; the next lookup finds it in the host
  taken,       // as registered, for an offer that waits for slots: a block to be offloaded stays until it is written
  unchecked,   // a private slot with unverified leaves; its reference goes with it
  borrowed,    // unchecked, for a receiver that reads the payload once and does not keep it
};

// Reads `items` from `tier` into `room`, which has a place for each and is consumed. Places without a slot are not
// allowed for registered landings. `done` runs once, on the executor, or on a tier's thread unless the landing is
// registered. It must be short there, and must release what it does not take. `decodes`: predicate of a receiver that
// takes coded leaves; not for registered landings. Null: all leaves arrive plain.
void onboard(const std::shared_ptr<TierStack>& stack, TierIndex tier, std::vector<OnboardItem> items, LandingRoom room,
             uint64_t deadline_ns, Landing landing, tier::DecodesLeaf decodes,
             UniqueFunction<void(std::vector<Landed>)> done);
// Reads them into slots of `account`; if there are not enough, each item ends with the allocation's code.
void onboard(const std::shared_ptr<TierStack>& stack, TierIndex tier, block::AccountId account,
             std::vector<OnboardItem> items, uint64_t deadline_ns, Landing landing, tier::DecodesLeaf decodes,
             UniqueFunction<void(std::vector<Landed>)> done);

// Sets the head of a private slot with a plain payload in place. The head is from a tier (kOtherSize: was made here).
Code settle_head(HostTier& host, SlotId slot, TierIndex tier, ConstBytes head);

// Registers a private slot, after its leaves were verified, unless its family was invalidated since the mark. If the
// block is there already, the reference moves to that one. `waits`: as TierStack::Bringer.
Code register_landed(TierStack& stack, SlotId& inout_slot, const Identity& id, uint64_t mark, bool waits = false);

[[nodiscard]] constexpr bool is_registered(Landing landing) noexcept {
  return landing == Landing::registered || landing == Landing::taken;
}

}  // namespace kvbm::manager
