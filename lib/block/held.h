// Operations on blocks that callers hold. Each call resolves its holds and uses them in one step, even if other threads
// end holds meanwhile. Either all holds were live and their blocks were used, or the call returns why not and nothing
// was done. No call revives an ended hold.
//
// With resolve_all() and a use of the slots afterwards there are two steps: in between a slot may have got another
// owner. Codes are those of HoldTable::resolve_all; further ones are listed at each call.
#pragma once

#include <span>

#include "block/block_table.h"
#include "block/hold_table.h"

namespace kvbm::block {

// Adds a reference to each registered block, for the caller; `out` gets their slots. at_limit: a block has the largest
// count of references.
[[nodiscard]] Code retain_held(HoldTable& holds, BlockTable& table, std::span<const HoldValue> values,
                               std::span<SlotId> out);

// Returns slots and generations of these registered blocks, to make weak holds of.
[[nodiscard]] Code name_held(HoldTable& holds, const BlockTable& table, std::span<const HoldValue> values,
                             std::span<SlotId> out, std::span<uint32_t> generations);

// partial -> complete. Payload sizes are bytes[i], or `otherwise` for all if `bytes` is empty. No block may be named
// twice. wrong_state: one is not partial.
[[nodiscard]] Code complete_held(HoldTable& holds, BlockTable& table, std::span<const HoldValue> values,
                                 std::span<SlotId> out, std::span<const uint64_t> bytes, uint64_t otherwise);

// Takes complete blocks from their holds, for publishing: HoldTable::take_all. wrong_state: one is not complete.
[[nodiscard]] Code take_held(HoldTable& holds, const BlockTable& table, std::span<HoldValue> inout,
                             std::span<SlotId> out);

// Block of a hold. No lock.
struct Seen {
  SlotId slot = kNoSlot;
  bool partial = false;
  uint32_t payload_bytes = 0;  // of one that is not partial
};
// Errors: those of HoldTable::resolve(), and wrong_state for a weak hold.
[[nodiscard]] Code look_at(const HoldTable& holds, const BlockTable& table, HoldValue value, Seen* out) noexcept;

}  // namespace kvbm::block
