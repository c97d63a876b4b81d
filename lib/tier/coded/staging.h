// Memory of a tier's own that coded records pass through: taken when it is needed, kept for the next, never more than
// the budget (but one buffer that alone is larger, when nothing else is in use). No lock: the owner's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tier/disk/aligned_buffer.h"

namespace kvbm::tier::coded {

class Staging {
 public:
  using Buffer = disk::AlignedBuffer;
  explicit Staging(uint64_t budget_bytes) noexcept : budget_(budget_bytes) {}

  // kIoAlign-aligned. Nothing: not now, something in use has to come back first. data() is null: there is no memory,
  // and nothing in use that could come back.
  std::optional<Buffer> take(uint64_t bytes);
  void give(Buffer buffer);
  [[nodiscard]] uint64_t bytes() const noexcept { return in_use_ + kept_; }

 private:
  // Sizes are rounded up to this, so that records of about one size use each other's buffers.
  static constexpr uint64_t kStep = 64 << 10;
  void make_room(uint64_t bytes);

  const uint64_t budget_;
  uint64_t in_use_ = 0;
  uint64_t kept_ = 0;
  std::vector<Buffer> free_;
};

}  // namespace kvbm::tier::coded
