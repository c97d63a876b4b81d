// Index of the records known to be in a store. Memory per record in packs of 64: 24 bytes an entry, 10 to 15 of the
// hash table, 3 of the pack: at most 48. A record is known by 64 bits of its name. A record that is read is checked
// against the whole identity, so equal bits cost a read and nothing else.
//
// Names come from all writers of index objects. So the place of a record in the hash table follows from its name and a
// secret key: a writer cannot choose names that meet in one place.
//
// Bounded by `max_bytes`: packs that would exceed it are not added. Lock: the owner's. find(): no allocation.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "tier/store/store_format.h"

namespace kvbm::tier::store {

// Place of a record.
struct StorePlace {
  uint32_t pack = UINT32_MAX;  // number in this process
  uint32_t entry = 0;
  uint32_t offset = 0;
  uint32_t head_bytes = 0;
  uint64_t payload_bytes = 0;
  [[nodiscard]] bool found() const noexcept { return pack != UINT32_MAX; }
  [[nodiscard]] uint64_t bytes() const noexcept { return head_bytes + payload_bytes; }
};

// An erasure of families that is made a page at a time: StoreIndex::erase_families().
struct FamilyErasure {
  std::unordered_map<uint32_t, uint64_t> until_ms;  // by the low half of a family's tag
  uint32_t next_pack = 0;                           // packs before it are done
  size_t erased = 0;                                // records
  // Adds the records of a family in packs made at `ms` or earlier.
  void add(uint64_t family, uint64_t ms) {
    uint64_t& until = until_ms[static_cast<uint32_t>(family)];
    until = std::max(until, ms);
  }
};

class StoreIndex {
 public:
  // `seed`: of the secret key. No answer depends on it.
  StoreIndex(uint64_t max_bytes, uint64_t seed);

  [[nodiscard]] StorePlace find(const RecordName& name) const noexcept;
  // Prefetches the cache line that find(name) reads.
  void prefetch(const RecordName& name) const noexcept;
  // Adds a pack. A record that is known already stays where the younger pack has it. At most `counted` of the pack's
  // bytes count in stored_bytes(). False: there is no space, or the pack is known.
  bool add(const PackRow& pack, uint64_t counted = UINT64_MAX);
  [[nodiscard]] bool knows(const Stamp& stamp) const noexcept { return by_stamp_.contains(stamp); }
  // Forgets a pack with all its records; returns the number of records that were found in it.
  size_t drop(const Stamp& stamp);
  // Forgets one record. False: it is not known, or lies in a pack made after `until_ms`.
  bool erase(const RecordName& name, uint64_t until_ms = UINT64_MAX) noexcept;
  // Forgets the records of families. Ends after the pack with which `entries` records were compared, so that the owner
  // can release its lock; returns true if packs are left: call it again. All families take one pass together.
  bool erase_families(FamilyErasure& erasure, size_t entries);
  // True if some record is of this family, or of one with the same half of its tag.
  [[nodiscard]] bool has_family(uint64_t family) const noexcept {
    return families_.contains(static_cast<uint32_t>(family));
  }

  [[nodiscard]] const Stamp& stamp(uint32_t pack) const noexcept { return packs_[pack].stamp; }
  // Returns the oldest pack; null if there is none.
  [[nodiscard]] const Stamp* oldest() const noexcept { return by_stamp_.empty() ? nullptr : &by_stamp_.begin()->first; }
  void for_each_pack(const std::function<void(const Stamp&, uint64_t bytes)>& visit) const;

  [[nodiscard]] uint64_t records() const noexcept { return live_; }
  [[nodiscard]] uint64_t packs() const noexcept { return by_stamp_.size(); }
  [[nodiscard]] uint64_t stored_bytes() const noexcept { return stored_bytes_; }    // of packs
  [[nodiscard]] uint64_t payload_bytes() const noexcept { return payload_bytes_; }  // of records
  [[nodiscard]] uint64_t memory_bytes() const noexcept;
  // Largest distance of a record from its place in the hash table. Compares every slot.
  [[nodiscard]] size_t longest_probe() const noexcept;
  void clear();

 private:
  static constexpr uint32_t kParts = 64;
  static constexpr uint64_t kEmpty = UINT64_MAX;
  struct Entry {
    uint64_t name = 0;
    uint32_t offset = 0;
    uint32_t payload_bytes = 0;
    uint32_t head_bytes = 0;  // 0: forgotten
    uint32_t family = 0;      // the low half of its tag
  };
  static_assert(sizeof(Entry) == 24);
  struct Pack {
    Stamp stamp;
    uint64_t bytes = 0;  // counted
    uint32_t n = 0;
    uint32_t live = 0;
    std::unique_ptr<Entry[]> entries;  // null: free
  };
  // A slot: pack (32 bits), entry (16), 16 bits of the name's hash. Open addressing with linear probing.
  struct Part {
    std::vector<uint64_t> slots;
    uint32_t live = 0;
  };

  static uint64_t slot_of(uint32_t pack, uint32_t entry, uint64_t hash) noexcept {
    return static_cast<uint64_t>(pack) << 32 | static_cast<uint64_t>(entry) << 16 | (hash & 0xFFFF);
  }
  [[nodiscard]] const Entry& entry_of(uint64_t slot) const noexcept {
    return packs_[slot >> 32].entries[slot >> 16 & 0xFFFF];
  }
  // The high bits of a hash choose the part, the low ones are in the slot, and those between choose the place.
  [[nodiscard]] uint64_t hash_of(uint64_t name) const noexcept;
  Part& part_of(uint64_t hash) noexcept { return parts_[hash >> 58]; }
  [[nodiscard]] static size_t home(const Part& part, uint64_t hash) noexcept;
  // Returns the slot's place, or SIZE_MAX.
  [[nodiscard]] size_t seek(const Part& part, uint64_t hash, uint64_t name) const noexcept;
  void insert(uint64_t hash, uint64_t slot);
  void remove(Part& part, size_t at) noexcept;
  void grow(Part& part);
  void forget(uint32_t pack, Entry& entry) noexcept;

  const uint64_t max_bytes_;
  std::array<uint64_t, 2> key_{};
  std::array<Part, kParts> parts_;
  std::vector<Pack> packs_;
  std::vector<uint32_t> free_;
  std::map<Stamp, uint32_t> by_stamp_;
  std::unordered_map<uint32_t, uint64_t> families_;  // records by the low half of a tag
  uint64_t live_ = 0, slots_ = 0, entries_ = 0, stored_bytes_ = 0, payload_bytes_ = 0;
};

}  // namespace kvbm::tier::store
