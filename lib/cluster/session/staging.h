// Staging: slots of equal size, cut from memory that the host registered with its transport. A slot is taken for one
// transfer and released when the transfer's token has ended, never earlier. A slot of an ended session stays taken
// (quarantined) until then. Bounded by construction. One thread at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "cluster/session/coded_slice.h"
#include "cluster/session/slice.h"
#include "cluster/session/wire.h"

namespace kvbm::cluster::session {

class Staging {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kMaxSlots = 1U << 15;     // a slot's index is 15 bits of its transfer's name
  static constexpr size_t kAlignment = 64;            // streaming copies need it
  static constexpr uint64_t kSharedAlignment = 4096;  // of slots in shared memory, which hold payloads only

  // Returns the size of a slot for slices of up to `slice_bytes` bytes, plain or coded.
  static constexpr uint64_t slot_bytes_for(uint32_t slice_bytes) noexcept {
    const uint32_t leaves = max_leaves(slice_bytes);
    const uint64_t plain = slice_front_bytes(leaves) + slice_bytes;
    return round_up(std::max(plain, coded_slice_room(leaves, slice_bytes)), 4096);
  }
  // `memory` is borrowed, must be aligned to kAlignment, and must hold at least one slot.
  static Result<Staging> make(MutableBytes memory, uint32_t slice_bytes) {
    if (slice_bytes < kMinSliceBytes || slice_bytes > kMaxSliceBytes) {
      return Status(Code::invalid_argument, "staging refused",
                    "slices of " + std::to_string(slice_bytes) + " bytes, must be " + std::to_string(kMinSliceBytes) +
                        " to " + std::to_string(kMaxSliceBytes));
    }
    const uint64_t each = slot_bytes_for(slice_bytes);
    if (memory.size() < each || reinterpret_cast<uintptr_t>(memory.data()) % kAlignment != 0) {
      return Status(Code::invalid_argument, "staging refused",
                    std::to_string(memory.size()) + " bytes; a slot takes " + std::to_string(each) + ", aligned to " +
                        std::to_string(kAlignment));
    }
    Staging s;
    s.base_ = memory.data();
    s.slice_bytes_ = slice_bytes;
    s.slots_ = static_cast<uint32_t>(std::min<uint64_t>(memory.size() / each, kMaxSlots));
    for (uint32_t i = s.slots_; i-- > 0;) s.free_.push_back(i);
    return s;
  }

  [[nodiscard]] uint32_t slice_bytes() const noexcept { return slice_bytes_; }
  [[nodiscard]] uint32_t slots() const noexcept { return slots_; }
  [[nodiscard]] uint32_t free() const noexcept { return static_cast<uint32_t>(free_.size()); }
  // Takes a slot; kNone when all are taken. The last one released is taken first: it is still in the cache.
  uint32_t take() noexcept {
    if (free_.empty()) return kNone;
    const uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give(uint32_t slot) noexcept { free_.push_back(slot); }  // capacity was reserved by make
  [[nodiscard]] std::byte* data(uint32_t slot) const noexcept { return base_ + slot * slot_bytes_for(slice_bytes_); }

 private:
  Staging() = default;
  std::byte* base_ = nullptr;
  uint32_t slice_bytes_ = 0;
  uint32_t slots_ = 0;
  std::vector<uint32_t> free_;
};

// Names of transfers: base (16 bits) | serial (32) | payload alone (1) | slot (15). Used as tag and as token; the
// serial distinguishes a slot's present transfer from earlier ones. If front and payload are sent apart, the front
// has the name of the whole.
class TransferNames {
 public:
  explicit TransferNames(uint16_t base) noexcept : base_(base) {}
  uint64_t next(uint32_t slot) noexcept { return uint64_t{base_} << 48 | uint64_t{++serial_} << 16 | slot; }
  [[nodiscard]] static uint32_t slot_of(uint64_t name) noexcept { return static_cast<uint32_t>(name & 0x7FFF); }
  [[nodiscard]] static uint64_t payload_of(uint64_t name) noexcept { return name | kPayloadBit; }
  [[nodiscard]] static uint64_t whole_of(uint64_t name) noexcept { return name & ~kPayloadBit; }
  [[nodiscard]] static bool is_payload(uint64_t name) noexcept { return (name & kPayloadBit) != 0; }
  [[nodiscard]] bool mine(uint64_t name) const noexcept { return name >> 48 == base_; }

 private:
  uint16_t base_;
  uint32_t serial_ = 0;
};

}  // namespace kvbm::cluster::session
