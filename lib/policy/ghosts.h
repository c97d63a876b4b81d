// A bounded memory of blocks that left: when they were last used and what class they were in.
//
// Sets of 8 entries of 12 bytes, found by fingerprint; the oldest of a full set makes room. A
// fingerprint of 32 bits and the set number tell blocks apart, so a wrong memory has a chance of
// about 8 / 2^32 a look-up; it costs a misjudged block, never a wrong one.
// Budget: at most max(65,536, 4 x capacity) entries (architecture: bounded history).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvbm::policy {

struct Ghost {
  uint32_t fingerprint = 0;  // 0 = empty
  uint32_t last_use = 0;
  uint8_t kind = 0;
};
static_assert(sizeof(Ghost) <= 16);

class Ghosts {
 public:
  static constexpr size_t kWays = 8;
  static constexpr size_t kLeast = 65536;

  explicit Ghosts(size_t capacity)
      : sets_(std::bit_floor((4 * capacity > kLeast ? 4 * capacity : kLeast) / kWays)), entries_(sets_ * kWays) {}

  void prefetch(uint64_t name) const noexcept { __builtin_prefetch(&entries_[set(name) * kWays]); }

  // Removes and returns what is known of a block; fingerprint 0 when nothing is.
  Ghost take(uint64_t name) noexcept {
    Ghost* entry = &entries_[set(name) * kWays];
    const uint32_t wanted = fingerprint(name);
    for (size_t i = 0; i < kWays; ++i) {
      if (entry[i].fingerprint != wanted) continue;
      const Ghost found = entry[i];
      entry[i] = Ghost{};
      return found;
    }
    return {};
  }

  // Returns the entry that had to make room; fingerprint 0 when there was room.
  Ghost put(uint64_t name, uint32_t last_use, uint8_t kind, uint32_t now) noexcept {
    Ghost* entry = &entries_[set(name) * kWays];
    size_t oldest = 0;
    for (size_t i = 0; i < kWays; ++i) {
      if (entry[i].fingerprint == 0) {
        oldest = i;
        break;
      }
      if (now - entry[i].last_use > now - entry[oldest].last_use) oldest = i;
    }
    const Ghost gone = entry[oldest];
    entry[oldest] = {fingerprint(name), last_use, kind};
    return gone;
  }

  [[nodiscard]] const std::vector<Ghost>& entries() const noexcept { return entries_; }
  [[nodiscard]] size_t bytes() const noexcept { return entries_.size() * sizeof(Ghost); }

 private:
  [[nodiscard]] size_t set(uint64_t name) const noexcept { return static_cast<size_t>(name) & (sets_ - 1); }
  [[nodiscard]] static uint32_t fingerprint(uint64_t name) noexcept {
    const auto high = static_cast<uint32_t>(name >> 32);
    return high == 0 ? 1 : high;
  }

  size_t sets_;
  std::vector<Ghost> entries_;
};

}  // namespace kvbm::policy
