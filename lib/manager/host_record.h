// The record of a host slot: its head made, read and checked, and how slots meet the tiers below.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/record.h"
#include "manager/namespace.h"
#include "tier/tier.h"

namespace kvbm::manager {

class Manager;

// What a head says beyond its leaves.
struct HeadFacts {
  FamilyId family = 0;
  Key key;
  Key parent;
  uint16_t flags = 0;  // codec::RecordFlag
  uint32_t tokens = 0;
  uint64_t payload_bytes = 0;
};

// Encodes the head of a slot whose payload is in place. The caller owns the slot or the claim to its head.
Code write_head(Manager& manager, SlotId slot, const HeadFacts& facts, std::span<const codec::Leaf> leaves,
                ConstBytes attributes);

// The same head, for a record that is not in a slot.
Result<std::vector<std::byte>> encode_head(Manager& manager, const HeadFacts& facts, std::span<const codec::Leaf> leaves,
                                           ConstBytes attributes);

// Before a managed block has a head, its head area remembers its parent where that is not the resident one that the
// block table knows. Noting the bytes forgets a parent.
void note_payload_bytes(Manager& manager, SlotId slot, uint64_t bytes) noexcept;
void note_parent(Manager& manager, SlotId slot, const Key& parent) noexcept;

// The checked head of a held slot; damaged if it does not verify or names another block.
Result<codec::HeadView> read_head(Manager& manager, SlotId slot);

// Whether a held slot's record lost something when it was coded.
[[nodiscard]] bool lies_lossy(Manager& manager, SlotId slot) noexcept;

// The position of a held slot's block, where it has one.
[[nodiscard]] std::optional<codec::Position> position_of(Manager& manager, SlotId slot) noexcept;

// Makes the head of a held registered block that has none: hashes its bytes. again: another thread is
// at it right now.
Code ensure_head(Manager& manager, SlotId slot);
// The same for a complete slot of the caller's alone, before it is published: of what is in `facts` but for
// payload_bytes.
Code make_head(Manager& manager, SlotId slot, HeadFacts facts, ConstBytes attributes);

// The engine's own block keys that a head names; empty if none.
[[nodiscard]] std::vector<Key> unit_keys(const codec::HeadView& head);

// Everything a tier needs to store a held slot; ensures the head.
Code describe_for_put(Manager& manager, SlotId slot, tier::PutItem& item);

}  // namespace kvbm::manager
