// HMAC-SHA256 (RFC 2104) with the key's two compressions done once, and HKDF (RFC 5869) over it.
//
// Why not GMAC or Poly1305: there is no nonce that would reveal the key if it were repeated, and one primitive serves
// handshake, derivation and messages. With SHA instructions it is cheap where it matters: 106 ns for 40 bytes, 177 ns
// for 168, 36 us for 64 KiB on the build machine (EVP's HMAC costs about 500 ns more per message: it allocates).
// Budget: no allocation, no lock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/bytes.h"

namespace kvbm {

inline constexpr size_t kMacBytes = 32;  // one output of SHA-256
// The authentication code of a message, or a key that was derived.
using Mac = std::array<uint8_t, kMacBytes>;

class KeyedMac {
 public:
  explicit KeyedMac(ConstBytes key) noexcept;  // of any length
  explicit KeyedMac(const std::array<uint8_t, 32>& key) noexcept : KeyedMac(std::as_bytes(std::span(key))) {}
  KeyedMac(const KeyedMac&) = default;
  KeyedMac& operator=(const KeyedMac&) = default;
  ~KeyedMac();  // wipes

  [[nodiscard]] Mac operator()(ConstBytes bytes) const noexcept {
    return (*this)(std::initializer_list<ConstBytes>{bytes});
  }
  // Returns the code of the parts, taken as one message.
  [[nodiscard]] Mac operator()(std::initializer_list<ConstBytes> parts) const noexcept;

 private:
  static constexpr size_t kStateBytes = 112;  // SHA256_CTX, asserted in the source
  using State = std::array<std::byte, kStateBytes>;
  State inner_;
  State outer_;
};

// HKDF-Extract(salt, input), both of any length.
[[nodiscard]] Mac hkdf_extract(ConstBytes salt, ConstBytes input) noexcept;
// HKDF-Expand(key, info) into all of `out`. False: more than 255 x 32 bytes wanted, nothing is written.
[[nodiscard]] bool hkdf_expand(const Mac& key, ConstBytes info, MutableBytes out) noexcept;

// Compares in time that does not depend on the contents.
bool equal_secret(ConstBytes a, ConstBytes b) noexcept;
// Zeroes memory in a way that the compiler does not remove.
void wipe(void* data, size_t bytes) noexcept;

}  // namespace kvbm
