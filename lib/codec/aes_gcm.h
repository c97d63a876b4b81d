// AES-256-GCM of OpenSSL, one message after another under one key: what sealing records (seal.h) and protecting
// connections (copy/frame_guard.h) share. A message of associated bytes alone is GMAC.
//
// Thread: one at a time. Allocates in open() alone. A call that says false leaves nothing that may be used but begin().
#pragma once

#include <array>
#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"

struct evp_cipher_ctx_st;

namespace kvbm::codec {

class AesGcm {
 public:
  static constexpr size_t kKeyBytes = 32;
  static constexpr size_t kTagBytes = 16;
  static constexpr size_t kNonceBytes = 12;
  using Nonce = std::array<uint8_t, kNonceBytes>;
  enum class Use : uint8_t { seal, open };

  AesGcm() noexcept = default;
  AesGcm(AesGcm&& other) noexcept;
  AesGcm& operator=(AesGcm&& other) noexcept;
  ~AesGcm();  // wipes

  // Before anything else: takes memory. no_memory, or internal where libcrypto has no such cipher.
  Status open() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return context_ != nullptr; }
  [[nodiscard]] bool set_key(const uint8_t* key) noexcept;

  // One message: begin(), associate() as often as there is something, pass() likewise, then finish() or verify(). A nonce
  // seals once under a key, whatever the message is.
  [[nodiscard]] bool begin(const Nonce& nonce, Use use) noexcept;
  // Pieces of at most INT_MAX bytes.
  [[nodiscard]] bool associate(ConstBytes bytes) noexcept;
  // Enciphers or deciphers; `to` may be where `from` is.
  [[nodiscard]] bool pass(ConstBytes from, std::byte* to) noexcept;
  [[nodiscard]] bool finish(std::byte* tag) noexcept;
  // In time that does not depend on the tags. False also where libcrypto fails: nothing of the message counts then.
  [[nodiscard]] bool verify(const std::byte* tag) noexcept;

 private:
  evp_cipher_ctx_st* context_ = nullptr;
};

}  // namespace kvbm::codec
