// The header in front of everything on a connection (README.md), and the rule that says which header may follow which.
// What a header says is checked here before anything is done with it. Where the connection is protected a tag follows
// each frame (copy/frame_guard.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"

namespace kvbm::copy::tcp {

inline constexpr size_t kHeaderBytes = 32;
inline constexpr uint32_t kMagic = 0x314D564BU;  // "KVM1" in memory
// Bulk goes out in pieces of this size, so that a message waits for no more than one of them: 0.2 ms at 10 Gbit/s. What
// is received may come in pieces of any size that a sender's memory could have.
inline constexpr uint32_t kChunkBytes = 256U << 10;
// What a frame with a tag has at most: what came of it counts for nothing before the tag. And what this side sends in
// one, which it reads (and enciphers) first: little enough to be in a cache near the processor when the kernel copies it.
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

// The state of a stream of frames: headers in, the reason of a refusal out.
class FrameOrder {
 public:
  // Null when the kHeaderBytes bytes at `bytes` are a header that may come now; else what is wrong, static text.
  const char* accept(const std::byte* bytes, bool admitted, bool guarded, Header& out) noexcept;
  // Bytes of the push begun that have no frame yet.
  [[nodiscard]] uint64_t rest() const noexcept { return rest_; }

 private:
  uint64_t rest_ = 0;
};

}  // namespace kvbm::copy::tcp
