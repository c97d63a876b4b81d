// Durability check: whether blocks are where a flush promises them. That is the disk of a shared tier set, or the
// owner's memory if the set has no disk. A block that is only in memory but belongs on the disk can be written once
// more before it is reported missing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/function.h"
#include "base/ids.h"

namespace kvbm::manager {

class TierStack;

// Handling of blocks that are only in memory but belong on the disk. The values are those of ShareKind::flush.
enum class Rewrite : uint8_t {
  once = 0,     // written once more; those that are then on the disk are kept
  durably = 1,  // as once, and only what a sync of the disk covers is kept
  nothing = 2   // none is written: such blocks are missing
};

// Looks for `ids` in this manager, which owns the set; `disk` is its tier's number (kNoTier: none). If the disk does
// not get every block (admission), a block in memory counts as kept. `done` gets the missing ids, in order, once, on
// the executor. Thread: any.
void check_durability(const std::shared_ptr<TierStack>& stack, TierIndex disk, std::vector<Identity> ids,
                      Rewrite rewrite, UniqueFunction<void(std::vector<Identity> missing)> done);

}  // namespace kvbm::manager
