#include "tier/disk/segment.h"

#include <cstdio>
#include <cstring>

namespace kvbm::tier::disk {
namespace {
constexpr std::string_view kPrefix = "segment-";
constexpr std::string_view kSuffix = ".kv";
constexpr size_t kDigits = 6;       // at least
constexpr size_t kMostDigits = 10;  // of a 32-bit number
}  // namespace

std::string segment_name(uint32_t segment) {
  std::string digits = std::to_string(segment + 1);
  if (digits.size() < kDigits) digits.insert(0, kDigits - digits.size(), '0');
  return std::string(kPrefix) + digits + std::string(kSuffix);
}

uint32_t segment_number(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return UINT32_MAX;
  if (name.size() < kPrefix.size() + kDigits + kSuffix.size()) return UINT32_MAX;
  const std::string_view digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSuffix.size());
  // Of two names of one segment only that of segment_name() counts.
  if (digits.size() > kMostDigits || (digits.size() > kDigits && digits.front() == '0')) return UINT32_MAX;
  uint64_t n = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return UINT32_MAX;
    n = n * 10 + static_cast<uint64_t>(c - '0');
  }
  return n == 0 || n > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(n - 1);
}

bool is_tier_file(std::string_view name) {
  return name == "superblock" || name == "lock" || name == "lost+found" || name == "share.sock" ||
         name == "share.sock.lock" || segment_number(name) != UINT32_MAX;
}

}  // namespace kvbm::tier::disk
