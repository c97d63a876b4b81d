// Protocol of the socket: one frame a datagram (SOCK_SEQPACKET keeps their bounds), the hello first.
//
//   hello:  64 bytes: magic u64 | version u32 | flags u32, zero | 48 bytes, zero
//   others: kind u16 | 0 u16 | length u32 | tag u64 | total u64 | offset u64 | `length` bytes      (little-endian)
//
//   kind 1  a message of `length` bytes; tag, total and offset are 0
//   kind 2  bytes [offset, offset + length) of a push of `total` bytes to `tag`; pushes are sent one after the other,
//           and an empty push is one empty frame
//   kind 3  a pool: kOfferBytes bytes, and one descriptor; the only frame that may carry any
//
// Size and magic of the hello and the place of the version are equal in all versions. A frame is checked as a whole
// before it is used.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "copy/transport_abi.h"

namespace kvbm::copy::local {

inline constexpr uint32_t kLinkVersion = 1;
inline constexpr size_t kHelloBytes = 64;
inline constexpr size_t kFrameHeaderBytes = 32;
inline constexpr uint32_t kFrameBodyBytes = KVBM_TRANSPORT_MESSAGE_BYTES;
inline constexpr size_t kFrameBytes = kFrameHeaderBytes + kFrameBodyBytes;

enum class FrameKind : uint16_t { message = 1, push = 2, pool = 3 };

struct FrameHeader {
  FrameKind kind = FrameKind::message;
  uint32_t length = 0;
  uint64_t tag = 0;
  uint64_t total = 0;
  uint64_t offset = 0;
};

void encode_hello(std::byte* out) noexcept;
// Returns ok; newer_version if the peer has another version (named in the detail); damaged if the bytes are no hello.
Status check_hello(ConstBytes bytes);

void encode(const FrameHeader& header, std::byte* out) noexcept;

// Checks the order of frames: pushes come complete and in order.
class FrameOrder {
 public:
  // Null if `frame`, a whole datagram that came with n_fds descriptors, is allowed now; else the reason, static text.
  const char* accept(ConstBytes frame, size_t n_fds, bool admitted, FrameHeader& out) noexcept;

 private:
  uint64_t tag_ = 0;
  uint64_t total_ = 0;  // 0: no push is unfinished
  uint64_t next_ = 0;
};

}  // namespace kvbm::copy::local
