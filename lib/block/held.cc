#include "block/held.h"

#include <algorithm>

namespace kvbm::block {

Code retain_held(HoldTable& holds, BlockTable& table, std::span<const HoldValue> values, std::span<SlotId> out) {
  return holds.use_all(values, HoldKind::reading, out,
                       [&] { return table.try_retain(out) ? Code::ok : Code::at_limit; });
}

Code name_held(HoldTable& holds, const BlockTable& table, std::span<const HoldValue> values, std::span<SlotId> out,
               std::span<uint32_t> generations) {
  return holds.use_all(values, HoldKind::reading, out, [&] {
    std::transform(out.begin(), out.end(), generations.begin(), [&](SlotId slot) { return table.generation(slot); });
    return Code::ok;
  });
}

Code complete_held(HoldTable& holds, BlockTable& table, std::span<const HoldValue> values, std::span<SlotId> out,
                   std::span<const uint64_t> bytes, uint64_t otherwise) {
  return holds.use_all(values, HoldKind::writable, out, [&] {
    for (const SlotId slot : out) {
      if (table.state(slot) != SlotState::partial) return Code::wrong_state;
    }
    // Set before they are complete: another thread may register them from then on.
    for (size_t i = 0; i < out.size(); ++i) {
      table.set_payload_bytes(out[i], static_cast<uint32_t>(bytes.empty() ? otherwise : bytes[i]));
    }
    return table.complete(out);
  });
}

Code take_held(HoldTable& holds, const BlockTable& table, std::span<HoldValue> inout, std::span<SlotId> out) {
  return holds.take_all(inout, HoldKind::writable, out, [&] {
    const bool all =
        std::all_of(out.begin(), out.end(), [&](SlotId slot) { return table.state(slot) == SlotState::complete; });
    return all ? Code::ok : Code::wrong_state;
  });
}

Code look_at(const HoldTable& holds, const BlockTable& table, HoldValue value, Seen* out) noexcept {
  Hold hold;
  Code code = holds.resolve(value, &hold);
  if (code != Code::ok) return code;
  if (hold.kind == HoldKind::weak) return Code::wrong_state;
  out->slot = hold.slot;
  out->payload_bytes = table.payload_bytes(hold.slot);
  out->partial = table.state(hold.slot) == SlotState::partial;
  // Both loads have acquire order. So if they saw a later owner of the slot, this second resolve finds that the hold
  // has ended.
  return holds.resolve(value, &hold);
}

}  // namespace kvbm::block
