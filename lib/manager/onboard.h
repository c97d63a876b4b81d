// Onboarding: records of one tier below land in host slots.
#pragma once

#include <memory>
#include <vector>

#include "base/function.h"
#include "block/block_table.h"
#include "manager/coded_landing.h"
#include "manager/landing_room.h"
#include "tier/tier.h"

namespace kvbm::manager {

class Manager;

struct OnboardItem {
  Identity id;
  tier::Found found;
};

// What became of one item. With code ok, `slot` holds the record and the receiver owns a reference; with kNoSlot it is
// beside the host: the payload in `lent`, and the head here unless it came coded.
struct Landed {
  Code code = Code::internal;
  SlotId slot = kNoSlot;
  uint64_t location = 0;  // in the tier, for reject()
  uint64_t mark = 0;      // Manager::forget_mark of when it was asked for
  // Landing::borrowed: where the payload is, unless it is in the slot; kept by `lender`, to be let go soon.
  ConstBytes lent;
  std::shared_ptr<void> lender;
  // Its leaves lie there coded, and the slot has no head yet (coded_landing.h); null: it is plain.
  std::shared_ptr<const CodedLanding> coded;
  std::shared_ptr<const std::vector<std::byte>> head;  // with kNoSlot
};

enum class Landing : uint8_t {
  registered,  // verified; the next lookup finds it in the host
  taken,       // the same, of an offer that waits for room: what is to go down stays until it is there
  unchecked,   // a private slot whose leaves nobody has compared yet; it goes with its reference
  borrowed,    // the same, for who reads the payload once and does not keep it
};

// Reads `items` from `tier` into `room`, which has a place for each and is theirs from now on; places without a slot
// not if the landing is registered. `done` runs once on the executor, or on
// a tier's thread unless the landing is registered: it does little there. What it does not take it must release.
// `decodes`: who takes coded leaves itself, which then may come; not if the landing is registered. Null: all come plain.
void onboard(const std::shared_ptr<Manager>& manager, TierIndex tier, std::vector<OnboardItem> items, LandingRoom room,
             uint64_t deadline_ns, Landing landing, tier::DecodesLeaf decodes,
             UniqueFunction<void(std::vector<Landed>)> done);
// The same into slots of `account`; without room for all of them each item ends as what refused it.
void onboard(const std::shared_ptr<Manager>& manager, TierIndex tier, block::AccountId account,
             std::vector<OnboardItem> items, uint64_t deadline_ns, Landing landing, tier::DecodesLeaf decodes,
             UniqueFunction<void(std::vector<Landed>)> done);

// Gives a private slot, whose plain payload is in place, its head, which came from a tier (kOtherSize: was made here).
Code settle_head(Manager& manager, SlotId slot, TierIndex tier, ConstBytes head);

// Registers a private slot, after its leaves were compared, unless its family was forgotten since the mark. If the
// block is there already, the reference moves to that one. `waits`: as Manager::Bringer.
Code register_landed(Manager& manager, SlotId& inout_slot, const Identity& id, uint64_t mark, bool waits = false);

[[nodiscard]] constexpr bool is_registered(Landing landing) noexcept {
  return landing == Landing::registered || landing == Landing::taken;
}

}  // namespace kvbm::manager
