// The low-level SHA-256 calls are deprecated in OpenSSL 3. They stay because a key costs a quarter less through them
// than through EVP, with calls that allocate and look up a provider.
#define OPENSSL_SUPPRESS_DEPRECATED
#include "codec/record/key.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <cstring>

namespace kvbm::codec {
namespace {

// The first byte of every input to SHA-256 names its kind, so no input of one kind can equal one of another.
// lib/codec/README.md has the bytes.
enum class Tag : uint8_t { namespace_id = 'N', chained = 'C', content = 'P', engine = 'E' };

constexpr uint8_t kKeyFormat = 1;
constexpr size_t kPrefixBytes = 4 + sizeof(NamespaceId) + sizeof(Key) + 8;
static_assert(kPrefixBytes == 44);

using Digest = std::array<uint8_t, SHA256_DIGEST_LENGTH>;

void sha_update(SHA256_CTX& sha, const void* data, size_t bytes) noexcept {
  if (bytes > 0) SHA256_Update(&sha, data, bytes);  // libcrypto must not get a null pointer of no bytes
}

// tag, format, two zero bytes, namespace id, previous key, counts: the fixed start of a block's key.
void write_prefix(uint8_t* out, Tag tag, const NamespaceId& ns, const Key& previous, uint32_t tokens,
                  uint32_t extra_bytes) noexcept {
  out[0] = static_cast<uint8_t>(tag);
  out[1] = kKeyFormat;
  out[2] = out[3] = 0;
  std::memcpy(out + 4, ns.bytes.data(), sizeof ns.bytes);
  std::memcpy(out + 20, previous.bytes.data(), sizeof previous.bytes);
  std::memcpy(out + 36, &tokens, 4);
  std::memcpy(out + 40, &extra_bytes, 4);
}

Key key_of(const Digest& digest) noexcept {
  Key key;
  std::memcpy(key.bytes.data(), digest.data(), sizeof key.bytes);
  return key;
}

// Assembles one input on the stack and hashes it by one update: libcrypto then compresses straight from it.
Key short_block_key(uint8_t* input, std::span<const uint32_t> tokens, ConstBytes extra) noexcept {
  size_t bytes = kPrefixBytes;
  if (!tokens.empty()) std::memcpy(input + bytes, tokens.data(), tokens.size_bytes());
  bytes += tokens.size_bytes();
  if (!extra.empty()) std::memcpy(input + bytes, extra.data(), extra.size());
  bytes += extra.size();
  SHA256_CTX sha;
  SHA256_Init(&sha);
  SHA256_Update(&sha, input, bytes);
  Digest digest;
  SHA256_Final(digest.data(), &sha);
  return key_of(digest);
}

Key long_block_key(const uint8_t* prefix, std::span<const uint32_t> tokens, ConstBytes extra) noexcept {
  SHA256_CTX sha;
  SHA256_Init(&sha);
  SHA256_Update(&sha, prefix, kPrefixBytes);
  sha_update(sha, tokens.data(), tokens.size_bytes());
  sha_update(sha, extra.data(), extra.size());
  Digest digest;
  SHA256_Final(digest.data(), &sha);
  return key_of(digest);
}

constexpr size_t kShortInput = 1024;

Key block_key(Tag tag, const NamespaceId& ns, const Key& previous, std::span<const uint32_t> tokens,
              ConstBytes extra) noexcept {
  uint8_t input[kShortInput];
  write_prefix(input, tag, ns, previous, static_cast<uint32_t>(tokens.size()), static_cast<uint32_t>(extra.size()));
  if (kPrefixBytes + tokens.size_bytes() + extra.size() <= kShortInput) return short_block_key(input, tokens, extra);
  return long_block_key(input, tokens, extra);
}

Status check_blocks(size_t tokens, uint32_t tokens_per_block, Extras extras, std::span<Key> out) {
  if (tokens_per_block == 0) return {Code::invalid_argument, "keys: tokens per block is 0"};
  const size_t blocks = tokens / tokens_per_block;
  if (out.size() < blocks) return {Code::invalid_argument, "keys: fewer outputs than full blocks"};
  if (extras.data() != nullptr && extras.size() < blocks) {
    return {Code::invalid_argument, "keys: fewer extras than full blocks"};
  }
  for (const ConstBytes& extra : extras) {
    if (extra.size() > UINT32_MAX) return {Code::invalid_argument, "keys: extras above 4 GiB"};
  }
  return {};
}

void append_text(SHA256_CTX& sha, std::string_view text) noexcept {
  const auto bytes = static_cast<uint32_t>(text.size());
  SHA256_Update(&sha, &bytes, sizeof bytes);
  sha_update(sha, text.data(), text.size());
}

// RFC 2104 with a key shorter than a block: `pad` is 0x36 for the inner hash and 0x5C for the outer.
void start_hmac(SHA256_CTX& sha, const Secret& secret, uint8_t pad) noexcept {
  std::array<uint8_t, SHA256_CBLOCK> block;
  block.fill(pad);
  for (size_t i = 0; i < secret.size(); ++i) block[i] = static_cast<uint8_t>(block[i] ^ secret[i]);
  SHA256_Init(&sha);
  SHA256_Update(&sha, block.data(), block.size());
  OPENSSL_cleanse(block.data(), block.size());
}

}  // namespace

NamespaceId namespace_id(const Secret& secret, const NamespaceDescription& description) {
  SHA256_CTX sha;
  Digest inner;
  start_hmac(sha, secret, 0x36);
  const uint8_t head[4] = {static_cast<uint8_t>(Tag::namespace_id), kKeyFormat, 0, 0};
  SHA256_Update(&sha, head, sizeof head);
  append_text(sha, description.tenant);
  append_text(sha, description.model);
  append_text(sha, description.adapter);
  SHA256_Update(&sha, &description.geometry, sizeof description.geometry);
  SHA256_Update(&sha, &description.epoch, sizeof description.epoch);
  SHA256_Final(inner.data(), &sha);

  Digest outer;
  start_hmac(sha, secret, 0x5C);
  SHA256_Update(&sha, inner.data(), inner.size());
  SHA256_Final(outer.data(), &sha);
  OPENSSL_cleanse(&sha, sizeof sha);
  OPENSSL_cleanse(inner.data(), inner.size());
  NamespaceId ns;
  std::memcpy(ns.bytes.data(), outer.data(), sizeof ns.bytes);
  OPENSSL_cleanse(outer.data(), outer.size());
  return ns;
}

Result<size_t> chained_keys(const NamespaceId& ns, const Key* previous, std::span<const uint32_t> tokens,
                            uint32_t tokens_per_block, Extras extras, std::span<Key> out) {
  if (Status status = check_blocks(tokens.size(), tokens_per_block, extras, out); !status.ok()) return status;
  const size_t blocks = tokens.size() / tokens_per_block;
  Key last = previous == nullptr ? Key{} : *previous;
  for (size_t i = 0; i < blocks; ++i) {
    last = block_key(Tag::chained, ns, last, tokens.subspan(i * tokens_per_block, tokens_per_block),
                     extras.empty() ? ConstBytes{} : extras[i]);
    out[i] = last;
  }
  return blocks;
}

Result<size_t> content_keys(const NamespaceId& ns, std::span<const uint32_t> tokens, uint32_t tokens_per_block,
                            Extras extras, std::span<Key> out) {
  if (Status status = check_blocks(tokens.size(), tokens_per_block, extras, out); !status.ok()) return status;
  const size_t blocks = tokens.size() / tokens_per_block;
  for (size_t i = 0; i < blocks; ++i) {
    out[i] = block_key(Tag::content, ns, Key{}, tokens.subspan(i * tokens_per_block, tokens_per_block),
                       extras.empty() ? ConstBytes{} : extras[i]);
  }
  return blocks;
}

Status engine_keys(const NamespaceId& ns, ConstBytes hashes, size_t hash_bytes, std::span<Key> out) {
  if (hash_bytes == 0 || hash_bytes > 64) {
    return {Code::invalid_argument, "keys: an engine's hash has 1 to 64 bytes"};
  }
  if (hashes.size() % hash_bytes != 0 || hashes.size() / hash_bytes != out.size()) {
    return {Code::invalid_argument, "keys: hash bytes and outputs do not agree"};
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = block_key(Tag::engine, ns, Key{}, {}, hashes.subspan(i * hash_bytes, hash_bytes));
  }
  return {};
}

std::array<uint8_t, 32> sha256(ConstBytes bytes) {
  SHA256_CTX sha;
  SHA256_Init(&sha);
  sha_update(sha, bytes.data(), bytes.size());
  Digest digest;
  SHA256_Final(digest.data(), &sha);
  return digest;
}

}  // namespace kvbm::codec
