#include "manager/stack/landing_room.h"

#include <utility>

#include "manager/stack/tier_stack.h"

namespace kvbm::manager {

Code take_slots(TierStack& stack, block::AccountId account, size_t n, LandingRoom& out, bool evicting) {
  out.slots.assign(n, kNoSlot);
  size_t got = 0;
  const Code code = stack.allocate_leading(account, out.slots, got, evicting);
  out.slots.resize(got);
  return code;
}

Code take_slots_without_loss(TierStack& stack, block::AccountId account, size_t n, LandingRoom& out) {
  Code code = Code::no_room;
  n = stack.slots_to_store_in(account, n, code);
  return n == 0 ? code : take_slots(stack, account, n, out, !stack.lower().host_has_last_copies());
}

void take_places(TierStack& stack, block::AccountId account, size_t n, bool alone, LandingRoom& out) {
  out.staged.reserve(n);  // before there is a slot that could be lost
  // If the host has last copies, does not evict: a last copy is worth more than a copy of a record below.
  (void)take_slots(stack, account, stack.slots_to_land_in(n), out, !stack.lower().host_has_last_copies());
  out.staged.resize(out.slots.size());
  while (out.count() < n) {
    auto block = stack.host().landing_staging().take(alone && out.count() == 0);
    if (block == nullptr) return;
    out.slots.push_back(kNoSlot);
    out.staged.push_back(std::move(block));
    add(stack.host().counters().load_staged, 1);
  }
}

}  // namespace kvbm::manager
