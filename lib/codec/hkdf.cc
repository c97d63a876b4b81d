// Uses the low-level SHA-256 calls, as key.cc does: EVP_KDF allocates and looks up a provider at each call.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "codec/hkdf.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstring>

namespace kvbm::codec {
namespace {

static_assert(SHA256_DIGEST_LENGTH == kDerivedKeyBytes);

void update(SHA256_CTX& sha, ConstBytes bytes) noexcept {
  if (!bytes.empty()) SHA256_Update(&sha, bytes.data(), bytes.size());  // libcrypto must not get a null pointer
}

// RFC 2104. Leaves no key bytes on the stack.
class Hmac {
 public:
  explicit Hmac(ConstBytes key) noexcept {
    std::array<uint8_t, SHA256_CBLOCK> block{};
    if (key.size() > block.size()) {
      SHA256_Init(&inner_);
      update(inner_, key);
      SHA256_Final(block.data(), &inner_);
    } else if (!key.empty()) {
      std::memcpy(block.data(), key.data(), key.size());
    }
    for (uint8_t& b : block) b ^= 0x36;
    SHA256_Init(&inner_);
    SHA256_Update(&inner_, block.data(), block.size());
    for (uint8_t& b : block) b ^= 0x36 ^ 0x5C;
    SHA256_Init(&outer_);
    SHA256_Update(&outer_, block.data(), block.size());
    OPENSSL_cleanse(block.data(), block.size());
  }
  ~Hmac() {
    OPENSSL_cleanse(&inner_, sizeof inner_);
    OPENSSL_cleanse(&outer_, sizeof outer_);
  }
  Hmac(const Hmac&) = delete;
  Hmac& operator=(const Hmac&) = delete;

  void add(ConstBytes bytes) noexcept { update(inner_, bytes); }
  void end(DerivedKey& out) noexcept {
    SHA256_Final(out.data(), &inner_);
    SHA256_Update(&outer_, out.data(), out.size());
    SHA256_Final(out.data(), &outer_);
  }

 private:
  SHA256_CTX inner_;
  SHA256_CTX outer_;
};

}  // namespace

DerivedKey hkdf_extract(ConstBytes salt, ConstBytes input) noexcept {
  Hmac hmac(salt);
  hmac.add(input);
  DerivedKey out;
  hmac.end(out);
  return out;
}

bool hkdf_expand(const DerivedKey& key, ConstBytes info, MutableBytes out) noexcept {
  if (out.size() > 255 * kDerivedKeyBytes) return false;
  DerivedKey block{};
  size_t held = 0;
  for (uint8_t n = 1; !out.empty(); ++n) {
    Hmac hmac(std::as_bytes(std::span(key)));
    hmac.add(std::as_bytes(std::span(block)).first(held));
    hmac.add(info);
    hmac.add(std::as_bytes(std::span(&n, 1)));
    hmac.end(block);
    held = block.size();
    const size_t bytes = std::min(held, out.size());
    std::memcpy(out.data(), block.data(), bytes);
    out = out.subspan(bytes);
  }
  wipe(block);
  return true;
}

void wipe(DerivedKey& key) noexcept { OPENSSL_cleanse(key.data(), key.size()); }

}  // namespace kvbm::codec
