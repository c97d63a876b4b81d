// Registering blocks that callers filled themselves.
#pragma once

#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "block/block_table.h"
#include "codec/record.h"

namespace kvbm::manager {

class Manager;

struct ManagedBlocks {
  FamilyId family = 0;
  std::span<const Key> keys;
  const Key* parent = nullptr;  // of the first; null: none
  bool chained = true;
  block::DuplicateMode duplicates = block::DuplicateMode::reject;
  uint8_t priority = 0;
  bool takes_lossy = false;                     // a lossy block is as good to the caller
  std::span<const codec::Position> positions;   // empty, or one for each
};

// Publishes complete blocks that are the caller's alone; slots and codes as of BlockTable::publish. They get their heads
// here, so that every later read of them is verified; with Options::hash_managed off only those that have a position, for
// a block without a head has none.
Code publish_managed(Manager& manager, const ManagedBlocks& blocks, std::span<SlotId> slots, std::span<Code> codes);

}  // namespace kvbm::manager
