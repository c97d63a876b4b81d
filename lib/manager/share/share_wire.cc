#include "manager/share/share_wire.h"

#include <cstring>

namespace kvbm::manager {

std::vector<std::byte> encode(const ShareMessage& m) {
  std::vector<std::byte> out(kShareHeadBytes + m.keys.size() * sizeof(Key));
  std::byte* const at = out.data();
  at[0] = static_cast<std::byte>(m.kind);
  store_le(at + 2, static_cast<uint16_t>(m.keys.size()));
  store_le(at + 4, static_cast<int32_t>(m.code));
  store_le(at + 8, m.request);
  store_le(at + 16, m.value);
  std::memcpy(at + 24, m.base.bytes.data(), sizeof m.base.bytes);
  if (m.kind == ShareKind::here) {
    store_le(at + 24, m.block_bytes);
    store_le(at + 32, m.disk_bytes);
  }
  std::memcpy(at + 40, m.family.ns.bytes.data(), sizeof m.family.ns.bytes);
  store_le(at + 56, m.family.geometry);
  const uint16_t parts[] = {m.family.component,        m.family.shard.first_layer, m.family.shard.layers,
                            m.family.shard.first_head, m.family.shard.heads,       m.family.shard.replicated};
  for (size_t i = 0; i < std::size(parts); ++i) store_le(at + 64 + 2 * i, parts[i]);
  if (!m.keys.empty()) std::memcpy(at + kShareHeadBytes, m.keys.data(), m.keys.size() * sizeof(Key));
  return out;
}

Status decode(ConstBytes bytes, ShareMessage& out) {
  const std::byte* const at = bytes.data();
  const size_t keys = bytes.size() < kShareHeadBytes ? 0 : load_le<uint16_t>(at + 2);
  const bool whole = bytes.size() == kShareHeadBytes + keys * sizeof(Key) && keys <= kMaxShareKeys;
  const auto kind = whole ? static_cast<uint8_t>(at[0]) : uint8_t{0};
  if (kind < static_cast<uint8_t>(ShareKind::here) || kind > static_cast<uint8_t>(ShareKind::answer)) {
    return {Code::damaged, "share: what came is no message of this version"};
  }
  out.kind = static_cast<ShareKind>(kind);
  out.code = static_cast<Code>(load_le<int32_t>(at + 4));
  out.request = load_le<uint64_t>(at + 8);
  out.value = load_le<uint64_t>(at + 16);
  std::memcpy(out.base.bytes.data(), at + 24, sizeof out.base.bytes);
  out.block_bytes = load_le<uint64_t>(at + 24);
  out.disk_bytes = load_le<uint64_t>(at + 32);
  std::memcpy(out.family.ns.bytes.data(), at + 40, sizeof out.family.ns.bytes);
  out.family.geometry = load_le<uint64_t>(at + 56);
  out.family.component = load_le<uint16_t>(at + 64);
  out.family.shard = {load_le<uint16_t>(at + 66), load_le<uint16_t>(at + 68), load_le<uint16_t>(at + 70),
                      load_le<uint16_t>(at + 72), load_le<uint16_t>(at + 74)};
  out.keys.resize(keys);
  if (keys != 0) std::memcpy(out.keys.data(), at + kShareHeadBytes, keys * sizeof(Key));
  return {};
}

}  // namespace kvbm::manager
