// Blocks made out of records of another tensor-parallel size: these come up, are checked, and are cut into the part's record.
#pragma once

#include <memory>
#include <vector>

#include "base/function.h"
#include "manager/landing_room.h"
#include "manager/match.h"
#include "manager/onboard.h"

namespace kvbm::manager {

// A key of a match that is kOtherSize in that part.
struct ResliceItem {
  size_t part = 0;
  size_t key = 0;
};

// As onboard(), of `items` of a match, into `room`. What lands has a head of its own that says what was made, and every
// byte of it was compared with the hash it had in the record that it comes from; with `registered` the next lookup finds it in
// the host. Records are held in memory beside the host while they are cut: of one block at least, of more up to 32 MiB. A
// record that is not what the part's shape says (opaque, coded, cut otherwise; of shards that do not fit together) is
// a mismatch, and its size is left alone from then on. `done` runs once on the executor.
void onboard_resliced(const std::shared_ptr<Match>& match, std::vector<ResliceItem> items, LandingRoom room,
                      uint64_t deadline_ns, bool registered, UniqueFunction<void(std::vector<Landed>)> done);

}  // namespace kvbm::manager
