// What protects one direction of a connection: every frame gets a tag that nobody can make without the key, over its
// header and its payload, and over how many frames went before it. So a frame that was changed, repeated, left out,
// moved or sent back to its sender does not fit, and a transport that checks each tag before it tells of a frame gives
// its host the bytes that were sent, in their order, or none.
//
//   tag = AES-256-GCM(key of the direction, nonce = four zero bytes | u64 number of the frame, from 0, little endian)
//   authenticate: header and payload are associated data (GMAC), and travel as they are
//   encrypt:      the header is associated data, the payload is enciphered
//
// The number is not sent. A key is one direction's of one connection, so no nonce comes twice under a key. What a key
// may cover is bounded (kMostBlocks): beyond it begin() refuses, and the connection has to be made anew, with new keys.
//
// Thread: one at a time. Allocates in make() alone. Budget: 0.3 us a frame, and what OpenSSL takes for its bytes
// (tcp/README.md has figures).
#pragma once

#include <array>
#include <memory>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/aes_gcm.h"

namespace kvbm::copy {

// Numbers are those of copy/transport_abi.h and of the handshake (cluster/README.md).
enum class Protection : uint8_t { off = 0, authenticate = 1, encrypt = 2 };
const char* protection_name(Protection how) noexcept;

class FrameGuard {
 public:
  static constexpr size_t kTagBytes = codec::AesGcm::kTagBytes;
  static constexpr size_t kKeyBytes = codec::AesGcm::kKeyBytes;
  // Blocks of 16 bytes that one key covers at most, with three more for each frame: 1 PiB. Then somebody who sees all of
  // it tells it from random bytes with a chance of 2^-37 (2^(2 * 46) / 2^129, the bound of counter mode).
  static constexpr uint64_t kMostBlocks = uint64_t{1} << 46;

  // how: not off. no_memory, or internal where libcrypto fails.
  static Result<std::unique_ptr<FrameGuard>> make(Protection how, const uint8_t* key, uint64_t most_blocks = kMostBlocks);

  // The next frame: its header, and how many bytes follow. closed: the key has covered what it may.
  [[nodiscard]] Code begin(ConstBytes header, uint64_t payload_bytes, codec::AesGcm::Use use) noexcept;
  // Of a frame that leaves: the next bytes of its payload, into `to` where they are enciphered, which may be where they
  // are. Otherwise `to` is not looked at.
  [[nodiscard]] bool seal(ConstBytes from, std::byte* to) noexcept;
  [[nodiscard]] bool finish(std::byte* tag) noexcept { return gcm_.finish(tag); }
  // Of a frame that arrives: the next bytes of its payload, deciphered where they are. Nothing of them counts before
  // verify() has said true.
  [[nodiscard]] bool open(MutableBytes bytes) noexcept;
  [[nodiscard]] bool verify(const std::byte* tag) noexcept { return gcm_.verify(tag); }

  [[nodiscard]] Protection how() const noexcept { return how_; }
  [[nodiscard]] bool encrypts() const noexcept { return how_ == Protection::encrypt; }

 private:
  FrameGuard(Protection how, uint64_t most_blocks) noexcept : how_(how), blocks_left_(most_blocks) {}

  const Protection how_;
  codec::AesGcm gcm_;
  uint64_t frames_ = 0;
  uint64_t blocks_left_;
};

}  // namespace kvbm::copy
