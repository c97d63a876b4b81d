// Registers blocks that callers filled themselves.
#pragma once

#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "block/block_table.h"
#include "codec/record/record.h"

namespace kvbm::manager {

class TierStack;

struct ManagedBlocks {
  FamilyId family = 0;
  std::span<const Key> keys;
  const Key* parent = nullptr;  // of the first; null: none
  bool chained = true;
  block::DuplicateMode duplicates = block::DuplicateMode::reject;
  uint8_t priority = 0;
  bool takes_lossy = false;                    // a lossy block with the same key is as good to the caller
  std::span<const codec::Position> positions;  // empty, or one for each
};

// Publishes complete blocks that only the caller has; slots and codes as of BlockTable::publish. The blocks get their
// heads here, so that every later read of them is verified. With Options::hash_managed off only blocks with a
// position get a head, because a block without a head has no position.
Code publish_managed(TierStack& stack, const ManagedBlocks& blocks, std::span<SlotId> slots, std::span<Code> codes);

}  // namespace kvbm::manager
