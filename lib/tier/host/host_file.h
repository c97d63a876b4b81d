// What a host tier in a named file says beside its blocks: the shape that it has, and how far namespaces were
// invalidated. It is the file's first page.
//
//   [ magic, version, block bytes, slots, floor, which rows are foreign | rows of (base id, epoch) ]
//
// A process can be killed between any two stores, so each of them leaves a page that says nothing wrong: a row counts by
// its epoch, which is written last. The page has no room for every namespace there may be: the row that goes for a new one
// raises the floor, an epoch that namespaces without a row begin at after a restart. So an epoch that has ended stays ended,
// and what a namespace that was never invalidated loses by it are hits. Rows that are foreign (tier::EpochRow) are a quarter at
// most: one of them goes for a new one, none takes the place of another, and none raises the floor.
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

  // `page`: kBytes of the mapping, 8-byte aligned, which outlive it.
  HostFile(std::byte* page, uint64_t block_bytes, uint64_t slots) noexcept
      : page_(page), block_bytes_(block_bytes), slots_(slots) {}

  // Whether a file that begins with this page (kBytes of it) is a host tier's, of whatever version and shape, or has
  // nothing in it yet. Any other is somebody's.
  [[nodiscard]] static bool is_one(std::span<const std::byte> page) noexcept;
  // Whether the file has this version and shape. Only then its blocks and epochs may be read.
  [[nodiscard]] bool begin() noexcept;
  // Says that the file has no shape, until it has been written as it must be; then that it has this one, and no epochs.
  void forget() noexcept;
  void found() noexcept;

  // The epoch that a namespace is at, as far as it is written here.
  [[nodiscard]] uint64_t epoch(const NamespaceId& base_id) const noexcept;
  // Raises it, never lowers it.
  void set_epoch(const NamespaceId& base_id, uint64_t epoch, bool foreign = false) noexcept;
  // The row is not needed any more.
  void forget_epoch(const NamespaceId& base_id) noexcept;
  [[nodiscard]] std::vector<EpochRow> epochs() const;

  // Namespaces that have a row of their own.
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
  uint64_t floor_ = 0;  // when the file was opened: in this process nothing is forgotten
};

}  // namespace kvbm::tier
