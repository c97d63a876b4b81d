// Dirty set of a process in a shared tier set: stored blocks that no flush has found in their place yet. A flush
// looks up each of them by name, so that its answer covers exactly these blocks, whatever happened to them on the
// way.
//
// There may be many long before a flush: after every kMany the callback on_many starts a check, which removes those
// that are in their place. Beyond kMost none is remembered, and the next flush does not report success. Lock: mutex_,
// a leaf. Thread: any. Costs an allocation a block.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/family/family_table.h"
#include "base/ids.h"
#include "base/thread/mutex.h"

namespace kvbm::manager {

class Unflushed {
 public:
  static constexpr size_t kMany = 64 * 1024;
  static constexpr size_t kMost = 4 * kMany;
  struct Entry {
    Identity id;
    uint64_t number = 0;  // of the store: the same block stored again has another number
  };

  // Starts recording; nothing is remembered before. Called once, before anything is stored.
  void begin(std::function<void()> on_many);
  [[nodiscard]] bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }
  void stored(std::span<const Identity> ids);
  // Removes blocks that were erased.
  void forget(std::span<const Identity> ids);
  void forget(FamilyId family);
  void forget_all();
  void add_to(FamilyTable::Named& named) const;
  // Returns all entries at this time. `lost`: there were more than are remembered; set once.
  [[nodiscard]] std::vector<Entry> all(bool& lost);
  // Removes an entry that a flush has reported, unless it was stored again. False: it was gone already, or is another
  // one.
  bool remove_reported(const Entry& entry);
  // Returns true if the flush must still report the entry.
  [[nodiscard]] bool has(const Entry& entry) const;

 private:
  std::atomic<bool> wanted_{false};
  std::function<void()> on_many_;
  mutable Mutex mutex_;
  std::unordered_map<Identity, uint64_t, IdentityHash> numbers_ KVBM_GUARDED_BY(mutex_);
  uint64_t last_ KVBM_GUARDED_BY(mutex_) = 0;
  bool lost_ KVBM_GUARDED_BY(mutex_) = false;
  uint64_t looked_ KVBM_GUARDED_BY(mutex_) = 0;  // last_ at the last check or request for one
};

}  // namespace kvbm::manager
