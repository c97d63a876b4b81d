// Serves records of this manager, which other nodes and other processes of this host read in place.
//
// A lent record is held: its bytes neither move nor change until the borrower releases it. Records in a tier below are
// first read and verified: into host slots, or beside the host if no slot is free (landing_room.h). A loan never waits
// for memory: records without any are misses to the caller.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/function.h"
#include "base/ids.h"
#include "base/status.h"
#include "tier/tier.h"

namespace kvbm::manager {

class LowerTiers;
class TierStack;

struct Lent {
  Code code = Code::miss;  // ok, miss, damaged, no_room, deadline, closed, ...
  // With ok: a reference for the receiver to release (HostTier::release). kNoSlot: `keep` holds the record.
  SlotId slot = kNoSlot;
  std::shared_ptr<void> keep;
  ConstBytes head;  // codec/record/record.h
  ConstBytes payload;
};

// Finds, from memory alone, which records this manager itself has, and in which tier (kNoTier: none).
// found[i].location is cluster::location_of_slot for host records; head_bytes is the size that the record's head has
// or will have. Does not count as a use. Thread: any.
void find_to_lend(LowerTiers& lower, std::span<const Identity> ids, std::span<tier::Found> found,
                  std::span<TierIndex> tiers) noexcept;

// Removes from `ids` those that a tier has, peers included as far as this node knows. From memory alone. Thread: any.
void keep_unknown(LowerTiers& lower, std::vector<Identity>& ids);

// Lends the records. `done` runs once, on the executor or inside this call, with one Lent for each id. Reads that
// have not begun by the deadline end as Code::deadline. A read in flight is awaited, because its target must stay.
// Thread: any.
void lend(const std::shared_ptr<TierStack>& stack, std::vector<Identity> ids, uint64_t deadline_ns,
          UniqueFunction<void(std::vector<Lent>)> done);

}  // namespace kvbm::manager
