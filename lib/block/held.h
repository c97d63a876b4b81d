// What callers do with the blocks that they hold. Each call looks its holds up and uses them in one step, whoever ends the
// same holds at that moment: either all of them were live and it was their blocks that it was done to, or the call says
// why not and nothing was done. No call revives a hold that has ended.
//
// resolve_all() and a use of the slots afterwards are two steps: in between a slot may have become somebody else's.
// Codes are those of HoldTable::resolve_all; what else there is stands beside each.
#pragma once

#include <span>

#include "block/block_table.h"
#include "block/hold_table.h"

namespace kvbm::block {

// One more reference to each registered block; they are the caller's, and `out` are their slots.
// at_limit: a block has as many references as can be counted.
[[nodiscard]] Code retain_held(HoldTable& holds, BlockTable& table, std::span<const HoldValue> values,
                               std::span<SlotId> out);

// What weak holds on these registered blocks are made of.
[[nodiscard]] Code name_held(HoldTable& holds, const BlockTable& table, std::span<const HoldValue> values,
                             std::span<SlotId> out, std::span<uint32_t> generations);

// partial -> complete. Payloads are of bytes[i], or all of `otherwise` where bytes is empty. None is named twice.
// wrong_state: one is not partial.
[[nodiscard]] Code complete_held(HoldTable& holds, BlockTable& table, std::span<const HoldValue> values,
                                 std::span<SlotId> out, std::span<const uint64_t> bytes, uint64_t otherwise);

// Takes complete blocks from their holds, to be published: HoldTable::take_all. wrong_state: one is not complete.
[[nodiscard]] Code take_held(HoldTable& holds, const BlockTable& table, std::span<HoldValue> inout,
                             std::span<SlotId> out);

// What a hold is on. No lock.
struct Seen {
  SlotId slot = kNoSlot;
  bool partial = false;
  uint32_t payload_bytes = 0;  // of one that is not partial
};
// wrong_state: a weak hold.
[[nodiscard]] Code look_at(const HoldTable& holds, const BlockTable& table, HoldValue value, Seen* out) noexcept;

}  // namespace kvbm::block
