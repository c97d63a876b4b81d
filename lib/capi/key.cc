#include "codec/record/key.h"

#include <algorithm>
#include <vector>

#include "capi/guard.h"
#include "capi/handles.h"
#include "manager/namespaces/namespace.h"

using kvbm::Key;
using kvbm::capi::guarded;

static_assert(sizeof(kvbm_key_t) == sizeof(Key));

namespace {

// With fewer bytes a collision of two contents is easy to find.
constexpr size_t kStrongHashBytes = 16;

std::vector<kvbm::ConstBytes> to_extras(const kvbm_extra_t* extras, size_t n) {
  std::vector<kvbm::ConstBytes> out;
  if (extras == nullptr) return out;
  out.reserve(n);
  for (size_t i = 0; i < n; ++i) out.emplace_back(reinterpret_cast<const std::byte*>(extras[i].data), extras[i].bytes);
  return out;
}

bool is_extra(const kvbm_extra_t& extra) {
  return (extra.data != nullptr || extra.bytes == 0) && !kvbm::capi::too_many(extra.bytes);
}

// Makes chained or content keys, which differ only in the core's function.
template <class Make>
kvbm_status_t make_keys(const kvbm_namespace_t* ns, const uint32_t* tokens, size_t n_tokens, uint32_t block_tokens,
                        const kvbm_extra_t* extras, kvbm_key_t* out_keys, size_t capacity, size_t* out_n, Make&& make) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (out_n != nullptr) *out_n = 0;
    if (ns == nullptr || out_n == nullptr) return kvbm::capi::invalid("ns or out_n is NULL");
    if (block_tokens == 0) return kvbm::capi::invalid("block_tokens is 0");
    if ((tokens == nullptr && n_tokens != 0) || kvbm::capi::too_many(n_tokens)) {
      return kvbm::capi::invalid("tokens is NULL, or has more than 2^28 tokens");
    }
    if (kvbm::capi::forked(*ns->tenancy)) return KVBM_ERR_FORKED;
    const size_t full = n_tokens / block_tokens;
    *out_n = full;
    const size_t n = full < capacity ? full : capacity;
    if (n == 0) return KVBM_OK;
    if (out_keys == nullptr) return kvbm::capi::invalid("out_keys is NULL");
    if (extras != nullptr && !std::all_of(extras, extras + n, is_extra)) {
      return kvbm::capi::invalid("an extra has bytes and no data, or more than 2^28 bytes");
    }
    const auto list = to_extras(extras, n);
    const auto made = make(ns->ns->id(), std::span(tokens, n * block_tokens), kvbm::codec::Extras(list),
                           std::span(reinterpret_cast<Key*>(out_keys), n));
    return made.ok() ? KVBM_OK : kvbm::capi::fail(nullptr, made.status());
  });
}

}  // namespace

extern "C" {

kvbm_status_t kvbm_key_chain(const kvbm_namespace_t* ns, const kvbm_key_t* previous, const uint32_t* tokens,
                             size_t n_tokens, uint32_t block_tokens, const kvbm_extra_t* extras, kvbm_key_t* out_keys,
                             size_t capacity, size_t* out_n) {
  return make_keys(
      ns, tokens, n_tokens, block_tokens, extras, out_keys, capacity, out_n,
      [&](const kvbm::NamespaceId& id, std::span<const uint32_t> t, kvbm::codec::Extras e, std::span<Key> out) {
        return kvbm::codec::chained_keys(id, reinterpret_cast<const Key*>(previous), t, block_tokens, e, out);
      });
}

kvbm_status_t kvbm_key_content(const kvbm_namespace_t* ns, const uint32_t* tokens, size_t n_tokens,
                               uint32_t block_tokens, const kvbm_extra_t* extras, kvbm_key_t* out_keys, size_t capacity,
                               size_t* out_n) {
  return make_keys(ns, tokens, n_tokens, block_tokens, extras, out_keys, capacity, out_n,
                   [&](const kvbm::NamespaceId& id, std::span<const uint32_t> t, kvbm::codec::Extras e,
                       std::span<Key> out) { return kvbm::codec::content_keys(id, t, block_tokens, e, out); });
}

kvbm_status_t kvbm_key_from_hashes(const kvbm_namespace_t* ns, const uint8_t* hashes, size_t hash_bytes, size_t n,
                                   kvbm_key_t* out_keys) {
  return guarded(nullptr, [&]() -> kvbm_status_t {
    if (ns == nullptr) return kvbm::capi::invalid("ns is NULL");
    if (hash_bytes == 0 || hash_bytes > 64) return kvbm::capi::invalid("hash_bytes is not 1 to 64");
    if (kvbm::capi::forked(*ns->tenancy)) return KVBM_ERR_FORKED;
    if (hash_bytes < kStrongHashBytes && !ns->weak_hashes) {
      return kvbm::capi::invalid(
          "the hashes are too short to tell prompts apart; open the namespace with weak_hashes to take them all the "
          "same");
    }
    if (n == 0) return KVBM_OK;
    if (hashes == nullptr || out_keys == nullptr || kvbm::capi::too_many(n))
      return kvbm::capi::invalid("hashes or out_keys is NULL, or n is more than 2^28");
    const kvbm::ConstBytes bytes(reinterpret_cast<const std::byte*>(hashes), n * hash_bytes);
    const kvbm::Status made =
        kvbm::codec::engine_keys(ns->ns->id(), bytes, hash_bytes, {reinterpret_cast<Key*>(out_keys), n});
    return made.ok() ? KVBM_OK : kvbm::capi::fail(nullptr, made);
  });
}

}  // extern "C"
