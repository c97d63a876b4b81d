// First page of a host tier's named file: the shape of the tier, and the epochs of invalidated namespaces.
//
//   [ magic, version, block bytes, slots, floor, foreign row bits | rows of (base id, epoch) ]
//
// A process can be killed between any two stores, so each of them leaves a valid page: a row counts by its epoch, which
// is written last. The page cannot hold a row for every namespace. A row that is replaced raises the floor: the epoch
// at which namespaces without a row begin after a restart. So an epoch that has ended stays ended, and a namespace that
// was never invalidated loses hits only. At most a quarter of the rows are foreign (tier::EpochRow). A foreign row is
// the first to be replaced, without raising the floor; a new foreign row replaces foreign rows only.
// Thread: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "tier/tier.h"

namespace kvbm::tier {

class HostFile {
 public:
  static constexpr size_t kBytes = 4096;

  // `page`: kBytes of the mapping, 8-byte aligned. It must outlive this object.
  HostFile(std::byte* page, uint64_t block_bytes, uint64_t slots) noexcept
      : page_(page), block_bytes_(block_bytes), slots_(slots) {}

  // True if a file that begins with this page (kBytes of it) belongs to a host tier, of whatever version and shape, or
  // is still empty. Any other file belongs to another program.
  [[nodiscard]] static bool is_one(std::span<const std::byte> page) noexcept;
  // True if the file has this version and shape. Its blocks and epochs may be read only then.
  [[nodiscard]] bool begin() noexcept;
  // forget() marks the file as one without a shape until it is rewritten; found() gives it this shape, and no epochs.
  void forget() noexcept;
  void found() noexcept;

  // Returns the namespace's epoch as far as it is written here.
  [[nodiscard]] uint64_t epoch(const NamespaceId& base_id) const noexcept;
  // Raises the epoch, never lowers it.
  void set_epoch(const NamespaceId& base_id, uint64_t epoch, bool foreign = false) noexcept;
  // Drops the namespace's row.
  void forget_epoch(const NamespaceId& base_id) noexcept;
  [[nodiscard]] std::vector<EpochRow> epochs() const;

  // Layout of the page: a header, then kRows rows, one for each namespace with an epoch of its own. Namespaces that
  // only peers have named get at most kForeignRows of them.
  static constexpr size_t kHeaderBytes = 64;
  static constexpr size_t kRowBytes = 24;
  static constexpr size_t kRows = (kBytes - kHeaderBytes) / kRowBytes;
  static constexpr size_t kForeignRows = kRows / 4;

 private:
  [[nodiscard]] std::byte* row(size_t i) const noexcept { return page_ + kHeaderBytes + i * kRowBytes; }
  [[nodiscard]] size_t find(const NamespaceId& base_id) const noexcept;
  [[nodiscard]] size_t make_row(bool foreign) noexcept;
  [[nodiscard]] bool is_foreign(size_t i) const noexcept;
  void mark_foreign(size_t i, bool yes) noexcept;

  std::byte* page_;
  uint64_t block_bytes_;
  uint64_t slots_;
  uint64_t floor_ = 0;  // the floor when the file was opened: this process itself forgets nothing
};

}  // namespace kvbm::tier
