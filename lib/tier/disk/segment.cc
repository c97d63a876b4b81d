#include "tier/disk/segment.h"

#include <cstdio>
#include <cstring>

namespace kvbm::tier::disk {
namespace {
constexpr std::string_view kPrefix = "segment-";
constexpr std::string_view kSuffix = ".kv";
constexpr size_t kDigits = 6;
}  // namespace

std::string segment_name(uint32_t segment) {
  std::string digits = std::to_string(segment + 1);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return std::string(kPrefix) + digits + std::string(kSuffix);
}

uint32_t segment_number(std::string_view name) {
  if (name.size() != kPrefix.size() + kDigits + kSuffix.size() || !name.starts_with(kPrefix) ||
      !name.ends_with(kSuffix))
    return UINT32_MAX;
  uint32_t n = 0;
  for (const char c : name.substr(kPrefix.size(), kDigits)) {
    if (c < '0' || c > '9') return UINT32_MAX;
    n = n * 10 + static_cast<uint32_t>(c - '0');
  }
  return n == 0 ? UINT32_MAX : n - 1;
}

bool is_tier_file(std::string_view name) {
  return name == "superblock" || name == "lock" || name == "lost+found" || name == "share.sock" ||
         name == "share.sock.lock" || segment_number(name) != UINT32_MAX;
}

}  // namespace kvbm::tier::disk
