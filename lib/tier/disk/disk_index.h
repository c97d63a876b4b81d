// The disk tier's index: identity -> where its record lies. Memory per record: a 40-byte entry in a
// paged array and a 4-byte number with a 1-byte tag in a table of 64-byte chunks of 12 (after F14,
// Folly): at loads of 0.72 to 0.86 that is 46.2 to 47.4 bytes, the bound being 48. The table is cut
// into 64 parts that grow on their own by a fifth, so no insert ever moves more than a 64th of it.
//
// Entry numbers are stable while the record is there: scan() uses them as its cursor. Bounded by
// `max_bytes`. Lock: the owner's. Per lookup: no allocation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "tier/disk/disk_families.h"
#include "tier/disk/segment_format.h"

namespace kvbm::tier::disk {

struct IndexEntry {
  Key key;
  uint16_t family = 0;    // its number in DiskFamilies
  uint8_t children = 0;   // records here that name this one as parent; saturates; a hint
  uint8_t uses = 0;       // saturates
  uint32_t location = 0;  // segment * pages per segment + page; 0 marks a free entry
  uint32_t last_use = 0;  // seconds of the tier's clock
  uint32_t parent = 0;    // entry number or kNone; may be of a record that is gone; link of the free list while free
  uint64_t head : RecordPlace::kHeadBits = 0;  // RecordPlace::packed(), but for kShares,
  uint64_t shares : 1 = 0;                     // holds kShares
  uint64_t payload_bytes : 33 = 0;
  uint64_t priority : 2 = 0;
  uint64_t parent_tag : 6 = 0;  // of the parent's key

  // `page`: the page of `location`.
  [[nodiscard]] RecordPlace place(uint32_t page) const {
    RecordPlace out;
    out.page = page;
    out.unpack(static_cast<uint32_t>(head) | (shares != 0 ? RecordPlace::kShares : 0));
    out.payload_bytes = payload_bytes;
    return out;
  }
  [[nodiscard]] uint32_t head_bytes() const { return place(0).head_bytes; }
  [[nodiscard]] uint64_t bytes() const { return place(0).bytes(); }
  void set_place(const RecordPlace& at) {
    head = at.packed() & ((1U << RecordPlace::kHeadBits) - 1);
    shares = at.shares() ? 1 : 0;
    payload_bytes = at.payload_bytes & 0x1FFFFFFFFULL;
  }
};
static_assert(sizeof(IndexEntry) == 40);

class DiskIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit DiskIndex(uint64_t max_bytes);

  [[nodiscard]] uint32_t find(const Identity& id) const noexcept;
  // Returns the entry of `id`, new (location 0, for the caller to fill) or existing. kNone if the index or the table of
  // families is full. `fresh`: the entry is new.
  uint32_t insert(const Identity& id, bool& fresh);
  uint32_t insert(const Identity& id) {
    bool fresh = false;
    return insert(id, fresh);
  }
  // Makes room for `entries` at once: without it each entry is moved six times while the table grows. Unused room costs
  // 6 bytes an entry.
  void reserve(uint64_t entries);
  // Prefetches the chunk of `id`, ahead of find or insert.
  void prefetch(const Identity& id) const noexcept;
  void erase(uint32_t entry) noexcept;
  IndexEntry& at(uint32_t entry) noexcept { return pages_[entry / kPageEntries][entry % kPageEntries]; }
  [[nodiscard]] const IndexEntry& at(uint32_t entry) const noexcept {
    return pages_[entry / kPageEntries][entry % kPageEntries];
  }
  [[nodiscard]] Identity identity(const IndexEntry& e) const noexcept {
    return Identity{e.key, families_.at(e.family)};
  }
  [[nodiscard]] const DiskFamilies& families() const noexcept { return families_; }
  // Links `entry` to its parent. False: the parent is not here.
  bool link(uint32_t entry, const Identity& parent) noexcept;
  // Returns the entry of the parent; kNone if it was not here when linked, or is gone. A hint: if the entry was reused,
  // one time in 64 the new record in it is returned.
  [[nodiscard]] uint32_t parent_of(uint32_t entry) const noexcept {
    const IndexEntry& e = at(entry);
    if (e.parent >= used_ || at(e.parent).location == 0 || tag_of_key(at(e.parent).key) != e.parent_tag) return kNone;
    return e.parent;
  }

  [[nodiscard]] uint64_t size() const noexcept { return live_; }
  [[nodiscard]] uint32_t entries() const noexcept { return used_; }  // numbers are below this
  [[nodiscard]] bool full() const noexcept { return live_ >= max_entries_; }
  [[nodiscard]] uint64_t bytes() const noexcept;

 private:
  static constexpr uint32_t kPageEntries = 1024;
  static constexpr uint32_t kSlots = 12;
  static constexpr uint32_t kParts = 64;
  struct alignas(64) Chunk {
    std::array<uint8_t, kSlots> tags{};  // 0 = empty
    uint8_t overflow = 0;                // records that hash to this chunk and lie further on; sticks at 255
    std::array<uint8_t, 3> reserved{};
    std::array<uint32_t, kSlots> entries{};
  };
  static_assert(sizeof(Chunk) == 64);
  struct Part {
    std::vector<Chunk> chunks;
    uint32_t live = 0;
  };

  static uint64_t mix(const Identity& id) noexcept;
  static uint32_t tag_of_key(const Key& key) noexcept {
    return static_cast<uint32_t>((key.low() * 0x9E3779B97F4A7C15ULL) >> 58);
  }
  static void place(Part& part, uint64_t hash, uint32_t entry) noexcept;
  [[nodiscard]] uint32_t find(const Part& part, uint64_t hash, const Identity& id) const noexcept;
  void resize(Part& part, size_t chunks);
  Part& part_of(uint64_t hash) noexcept { return parts_[hash >> 58]; }

  DiskFamilies families_;
  std::array<Part, kParts> parts_;
  std::vector<std::unique_ptr<IndexEntry[]>> pages_;
  uint64_t live_ = 0;
  uint64_t max_entries_;
  uint32_t used_ = 0;
  uint32_t free_ = kNone;
};

}  // namespace kvbm::tier::disk
