#include <algorithm>
#include <charconv>
#include <string>

#include "codec/seal/seal.h"

namespace kvbm::codec {
namespace {

constexpr size_t kMasterBytes = 32;
constexpr size_t kMaxKeys = 1024;  // a ring is searched linearly; no key is needed for longer than caches live
constexpr std::string_view kSalt = "kvbm seal 1";

Status refuse(size_t line, const char* what) {
  return {Code::invalid_argument, "the key file is wrong", "line " + std::to_string(line) + ": " + what};
}

bool blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\r'; }

// Returns the next word of a line, removed from its front.
std::string_view next_word(std::string_view& line) noexcept {
  while (!line.empty() && blank(line.front())) line.remove_prefix(1);
  size_t n = 0;
  while (n < line.size() && !blank(line[n])) ++n;
  const std::string_view word = line.substr(0, n);
  line.remove_prefix(n);
  return word;
}

int digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool from_hex(std::string_view hex, Mac& out) noexcept {
  if (hex.size() != 2 * kMasterBytes) return false;
  for (size_t i = 0; i < kMasterBytes; ++i) {
    const int high = digit(hex[2 * i]);
    const int low = digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

}  // namespace

KeyRing::~KeyRing() {
  for (Key& key : keys_) wipe(key.extracted.data(), key.extracted.size());
}

uint32_t KeyRing::sealing_key() const noexcept { return keys_.front().id; }

bool KeyRing::has(uint32_t key_id) const noexcept { return key(key_id) != nullptr; }

const Mac* KeyRing::key(uint32_t key_id) const noexcept {
  for (const Key& key : keys_) {
    if (key.id == key_id) return &key.extracted;
  }
  return nullptr;
}

Status KeyRing::add(std::string_view line, size_t number) {
  const std::string_view id_text = next_word(line);
  if (id_text.empty()) return {};
  const std::string_view hex = next_word(line);
  uint32_t id = 0;
  const auto [end, error] = std::from_chars(id_text.data(), id_text.data() + id_text.size(), id);
  if (error != std::errc() || end != id_text.data() + id_text.size() || id == 0) {
    return refuse(number, "a line is an id from 1 to 4294967295 and a key");
  }
  if (has(id)) return refuse(number, "an id that a line above has already");
  Mac master;
  const bool good = from_hex(hex, master);
  bool any = false;
  for (const uint8_t byte : master) any = any || byte != 0;
  if (good && any && keys_.size() < kMaxKeys) {
    keys_.push_back(
        {id, hkdf_extract(std::as_bytes(std::span(kSalt.data(), kSalt.size())), std::as_bytes(std::span(master)))});
  }
  wipe(master.data(), master.size());
  if (!good) return refuse(number, "a key is 64 hexadecimal digits");
  if (!any) return refuse(number, "a key of zeros is none");
  if (!next_word(line).empty()) return refuse(number, "something follows the key");
  if (keys_.size() == kMaxKeys) return refuse(number, "more than 1023 keys");
  return {};
}

Result<std::shared_ptr<const KeyRing>> KeyRing::parse(std::string_view text) {
  auto ring = std::shared_ptr<KeyRing>(new KeyRing());
  ring->keys_.reserve(kMaxKeys);  // a vector that grew would leave copies of keys behind
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, std::min(text.find('#'), end));
    text.remove_prefix(std::min(end + 1, text.size()));
    Status added = ring->add(line, number);
    if (!added.ok()) return added;
  }
  if (ring->keys_.empty()) return Status{Code::invalid_argument, "the key file has no key"};
  return std::shared_ptr<const KeyRing>(std::move(ring));
}

}  // namespace kvbm::codec
