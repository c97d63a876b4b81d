// The header in front of everything on a connection (README.md), and the rule which header may follow which. A header
// is checked here before it is used. On a protected connection a tag follows each frame (copy/frame_guard.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace kvbm::copy::tcp {

inline constexpr size_t kHeaderBytes = 32;
inline constexpr uint32_t kMagic = 0x314D564BU;  // "KVM1" in memory
// Bulk is sent in pieces of this size, so that a message waits for no more than one of them: 0.2 ms at 10 Gbit/s.
// Received pieces may have any size.
inline constexpr uint32_t kChunkBytes = 256U << 10;
// Largest frame with a tag: its bytes must not be used before the tag. And the largest that this side sends, which it
// reads (and enciphers) first: small enough to be in a CPU cache when the kernel copies it.
inline constexpr uint32_t kMostGuardedBytes = 256U << 10;
inline constexpr uint32_t kGuardedChunkBytes = 128U << 10;

enum class Kind : uint16_t {
  message = 1,  // `length` bytes of a message
  bulk = 2,     // the first `length` bytes of a push of `total` bytes to `tag`
  more = 3,     // the next `length` bytes of it
};

struct Header {
  Kind kind = Kind::message;
  uint32_t length = 0;
  uint64_t tag = 0;
  uint64_t total = 0;
};

void encode(const Header& header, std::byte* out) noexcept;

// State of a stream of frames: takes headers, returns the reason of a refusal.
class FrameOrder {
 public:
  // Null if the kHeaderBytes bytes at `bytes` are a header that is allowed now; else the reason, static text.
  const char* accept(const std::byte* bytes, bool admitted, bool guarded, Header& out) noexcept;
  // Bytes of the current push that have no frame yet.
  [[nodiscard]] uint64_t rest() const noexcept { return rest_; }

 private:
  uint64_t rest_ = 0;
};

}  // namespace kvbm::copy::tcp
