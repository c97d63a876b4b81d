// The record of a host slot: makes, reads and checks its head, and describes slots to the tiers below.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"
#include "codec/record/record.h"
#include "tier/tier.h"

namespace kvbm::manager {

class HostTier;

// Facts that a head states besides its leaves.
struct HeadFacts {
  FamilyId family = 0;
  Key key;
  Key parent;
  uint16_t flags = 0;  // codec::RecordFlag
  uint32_t tokens = 0;
  uint64_t payload_bytes = 0;
};

// Encodes the head of a slot; the payload must be in place. The caller owns the slot or the claim to its head.
Code write_head(HostTier& host, SlotId slot, const HeadFacts& facts, std::span<const codec::Leaf> leaves,
                ConstBytes attributes);

// Encodes the same head for a record that is not in a slot.
Result<std::vector<std::byte>> encode_head(HostTier& host, const HeadFacts& facts, std::span<const codec::Leaf> leaves,
                                           ConstBytes attributes);

// Note facts in the head area of a managed block that has no head yet. note_parent() is for a parent other than the
// resident one that the block table knows. note_payload_bytes() clears a noted parent.
void note_payload_bytes(HostTier& host, SlotId slot, uint64_t bytes) noexcept;
void note_parent(HostTier& host, SlotId slot, const Key& parent) noexcept;

// Returns the checked head of a held slot. damaged: it does not verify or names another block.
Result<codec::HeadView> read_head(HostTier& host, SlotId slot);

// Returns true if a held slot's record was coded with loss.
[[nodiscard]] bool lies_lossy(HostTier& host, SlotId slot) noexcept;

// Returns the position of a held slot's block, if it has one.
[[nodiscard]] std::optional<codec::Position> position_of(HostTier& host, SlotId slot) noexcept;

// Makes the head of a held registered block that has none, which hashes its bytes. again: another thread is making
// it.
Code ensure_head(HostTier& host, SlotId slot);
// Makes the head of a complete slot that only the caller has, before it is published. Uses `facts` except its
// payload_bytes.
Code make_head(HostTier& host, SlotId slot, HeadFacts facts, ConstBytes attributes);

// Returns the engine's own block keys that a head names; empty if none.
[[nodiscard]] std::vector<Key> unit_keys(const codec::HeadView& head);

// Fills `item` with everything a tier needs to store a held slot; makes the head if missing.
Code describe_for_put(HostTier& host, SlotId slot, tier::PutItem& item);

}  // namespace kvbm::manager
