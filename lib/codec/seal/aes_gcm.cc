// Not needed in this file: sources of this folder are compiled together, and key.cc needs it.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "codec/seal/aes_gcm.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cstring>
#include <utility>

namespace kvbm::codec {
namespace {

// A library context of its own: the process-wide one would read the host's openssl.cnf, which may name other providers.
const EVP_CIPHER* aes_256_gcm() noexcept {
  static const EVP_CIPHER* const cipher = [] {
    // Registers no handler for the exit: the host may have unloaded this library by then.
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT | OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);
    OSSL_LIB_CTX* const library = OSSL_LIB_CTX_new();
    return library == nullptr ? nullptr : EVP_CIPHER_fetch(library, "AES-256-GCM", nullptr);
  }();
  return cipher;
}

const uint8_t* octets(const std::byte* bytes) noexcept { return reinterpret_cast<const uint8_t*>(bytes); }

}  // namespace

AesGcm::AesGcm(AesGcm&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}

AesGcm& AesGcm::operator=(AesGcm&& other) noexcept {
  std::swap(context_, other.context_);
  return *this;
}

AesGcm::~AesGcm() { EVP_CIPHER_CTX_free(context_); }

Status AesGcm::open() noexcept {
  if (context_ != nullptr) return {};
  const EVP_CIPHER* const cipher = aes_256_gcm();
  context_ = cipher == nullptr ? nullptr : EVP_CIPHER_CTX_new();
  if (context_ == nullptr) return {Code::no_memory, "no memory for AES-256-GCM"};
  if (EVP_CipherInit_ex2(context_, cipher, nullptr, nullptr, 1, nullptr) == 1) return {};
  EVP_CIPHER_CTX_free(std::exchange(context_, nullptr));
  return {Code::internal, "libcrypto refuses AES-256-GCM"};
}

bool AesGcm::set_key(const uint8_t* key) noexcept {
  return EVP_CipherInit_ex2(context_, nullptr, key, nullptr, 1, nullptr) == 1;
}

bool AesGcm::begin(const Nonce& nonce, Use use) noexcept {
  return EVP_CipherInit_ex2(context_, nullptr, nullptr, nonce.data(), use == Use::seal ? 1 : 0, nullptr) == 1;
}

bool AesGcm::associate(ConstBytes bytes) noexcept {
  int done = 0;
  return bytes.empty() ||
         EVP_CipherUpdate(context_, nullptr, &done, octets(bytes.data()), static_cast<int>(bytes.size())) == 1;
}

bool AesGcm::pass(ConstBytes from, std::byte* to) noexcept {
  int done = 0;
  return from.empty() || EVP_CipherUpdate(context_, reinterpret_cast<uint8_t*>(to), &done, octets(from.data()),
                                          static_cast<int>(from.size())) == 1;
}

bool AesGcm::finish(std::byte* tag) noexcept {
  int done = 0;
  uint8_t none[kTagBytes];
  return EVP_CipherFinal_ex(context_, none, &done) == 1 &&
         EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag) == 1;
}

bool AesGcm::verify(const std::byte* tag) noexcept {
  int done = 0;
  uint8_t said[kTagBytes];
  uint8_t none[kTagBytes];
  std::memcpy(said, tag, sizeof said);
  return EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, kTagBytes, said) == 1 &&
         EVP_CipherFinal_ex(context_, none, &done) == 1;
}

}  // namespace kvbm::codec
