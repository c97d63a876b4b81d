// What callers stored in a process of a shared tier set and no flush has found where it is to be: the flush asks for each of
// these by its name, so that its answer is about them, whatever became of them on the way.
//
// Long before anybody flushes there may be many: after every kMany somebody is asked to look where they are (on_many),
// which ends those that are in their place. Beyond kMost none is remembered, and the next flush does not say that all is
// well.
// Lock: mutex_, a leaf. Thread: any. Costs an allocation a block.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/family_table.h"
#include "base/ids.h"
#include "base/mutex.h"

namespace kvbm::manager {

class Unflushed {
 public:
  static constexpr size_t kMany = 64 * 1024;
  static constexpr size_t kMost = 4 * kMany;
  struct Entry {
    Identity id;
    uint64_t number = 0;  // of the storing: the same block stored again is another one
  };

  // Until this nothing is remembered. Before anything is stored, once.
  void begin(std::function<void()> on_many);
  [[nodiscard]] bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }
  void stored(std::span<const Identity> ids);
  // Nobody expects them anywhere any more.
  void forget(std::span<const Identity> ids);
  void forget(FamilyId family);
  void forget_all();
  void add_to(FamilyTable::Named& named) const;
  // Everything, as it is now. `lost`: there was more than is remembered, which is told once.
  [[nodiscard]] std::vector<Entry> all(bool& lost);
  // A flush has said what became of it: unless it was stored again, it is forgotten. False: it is nobody's any more, or
  // another one.
  bool told(const Entry& entry);
  // Whether the flush must still answer for it.
  [[nodiscard]] bool has(const Entry& entry) const;

 private:
  struct Hash {
    size_t operator()(const Identity& id) const noexcept { return id.hash(); }
  };
  std::atomic<bool> wanted_{false};
  std::function<void()> on_many_;
  mutable Mutex mutex_;
  std::unordered_map<Identity, uint64_t, Hash> numbers_ KVBM_GUARDED_BY(mutex_);
  uint64_t last_ KVBM_GUARDED_BY(mutex_) = 0;
  bool lost_ KVBM_GUARDED_BY(mutex_) = false;
  uint64_t looked_ KVBM_GUARDED_BY(mutex_) = 0;  // last_ when somebody looked, or was asked to
};

}  // namespace kvbm::manager
