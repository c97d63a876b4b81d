// Pins keep blocks resident for an owner until a deadline. A retention until a time is a pin without an owner.
// Step-driven: the caller passes the time to expire() and the death of an owner to owner_died(). Both return the ended
// pins, so that the manager can report them. Lock: one, never held while the block table is called. Control plane: may
// allocate.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/thread/mutex.h"
#include "block/block_table.h"

namespace kvbm::block {

using PinId = uint64_t;  // never 0; unique in this process, also between tables
using OwnerId = uint64_t;
inline constexpr OwnerId kNoOwner = 0;

struct Pin {
  PinId id = 0;
  OwnerId owner = kNoOwner;
  uint64_t deadline_ns = 0;
  std::vector<SlotId> slots;
};

class PinTable {
 public:
  static constexpr size_t kMaxPins = 1U << 20;

  // The table outlives this. `most`: number of pins at one time.
  explicit PinTable(BlockTable& table, size_t most = kMaxPins) : table_(table), most_(most) {}
  // Ends every pin.
  ~PinTable();
  PinTable(const PinTable&) = delete;
  PinTable& operator=(const PinTable&) = delete;

  // Pins slots that the caller holds references to; all or nothing. deadline_ns: base/clock.h time,
  // kNever for none. invalid_argument: no slots. wrong_state: not registered. at_limit: a slot has
  // SlotWord::kMaxPins, or this has `most`.
  [[nodiscard]] Result<PinId> pin(std::span<const SlotId> slots, OwnerId owner, uint64_t deadline_ns)
      KVBM_EXCLUDES(lock_);
  // Returns stale_handle if the pin has ended already.
  [[nodiscard]] Code unpin(PinId id) KVBM_EXCLUDES(lock_);
  // Ends the pins of an owner; returns them in the order of their ids.
  std::vector<Pin> owner_died(OwnerId owner) KVBM_EXCLUDES(lock_);
  // Ends pins with a deadline at or before now; returns them in the order of deadline, then id.
  std::vector<Pin> expire(uint64_t now_ns) KVBM_EXCLUDES(lock_);
  // Returns the next deadline, which is when to call expire(); kNever if there is none.
  [[nodiscard]] uint64_t next_deadline_ns() const KVBM_EXCLUDES(lock_);
  [[nodiscard]] size_t size() const KVBM_EXCLUDES(lock_);

 private:
  [[nodiscard]] Pin take(PinId id) KVBM_REQUIRES(lock_);

  BlockTable& table_;
  const size_t most_;
  mutable Mutex lock_;
  std::map<PinId, Pin> pins_ KVBM_GUARDED_BY(lock_);
  std::set<std::pair<uint64_t, PinId>> by_deadline_ KVBM_GUARDED_BY(lock_);  // without kNever
  std::set<std::pair<OwnerId, PinId>> by_owner_ KVBM_GUARDED_BY(lock_);      // without kNoOwner
};

}  // namespace kvbm::block
