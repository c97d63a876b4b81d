// The low-level SHA-256 calls are deprecated in OpenSSL 3 and are used for their low cost, as in codec/record/key.cc.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "base/crypto/hmac.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstring>

namespace kvbm {
namespace {

static_assert(kMacBytes == SHA256_DIGEST_LENGTH);

void update(SHA256_CTX& sha, ConstBytes bytes) noexcept {
  if (!bytes.empty()) SHA256_Update(&sha, bytes.data(), bytes.size());  // libcrypto must not get a null pointer
}

}  // namespace

KeyedMac::KeyedMac(ConstBytes key) noexcept {
  static_assert(sizeof(SHA256_CTX) == kStateBytes);
  std::array<uint8_t, SHA256_CBLOCK> block{};
  SHA256_CTX sha;
  if (key.size() > block.size()) {
    SHA256_Init(&sha);
    update(sha, key);
    SHA256_Final(block.data(), &sha);
  } else if (!key.empty()) {
    std::memcpy(block.data(), key.data(), key.size());
  }
  const auto start = [&](uint8_t pad, State& state) {
    for (uint8_t& byte : block) byte = static_cast<uint8_t>(byte ^ pad);
    SHA256_Init(&sha);
    SHA256_Update(&sha, block.data(), block.size());
    std::memcpy(state.data(), &sha, sizeof sha);
  };
  start(0x36, inner_);
  start(0x36 ^ 0x5C, outer_);
  OPENSSL_cleanse(block.data(), block.size());
  OPENSSL_cleanse(&sha, sizeof sha);
}

KeyedMac::~KeyedMac() {
  OPENSSL_cleanse(inner_.data(), inner_.size());
  OPENSSL_cleanse(outer_.data(), outer_.size());
}

Mac KeyedMac::operator()(std::initializer_list<ConstBytes> parts) const noexcept {
  SHA256_CTX sha;
  Mac mac;
  std::memcpy(&sha, inner_.data(), sizeof sha);
  for (const ConstBytes part : parts) update(sha, part);
  SHA256_Final(mac.data(), &sha);
  std::memcpy(&sha, outer_.data(), sizeof sha);
  SHA256_Update(&sha, mac.data(), mac.size());
  SHA256_Final(mac.data(), &sha);
  return mac;
}

Mac hkdf_extract(ConstBytes salt, ConstBytes input) noexcept { return KeyedMac(salt)(input); }

bool hkdf_expand(const Mac& key, ConstBytes info, MutableBytes out) noexcept {
  if (out.size() > 255 * kMacBytes) return false;
  const KeyedMac mac(key);
  Mac block{};
  size_t held = 0;
  for (uint8_t n = 1; !out.empty(); ++n) {
    block = mac({std::as_bytes(std::span(block)).first(held), info, std::as_bytes(std::span(&n, 1))});
    held = block.size();
    const size_t bytes = std::min(held, out.size());
    std::memcpy(out.data(), block.data(), bytes);
    out = out.subspan(bytes);
  }
  wipe(block.data(), block.size());
  return true;
}

bool equal_secret(ConstBytes a, ConstBytes b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void wipe(void* data, size_t bytes) noexcept { OPENSSL_cleanse(data, bytes); }

}  // namespace kvbm
