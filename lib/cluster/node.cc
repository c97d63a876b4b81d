#include "cluster/node.h"

#include "codec/record/key.h"

namespace kvbm::cluster {

NodeId node_id_of(std::string_view name) {
  std::string input("kvbm node");
  input.push_back('\0');
  input.append(name);
  const auto digest = codec::sha256(std::as_bytes(std::span(input)));
  NodeId id;
  std::memcpy(id.bytes.data(), digest.data(), id.bytes.size());
  return id;
}

std::string hex_text(std::span<const uint8_t> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t b : bytes) {
    text.push_back(kDigits[b >> 4]);
    text.push_back(kDigits[b & 15]);
  }
  return text;
}

std::string short_text(const NodeId& id) { return hex_text(std::span(id.bytes).first(4)); }

bool valid_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > kMaxName) return false;
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && std::string_view("._:-[]").find(c) == std::string_view::npos) return false;
  }
  return true;
}

}  // namespace kvbm::cluster
