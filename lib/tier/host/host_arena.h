// The bytes of the host tier: one payload area and one head area per slot, in one mapping.
//
//   [ super page | payloads: slots x payload_stride | heads: slots x head_stride | marks: slots x 8, in a file alone ]
//
// Payloads are page-aligned, so that disks read and write them directly. A slot's head is valid only while its first
// word is the record magic: it is written last and cleared first (readers still verify).
//
// With a file in tmpfs or hugetlbfs a restarted process finds blocks again (recovered()): exactly those with a mark
// that equals the checksum of their head. The block table sets a mark when a block becomes findable. It clears the mark
// before the slot gets other bytes, and for good when the block is forgotten. So at whatever moment the process dies,
// the blocks found afterwards are those that lookups would have found. The super page is host_file.h. The file has one
// owner: in_use for a second one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/memory/memory.h"
#include "base/status.h"
#include "tier/host/host_file.h"

namespace kvbm::tier {

struct HostOptions {
  uint64_t capacity_bytes = 0;  // hard cap, heads included
  uint64_t block_bytes = 0;     // largest payload of a record
  std::string file;             // empty: anonymous memory
  bool huge_pages = true;       // explicit huge pages if reserved, else transparent ones
  bool interleave = false;      // over all NUMA nodes
  uint32_t touch_threads = 0;   // fault all pages in now with this many threads; 0: at first use
  bool shared = false;          // other processes may map it read-only; not with a file
};

// Offsets in the mapping, for other processes that map it. Slot s has its payload at payload_at + s * payload_stride
// and its head at head_at + s * head_stride.
struct HostShape {
  uint64_t bytes = 0;  // of the mapping
  uint64_t block_bytes = 0;
  uint64_t payload_at = 0;
  uint64_t payload_stride = 0;
  uint64_t head_at = 0;
  uint64_t head_stride = 0;
  uint64_t slots = 0;
  bool operator==(const HostShape&) const = default;
};

class HostArena {
 public:
  static Result<std::unique_ptr<HostArena>> create(const HostOptions& options);

  [[nodiscard]] uint32_t slots() const noexcept { return slots_; }
  [[nodiscard]] uint64_t block_bytes() const noexcept { return block_bytes_; }
  [[nodiscard]] uint64_t capacity_bytes() const noexcept { return capacity_bytes_; }
  // Bytes of the mapping that one slot takes.
  [[nodiscard]] uint64_t slot_bytes() const noexcept { return payload_stride_ + head_stride_ + mark_stride_; }
  [[nodiscard]] MutableBytes payload(SlotId slot) const noexcept {
    return {payloads_ + payload_stride_ * slot, payload_stride_};
  }
  // All payloads, one after the other.
  [[nodiscard]] MutableBytes payloads() const noexcept { return {payloads_, payload_stride_ * slots_}; }
  [[nodiscard]] MutableBytes head(SlotId slot) const noexcept { return {heads_ + head_stride_ * slot, head_stride_}; }
  [[nodiscard]] HostShape shape() const noexcept;
  // Descriptor of the memory, to pass to readers; -1 unless it is shared.
  [[nodiscard]] int fd() const noexcept { return memory_->fd(); }
  // Invalidates the head, before the payload changes.
  void clear_head(SlotId slot) const noexcept;
  // True when a file with the same shape was there before: its marks say which heads are valid.
  [[nodiscard]] bool recovered() const noexcept { return recovered_; }
  // One word a slot (block::BlockTable::Options); empty without a file.
  [[nodiscard]] std::span<uint64_t> marks() const noexcept { return marks_; }
  // The mark of a slot that has a head.
  [[nodiscard]] uint64_t mark_of(SlotId slot) const noexcept;
  // Epochs of namespaces, kept in the file; 0 without one. One caller at a time.
  [[nodiscard]] uint64_t epoch(const NamespaceId& base_id) const noexcept {
    return file_.has_value() ? file_->epoch(base_id) : 0;
  }
  [[nodiscard]] std::vector<EpochRow> epochs() const {
    return file_.has_value() ? file_->epochs() : std::vector<EpochRow>();
  }
  void set_epoch(const NamespaceId& base_id, uint64_t epoch, bool foreign = false) noexcept {
    if (file_.has_value()) file_->set_epoch(base_id, epoch, foreign);
  }
  void forget_epoch(const NamespaceId& base_id) noexcept {
    if (file_.has_value()) file_->forget_epoch(base_id);
  }
  // Writes marks and epochs to the file's disk, if it is on one: so a power cut brings back nothing that was forgotten.
  Status sync() const noexcept;
  // One line: size, kind of pages, NUMA nodes.
  [[nodiscard]] std::string describe() const;

  // Room for the head of a record of block_bytes cut as finely as one leaf per 4 KiB.
  static size_t head_stride(uint64_t block_bytes) noexcept;

 private:
  HostArena() = default;
  void open_file();
  uint64_t capacity_bytes_ = 0;
  uint64_t block_bytes_ = 0;
  uint64_t payload_stride_ = 0;
  uint64_t head_stride_ = 0;
  uint64_t mark_stride_ = 0;
  uint32_t slots_ = 0;
  bool recovered_ = false;
  std::byte* payloads_ = nullptr;
  std::byte* heads_ = nullptr;
  std::span<uint64_t> marks_;
  std::optional<HostFile> file_;
  std::unique_ptr<Arena> memory_;
};

}  // namespace kvbm::tier
