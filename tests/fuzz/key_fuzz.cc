// Input: u8 tokens per block, u8 bytes per engine hash, u8 bytes of extras for each block, then tokens, which are also
// the engine hashes and the extras.
#include <algorithm>
#include <vector>

#include "codec/record/key.h"
#include "target.h"

namespace key_fuzz {

namespace {

using namespace kvbm;

void check(bool holds) {
  if (!holds) __builtin_trap();
}

void check_chain(const NamespaceId& ns, const std::vector<uint32_t>& tokens, uint32_t per_block, codec::Extras extras) {
  std::vector<Key> whole(tokens.size() + 1);
  const auto made = codec::chained_keys(ns, nullptr, tokens, per_block, extras, whole);
  check(made.ok() == (per_block != 0));
  if (!made.ok()) return;
  const size_t blocks = made.value();
  check(blocks == tokens.size() / per_block && whole[blocks] == Key{});
  if (blocks < 2) return;
  // A chain that is continued from its first block has equal keys.
  std::vector<Key> rest(blocks - 1);
  const auto later = extras.empty() ? extras : extras.subspan(1);
  const auto continued =
      codec::chained_keys(ns, whole.data(), std::span(tokens).subspan(per_block), per_block, later, rest);
  check(continued.ok() && continued.value() == rest.size());
  for (size_t i = 0; i < rest.size(); ++i) check(rest[i] == whole[i + 1]);
  check(!codec::chained_keys(ns, nullptr, tokens, per_block, extras, rest).ok());
}

void check_engine(const NamespaceId& ns, ConstBytes bytes, size_t hash_bytes) {
  std::vector<Key> keys(hash_bytes == 0 ? 0 : bytes.size() / hash_bytes);
  const bool right = hash_bytes != 0 && hash_bytes <= 64 && bytes.size() % hash_bytes == 0;
  check(codec::engine_keys(ns, bytes, hash_bytes, keys).ok() == right);
  if (!right) return;
  for (size_t i = 0; i < keys.size(); ++i) {
    Key one;
    check(codec::engine_keys(ns, bytes.subspan(i * hash_bytes, hash_bytes), hash_bytes, {&one, 1}).ok() &&
          one == keys[i]);
  }
}

}  // namespace

KVBM_FUZZ_TARGET(key) {
  if (size < 3) return 0;
  const uint32_t per_block = data[0];
  const size_t hash_bytes = data[1];
  const size_t extra_bytes = data[2];
  const ConstBytes bytes(reinterpret_cast<const std::byte*>(data) + 3, size - 3);
  std::vector<uint32_t> tokens(bytes.size() / 4);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = load_le<uint32_t>(bytes.data() + 4 * i);
  const NamespaceId ns = codec::namespace_id({}, {"fuzz", "m", "", 0, 0});
  check_chain(ns, tokens, per_block, {});
  const std::vector<ConstBytes> extras(tokens.size() + 1, bytes.first(std::min(extra_bytes, bytes.size())));
  check_chain(ns, tokens, per_block, extras);
  std::vector<Key> content(tokens.size());
  check(codec::content_keys(ns, tokens, per_block, extras, content).ok() == (per_block != 0));
  check_engine(ns, bytes, hash_bytes);
  return 0;
}

}  // namespace key_fuzz
