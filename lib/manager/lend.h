// Lending: records of this manager that others read in place, for other nodes and other processes of this host.
//
// A lent record is held: its bytes stay where they are and as they are until the lender's release of the slot. What
// lies in a tier below comes into the host first, verified. A loan never waits for a free slot: records
// without room are misses to whoever asked.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/function.h"
#include "base/ids.h"
#include "base/status.h"
#include "tier/tier.h"

namespace kvbm::manager {

class Manager;

struct Lent {
  Code code = Code::miss;  // ok, miss, damaged, no_room, deadline, closed, ...
  SlotId slot = kNoSlot;   // with ok: a reference of the receiver, Manager::release
  ConstBytes head;         // codec/record.h
  ConstBytes payload;
};

// From memory: which of the records this manager itself has, and in which tier (kNoTier: in none). found[i].location is
// cluster::location_of_slot for host records; head_bytes is what the record's head has or will have. Does not count as
// a use. Thread: any.
void find_to_lend(Manager& manager, std::span<const Identity> ids, std::span<tier::Found> found,
                  std::span<TierIndex> tiers) noexcept;

// From memory: leaves those of `ids` that no tier has, other nodes among them as far as is known here. Thread: any.
void keep_unknown(Manager& manager, std::vector<Identity>& ids);

// `done` runs once, on the executor or inside this call, with one Lent for each id. What is not begun by the deadline
// ends as Code::deadline; a read in flight is waited for, as its target must be. Thread: any.
void lend(const std::shared_ptr<Manager>& manager, std::vector<Identity> ids, uint64_t deadline_ns,
          UniqueFunction<void(std::vector<Lent>)> done);

}  // namespace kvbm::manager
