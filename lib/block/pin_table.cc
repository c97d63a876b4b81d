#include "block/pin_table.h"

#include <atomic>

#include "base/clock.h"
#include "base/thread/memory_wait.h"

namespace kvbm::block {

namespace {

// Counts for all tables: a pin of another manager is unknown in this one, and ends nothing there.
PinId next_id() noexcept {
  static std::atomic<PinId> count{0};
  return count.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

PinTable::~PinTable() {
  MutexLock lock(lock_);
  for (const auto& [id, pin] : pins_) table_.unpin(pin.slots);
}

Result<PinId> PinTable::pin(std::span<const SlotId> slots, OwnerId owner, uint64_t deadline_ns) {
  if (slots.empty()) return Status(Code::invalid_argument, "a pin needs at least one block");
  std::vector<SlotId> kept(slots.begin(), slots.end());
  struct Undo {
    BlockTable& table;
    std::span<const SlotId> pinned;
    ~Undo() { table.unpin(pinned); }
  } undo{table_, {}};
  for (size_t i = 0; i < slots.size(); ++i) {
    const Code code = table_.pin(slots[i]);
    if (code != Code::ok) return Status(code, "a block cannot be pinned");
    undo.pinned = slots.first(i + 1);
  }
  MutexLock lock(lock_);  // ends before `undo`
  if (pins_.size() >= most_) return Status(Code::at_limit, "1,048,576 pins are there");
  const PinId id = next_id();
  try {
    if (deadline_ns != kNever) by_deadline_.emplace(deadline_ns, id);
    if (owner != kNoOwner) by_owner_.emplace(owner, id);
    pins_.emplace(id, Pin{id, owner, deadline_ns, std::move(kept)});
  } catch (...) {
    // Memory was refused: an owner's list must not name a pin that does not exist.
    by_deadline_.erase({deadline_ns, id});
    by_owner_.erase({owner, id});
    throw;
  }
  undo.pinned = {};
  return id;
}

Pin PinTable::take(PinId id) {
  Pin pin = std::move(pins_.extract(id).mapped());
  by_deadline_.erase({pin.deadline_ns, id});
  by_owner_.erase({pin.owner, id});
  return pin;
}

Code PinTable::unpin(PinId id) {
  Pin ended;
  {
    MutexLock lock(lock_);
    if (pins_.count(id) == 0) return Code::stale_handle;
    ended = take(id);
  }
  table_.unpin(ended.slots);
  return Code::ok;
}

std::vector<Pin> PinTable::owner_died(OwnerId owner) {
  const MemoryWait until_unpinned;  // pins that left the tables are known here alone
  std::vector<Pin> ended;
  {
    MutexLock lock(lock_);
    for (auto at = by_owner_.lower_bound({owner, 0}); at != by_owner_.end() && at->first == owner;
         at = by_owner_.lower_bound({owner, 0})) {
      ended.push_back(take(at->second));
    }
  }
  for (const Pin& pin : ended) table_.unpin(pin.slots);
  return ended;
}

std::vector<Pin> PinTable::expire(uint64_t now_ns) {
  const MemoryWait until_unpinned;
  std::vector<Pin> ended;
  {
    MutexLock lock(lock_);
    while (!by_deadline_.empty() && by_deadline_.begin()->first <= now_ns) {
      ended.push_back(take(by_deadline_.begin()->second));
    }
  }
  for (const Pin& pin : ended) table_.unpin(pin.slots);
  return ended;
}

uint64_t PinTable::next_deadline_ns() const {
  MutexLock lock(lock_);
  return by_deadline_.empty() ? kNever : by_deadline_.begin()->first;
}

size_t PinTable::size() const {
  MutexLock lock(lock_);
  return pins_.size();
}

}  // namespace kvbm::block
