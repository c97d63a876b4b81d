// AES-256-GCM of OpenSSL, one message after another under one key: shared by sealing records (seal.h) and protecting
// connections (copy/frame_guard.h). A message of associated bytes only is GMAC.
//
// Thread: one at a time. Allocates in open() only. After a call that returns false, only begin() may be called.
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

  // Must be called first: allocates. no_memory, or internal if libcrypto has no such cipher.
  Status open() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return context_ != nullptr; }
  [[nodiscard]] bool set_key(const uint8_t* key) noexcept;

  // One message: begin(), associate() and pass() as often as needed, then finish() or verify(). A nonce must seal only
  // once under a key, whatever the message is.
  [[nodiscard]] bool begin(const Nonce& nonce, Use use) noexcept;
  // Pieces of at most INT_MAX bytes.
  [[nodiscard]] bool associate(ConstBytes bytes) noexcept;
  // Enciphers or deciphers; `to` may equal `from`.
  [[nodiscard]] bool pass(ConstBytes from, std::byte* to) noexcept;
  [[nodiscard]] bool finish(std::byte* tag) noexcept;
  // Takes time that does not depend on the tags. False also if libcrypto fails: the message must not be used then.
  [[nodiscard]] bool verify(const std::byte* tag) noexcept;

 private:
  evp_cipher_ctx_st* context_ = nullptr;
};

}  // namespace kvbm::codec
