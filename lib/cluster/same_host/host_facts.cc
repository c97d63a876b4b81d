#include "cluster/same_host/host_facts.h"

#include <algorithm>
#include <cstring>
#include <fstream>

#include "cluster/wire/wire.h"

namespace kvbm::cluster {

namespace {

constexpr size_t kFactsBytes = wire::kHeadBytes + 56;
constexpr uint64_t kWordMagic = 0x3154'534F'484D'564BULL;  // "KVMHOST1" in memory

bool zero(ConstBytes bytes) noexcept {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

// Layout: head | boot id 16 | u32 user, u32 0 | token `come` 16 | token `show` 16 | path
size_t encode(const HostFacts& facts, MutableBytes out) noexcept {
  const size_t bytes = kFactsBytes + facts.path.size();
  if (facts.path.size() > kMaxHostPath || bytes > out.size()) return 0;
  std::memset(out.data(), 0, kFactsBytes);
  out[0] = static_cast<std::byte>(wire::Type::host);
  store_le(out.data() + 4, static_cast<uint32_t>(facts.path.size()));
  std::byte* at = out.data() + wire::kHeadBytes;
  std::memcpy(at, facts.boot.data(), 16);
  store_le(at + 16, facts.user);
  std::memcpy(at + 24, facts.come.data(), 16);
  std::memcpy(at + 40, facts.show.data(), 16);
  std::memcpy(at + 56, facts.path.data(), facts.path.size());
  return bytes;
}

Status decode(ConstBytes body, HostFacts& out) {
  const Status damaged(Code::damaged, "peer: what it says of its host is damaged");
  const auto head = wire::peek(body);
  if (!head.ok()) return head.status();
  const size_t path = head.value().count;
  if (head.value().type != wire::Type::host || head.value().request != 0 || path > kMaxHostPath ||
      body.size() != kFactsBytes + path) {
    return damaged;
  }
  const std::byte* at = body.data() + wire::kHeadBytes;
  if (load_le<uint32_t>(at + 20) != 0) return damaged;
  out.path.assign(reinterpret_cast<const char*>(at + 56), path);
  if (out.path.find('\0') != std::string::npos) return damaged;
  std::memcpy(out.boot.data(), at, 16);
  out.user = load_le<uint32_t>(at + 16);
  std::memcpy(out.come.data(), at + 24, 16);
  std::memcpy(out.show.data(), at + 40, 16);
  return {};
}

// Layout: magic u64 | kind u32 | 0 u32 | token 16 | node 16 | incarnation u64 | 16 bytes, zero
void encode(const HostWord& word, std::byte* out) noexcept {
  std::memset(out, 0, kHostWordBytes);
  store_le(out, kWordMagic);
  store_le(out + 8, static_cast<uint32_t>(word.kind));
  std::memcpy(out + 16, word.token.data(), 16);
  std::memcpy(out + 32, word.node.bytes.data(), 16);
  store_le(out + 48, word.incarnation);
}

Status decode(ConstBytes bytes, HostWord& out) {
  const Status damaged(Code::damaged, "the process at the socket sent no message of a node");
  if (bytes.size() != kHostWordBytes || load_le<uint64_t>(bytes.data()) != kWordMagic) return damaged;
  const auto kind = load_le<uint32_t>(bytes.data() + 8);
  if (kind < 1 || kind > 3 || !zero(bytes.subspan(12, 4)) || !zero(bytes.subspan(56))) return damaged;
  out.kind = static_cast<HostWord::Kind>(kind);
  std::memcpy(out.token.data(), bytes.data() + 16, 16);
  std::memcpy(out.node.bytes.data(), bytes.data() + 32, 16);
  out.incarnation = load_le<uint64_t>(bytes.data() + 48);
  return {};
}

std::array<uint8_t, 16> boot_id() {
  std::array<uint8_t, 16> out{};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  size_t digits = 0;
  for (char c = 0; digits < 32 && file.get(c);) {
    if (c == '-') continue;
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) break;
    out[digits / 2] = static_cast<uint8_t>(out[digits / 2] << 4 | digit);
    ++digits;
  }
  return digits == 32 ? out : std::array<uint8_t, 16>{};
}

}  // namespace kvbm::cluster
