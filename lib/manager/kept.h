// Whether blocks are where a flush promises them: on the disk of a shared tier set, or in the owner's memory where it has
// none. What is in that memory only and was to be on the disk is written once more before it is said to be missing.
#pragma once

#include <memory>
#include <vector>

#include "base/function.h"
#include "base/ids.h"

namespace kvbm::manager {

class Manager;

// Of this manager, which owns the set; `disk` is its tier's number (kNoTier: none). Of a disk that does not get every
// block (admission), those that are in memory are kept, too. `done` gets those that are nowhere, in order, once, on the
// executor. Thread: any.
void look_for_kept(const std::shared_ptr<Manager>& manager, TierIndex disk, std::vector<Identity> ids,
                   UniqueFunction<void(std::vector<Identity> missing)> done);

}  // namespace kvbm::manager
