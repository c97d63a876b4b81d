#include "cluster/admission/pool_key.h"

#include <cstring>

#include "codec/record/key.h"

namespace kvbm::cluster {
namespace {

constexpr char kHexDigits[] = "0123456789abcdef";
constexpr size_t kCheckBytes = 4;
constexpr std::string_view kCheckLabel("kvbm pool key\0", 14);

std::array<uint8_t, kCheckBytes> check_of(const SharedKey& key) noexcept {
  std::array<std::byte, kCheckLabel.size() + 32> input;
  std::memcpy(input.data(), kCheckLabel.data(), kCheckLabel.size());
  std::memcpy(input.data() + kCheckLabel.size(), key.data(), key.size());
  const auto hash = codec::sha256(input);
  wipe(input.data(), input.size());
  std::array<uint8_t, kCheckBytes> out;
  std::memcpy(out.data(), hash.data(), out.size());
  return out;
}

char* put_hex(const uint8_t* bytes, size_t n, char* out) noexcept {
  for (size_t i = 0; i < n; ++i) {
    *out++ = kHexDigits[bytes[i] >> 4];
    *out++ = kHexDigits[bytes[i] & 15];
  }
  return out;
}

int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool take_hex(std::string_view text, uint8_t* out) noexcept {
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_value(text[i]);
    const int low = hex_value(text[i + 1]);
    if (high < 0 || low < 0) return false;
    out[i / 2] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

}  // namespace

PoolKeyText pool_key_text(const SharedKey& key) noexcept {
  PoolKeyText out;
  std::memcpy(out.data(), kPoolKeyPrefix.data(), kPoolKeyPrefix.size());
  char* at = put_hex(key.data(), key.size(), out.data() + kPoolKeyPrefix.size());
  *at++ = ':';
  const auto check = check_of(key);
  put_hex(check.data(), check.size(), at);
  return out;
}

SharedKey new_pool_key(Random& random) noexcept {
  SharedKey key{};
  random.fill(std::as_writable_bytes(std::span(key.data(), key.size())));
  return key;
}

Result<SharedKey> parse_pool_key(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ' || text.back() == '\t')) {
    text.remove_suffix(1);
  }
  if (!text.starts_with(kPoolKeyPrefix)) {
    return Status(
        Code::invalid_argument,
        "it is no key that `kvbm key new` made, and words or digits of one's own can be guessed: make one with "
        "`kvbm key new FILE` and give that file to every node of the pool");
  }
  SharedKey key{};
  std::array<uint8_t, kCheckBytes> check{};
  const std::string_view rest = text.substr(kPoolKeyPrefix.size());
  const bool whole = text.size() == kPoolKeyText && rest[64] == ':' && take_hex(rest.substr(0, 64), key.data()) &&
                     take_hex(rest.substr(65), check.data());
  if (!whole || check != check_of(key)) {
    return Status(Code::invalid_argument,
                  "a digit of the key is wrong or missing: copy the file of `kvbm key new` again, as it is");
  }
  return key;
}

}  // namespace kvbm::cluster
