// A tier's own memory for coded records in transit. Buffers are kept for the next use. The sum never exceeds the
// budget, except for a single larger buffer when nothing else is in use. No lock: the owner's.
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

  // Returns a kIoAlign-aligned buffer. nullopt: none now, a buffer in use must be returned first. data() is null: there
  // is no memory, and no buffer in use that could be returned.
  std::optional<Buffer> take(uint64_t bytes);
  void give(Buffer buffer);
  [[nodiscard]] uint64_t bytes() const noexcept { return in_use_ + kept_; }

 private:
  // Sizes are rounded up to this, so that records of similar size reuse each other's buffers.
  static constexpr uint64_t kStep = 64 << 10;
  void make_room(uint64_t bytes);

  const uint64_t budget_;
  uint64_t in_use_ = 0;
  uint64_t kept_ = 0;
  std::vector<Buffer> free_;
};

}  // namespace kvbm::tier::coded
