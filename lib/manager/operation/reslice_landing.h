// Blocks made of records of another tensor-parallel size: the records are read, verified, and cut into the part's
// record.
#pragma once

#include <memory>
#include <vector>

#include "base/function.h"
#include "manager/operation/match.h"
#include "manager/stack/landing_room.h"
#include "manager/stack/onboard.h"

namespace kvbm::manager {

// A kOtherSize key of a match, in one part.
struct ResliceItem {
  size_t part = 0;
  size_t key = 0;
};

// Reads `items` of a match into `room`, like onboard(). Each block gets a head of its own that describes the new
// record. Every byte is compared with the hash in its source record. With `registered` the next lookup finds the
// block in the host. Source records are held in memory beside the host while they are cut: at least those of one
// block, of more up to 32 MiB. A record without the part's shape is a mismatch, and its size is not used any more: it
// may be opaque, coded, cut otherwise, or of shards that do not fit together. `done` runs once on the executor.
void onboard_resliced(const std::shared_ptr<Match>& match, std::vector<ResliceItem> items, LandingRoom room,
                      uint64_t deadline_ns, bool registered, UniqueFunction<void(std::vector<Delivery>)> done);

}  // namespace kvbm::manager
