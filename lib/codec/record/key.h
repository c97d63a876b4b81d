// Namespace ids and block keys. The formulas are normative (docs/formats.md); every language calls these functions.
// SHA-256 through libcrypto's low-level calls (145 ns through EVP, 110 without, per key).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/ids.h"
#include "base/status.h"

namespace kvbm::codec {

struct NamespaceDescription {
  std::string_view tenant;   // each <= 1024 bytes
  std::string_view model;    // model identity: weights, revision, dtype; required
  std::string_view adapter;  // LoRA and the like; may be empty
  uint64_t geometry = 0;     // fingerprint (layout/geometry.h); 0 = opaque
  uint64_t epoch = 0;
};

using Secret = std::array<uint8_t, 32>;

// HMAC-SHA256(secret, canonical encoding), first 128 bits. An all-zero secret is allowed (single-tenant).
NamespaceId namespace_id(const Secret& secret, const NamespaceDescription& description);

// Bytes that belong to a block's content besides its tokens: LoRA, multimodal hashes, cache salt. One entry per block,
// empty for none; null span = none at all.
using Extras = std::span<const ConstBytes>;

// Makes keys of consecutive full blocks: out[i] depends on out[i-1] (`previous` for the first; null at the start).
// Writes tokens.size() / tokens_per_block keys; a partial last block gets none. invalid_argument if tokens_per_block is
// 0, out is too short, or extras do not match.
Result<size_t> chained_keys(const NamespaceId& ns, const Key* previous, std::span<const uint32_t> tokens,
                            uint32_t tokens_per_block, Extras extras, std::span<Key> out);

// Makes position-free keys: each depends only on its block's tokens and extras.
Result<size_t> content_keys(const NamespaceId& ns, std::span<const uint32_t> tokens, uint32_t tokens_per_block,
                            Extras extras, std::span<Key> out);

// Makes keys from an engine's own hashes of 1 to 64 bytes each, e.g. vLLM's block hash plus group index.
Status engine_keys(const NamespaceId& ns, ConstBytes hashes, size_t hash_bytes, std::span<Key> out);

std::array<uint8_t, 32> sha256(ConstBytes bytes);

}  // namespace kvbm::codec
