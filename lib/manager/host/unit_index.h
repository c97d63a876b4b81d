// Finds stored blocks by the engine blocks they begin with.
//
// A stored block of several engine blocks has one key; a prompt that leaves it half way cannot name it. Blocks stored
// together with the engine's own keys are remembered here, so that their leading engine blocks are found. Remembers
// stores, not presence: the caller looks for a found block in the tiers. Budget: the newest `capacity` stored blocks;
// for each engine block 16 bytes and one entry of a hash map.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/thread/mutex.h"

namespace kvbm::manager {

class UnitIndex {
 public:
  explicit UnitIndex(size_t capacity) : capacity_(capacity) {}

  // Adds a stored block. Thread: any. Of two blocks that begin alike, the newer is found.
  void add(FamilyId family, const Key& stored, std::span<const Key> units) KVBM_EXCLUDES(mutex_);

  struct Found {
    Key stored;
    uint32_t units = 0;  // leading engine blocks that match; 0: none
  };
  // Returns the block that begins with the most of `units`, up to `below` of them. Thread: any.
  [[nodiscard]] Found find(FamilyId family, std::span<const Key> units, uint32_t below) const KVBM_EXCLUDES(mutex_);
  [[nodiscard]] uint64_t bytes() const KVBM_EXCLUDES(mutex_);

 private:
  struct Stored {
    Identity id;
    std::vector<Key> units;
  };
  struct Place {
    uint32_t stored = 0;  // in ring_
    uint32_t unit = 0;
  };

  void forget(uint32_t at) KVBM_REQUIRES(mutex_);

  const size_t capacity_;
  mutable Mutex mutex_;
  std::vector<Stored> ring_ KVBM_GUARDED_BY(mutex_);
  size_t next_ KVBM_GUARDED_BY(mutex_) = 0;  // the oldest, once the ring is full
  size_t units_ KVBM_GUARDED_BY(mutex_) = 0;
  std::unordered_map<Identity, Place, IdentityHash> places_ KVBM_GUARDED_BY(mutex_);  // looked up, never walked
};

}  // namespace kvbm::manager
