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
#include <string_view>

#include "base/bytes.h"

namespace kvbm::cluster {

using Mac = std::array<uint8_t, 32>;
// Zeroes memory in a way that the compiler does not remove.
void wipe(void* data, size_t bytes) noexcept;

// The key that both sides of a pool know (pool_key.h). Its destructor wipes every copy.
struct SharedKey : std::array<uint8_t, 32> {
  ~SharedKey() { wipe(data(), size()); }
};

class KeyedMac {
 public:
  explicit KeyedMac(const std::array<uint8_t, 32>& key) noexcept;
  KeyedMac(const KeyedMac&) = default;
  KeyedMac& operator=(const KeyedMac&) = default;
  ~KeyedMac();  // wipes

  [[nodiscard]] Mac operator()(ConstBytes bytes) const noexcept;

 private:
  static constexpr size_t kStateBytes = 112;  // SHA256_CTX, asserted in the source
  struct alignas(8) State {
    std::byte bytes[kStateBytes];
  };
  State inner_;
  State outer_;
};

// HKDF-Extract and one block of HKDF-Expand.
Mac hkdf_extract(const std::array<uint8_t, 32>& salt, const std::array<uint8_t, 32>& secret) noexcept;
Mac hkdf_expand(const Mac& extracted, std::string_view label) noexcept;

// Compares in time that does not depend on the contents.
bool equal_secret(ConstBytes a, ConstBytes b) noexcept;

}  // namespace kvbm::cluster
