// Protects one direction of a connection. Every frame gets a tag that cannot be forged without the key, over its
// header, its payload and the number of frames before it. So a frame that was changed, repeated, left out, moved or
// sent back to its sender does not verify. A transport that checks each tag before it reports a frame gives its host
// the bytes that were sent, in their order, or none.
//
//   tag = AES-256-GCM(key of the direction, nonce = four zero bytes | u64 number of the frame, from 0, little endian)
//   authenticate: header and payload are associated data (GMAC), and travel as they are
//   encrypt:      the header is associated data, the payload is enciphered
//
// The number is not sent. A key is used for one direction of one connection, so no nonce repeats under a key. The
// amount of data per key is limited (kMostBlocks): beyond it begin() refuses, and the connection must be made anew,
// with new keys.
//
// Thread: one at a time. Allocates in make() only. Budget: 0.3 us a frame, plus OpenSSL's time for its bytes
// (tcp/README.md has figures).
#pragma once

#include <array>
#include <memory>

#include "base/bytes.h"
#include "base/status.h"
#include "codec/seal/aes_gcm.h"

namespace kvbm::copy {

// Values are those of copy/transport_abi.h and of the handshake (cluster/README.md).
enum class Protection : uint8_t { off = 0, authenticate = 1, encrypt = 2 };
const char* protection_name(Protection how) noexcept;

class FrameGuard {
 public:
  static constexpr size_t kTagBytes = codec::AesGcm::kTagBytes;
  static constexpr size_t kKeyBytes = codec::AesGcm::kKeyBytes;
  // Most blocks of 16 bytes per key, counting three more for each frame: 1 PiB. An observer of all of it distinguishes
  // it from random bytes with a probability of 2^-37 (2^(2 * 46) / 2^129, the bound of counter mode).
  static constexpr uint64_t kMostBlocks = uint64_t{1} << 46;

  // how: not off. no_memory, or internal if libcrypto fails.
  static Result<std::unique_ptr<FrameGuard>> make(Protection how, const uint8_t* key,
                                                  uint64_t most_blocks = kMostBlocks);

  // Begins the next frame, with its header and the number of bytes that follow. closed: the key has reached its limit.
  [[nodiscard]] Code begin(ConstBytes header, uint64_t payload_bytes, codec::AesGcm::Use use) noexcept;
  // Processes the next bytes of an outgoing frame's payload. Enciphered bytes go to `to`, which may be the same place;
  // otherwise `to` is not used.
  [[nodiscard]] bool seal(ConstBytes from, std::byte* to) noexcept;
  [[nodiscard]] bool finish(std::byte* tag) noexcept { return gcm_.finish(tag); }
  // Processes the next bytes of an incoming frame's payload, deciphered in place. They must not be used before verify()
  // has returned true.
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
