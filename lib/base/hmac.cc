// The low-level SHA-256 calls are deprecated in OpenSSL 3 and are used for their low cost, as in codec/key.cc.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "cluster/keyed_mac.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <cstring>

namespace kvbm::cluster {
namespace {

static_assert(alignof(SHA256_CTX) <= 8);

SHA256_CTX start(const std::array<uint8_t, 32>& key, uint8_t pad) noexcept {
  std::array<uint8_t, SHA256_CBLOCK> block;
  block.fill(pad);
  for (size_t i = 0; i < key.size(); ++i) block[i] = static_cast<uint8_t>(block[i] ^ key[i]);
  SHA256_CTX sha;
  SHA256_Init(&sha);
  SHA256_Update(&sha, block.data(), block.size());
  OPENSSL_cleanse(block.data(), block.size());
  return sha;
}

}  // namespace

KeyedMac::KeyedMac(const std::array<uint8_t, 32>& key) noexcept {
  static_assert(sizeof(SHA256_CTX) == kStateBytes);
  SHA256_CTX sha = start(key, 0x36);
  std::memcpy(inner_.bytes, &sha, sizeof sha);
  sha = start(key, 0x5C);
  std::memcpy(outer_.bytes, &sha, sizeof sha);
  OPENSSL_cleanse(&sha, sizeof sha);
}

KeyedMac::~KeyedMac() {
  OPENSSL_cleanse(inner_.bytes, sizeof inner_.bytes);
  OPENSSL_cleanse(outer_.bytes, sizeof outer_.bytes);
}

Mac KeyedMac::operator()(ConstBytes bytes) const noexcept {
  SHA256_CTX sha;
  Mac mac;
  std::memcpy(&sha, inner_.bytes, sizeof sha);
  if (!bytes.empty()) SHA256_Update(&sha, bytes.data(), bytes.size());
  SHA256_Final(mac.data(), &sha);
  std::memcpy(&sha, outer_.bytes, sizeof sha);
  SHA256_Update(&sha, mac.data(), mac.size());
  SHA256_Final(mac.data(), &sha);
  return mac;
}

Mac hkdf_extract(const std::array<uint8_t, 32>& salt, const std::array<uint8_t, 32>& secret) noexcept {
  return KeyedMac(salt)(std::as_bytes(std::span(secret)));
}

Mac hkdf_expand(const Mac& extracted, std::string_view label) noexcept {
  std::array<std::byte, 64> info{};
  const size_t n = label.size() < info.size() ? label.size() : info.size() - 1;
  std::memcpy(info.data(), label.data(), n);
  info[n] = std::byte{1};
  return KeyedMac(extracted)(ConstBytes(info).first(n + 1));
}

bool equal_secret(ConstBytes a, ConstBytes b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void wipe(void* data, size_t bytes) noexcept { OPENSSL_cleanse(data, bytes); }

}  // namespace kvbm::cluster
