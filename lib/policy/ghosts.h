// A bounded memory of blocks that left: when they were last used and what class they were in.
//
// Sets of 8 entries of 8 bytes, one cache line, found by fingerprint; the oldest of a full set makes room.
// A fingerprint of 24 bits and the set number tell blocks apart, so a wrong memory has a chance of
// about 8 / 2^24 a look-up; it costs a misjudged block, never a wrong one.
// Budget: at most max(65,536, 2 x capacity) entries: 16 bytes a block of a large cache, so that all metadata
// stays within 96. Four times the capacity gave the production trace no more hits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvbm::policy {

struct Ghost {
  uint32_t fingerprint : 24 = 0;  // 0 = empty
  uint32_t kind : 8 = 0;
  uint32_t last_use = 0;
};
static_assert(sizeof(Ghost) == 8);

class Ghosts {
 public:
  static constexpr size_t kWays = 8;
  static constexpr size_t kLeast = 65536;

  explicit Ghosts(size_t capacity)
      : sets_(std::bit_floor(std::max(2 * capacity, kLeast) / kWays)) {}

  void prefetch(uint64_t name) const noexcept { __builtin_prefetch(&sets_[set(name)]); }

  // Removes and returns what is known of a block; fingerprint 0 when nothing is.
  Ghost take(uint64_t name) noexcept {
    auto& entry = sets_[set(name)].entries;
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
    auto& entry = sets_[set(name)].entries;
    size_t oldest = 0;
    for (size_t i = 0; i < kWays; ++i) {
      if (entry[i].fingerprint == 0) {
        oldest = i;
        break;
      }
      if (now - entry[i].last_use > now - entry[oldest].last_use) oldest = i;
    }
    const Ghost gone = entry[oldest];
    entry[oldest].fingerprint = fingerprint(name) & 0xFFFFFFU;
    entry[oldest].kind = kind;
    entry[oldest].last_use = last_use;
    return gone;
  }

  [[nodiscard]] std::span<const Ghost> entries() const noexcept {
    return {sets_.front().entries.data(), sets_.size() * kWays};
  }
  [[nodiscard]] size_t bytes() const noexcept { return sets_.size() * sizeof(Set); }

 private:
  struct alignas(64) Set {
    std::array<Ghost, kWays> entries;
  };
  static_assert(sizeof(Set) == kWays * sizeof(Ghost));

  [[nodiscard]] size_t set(uint64_t name) const noexcept { return static_cast<size_t>(name) & (sets_.size() - 1); }
  [[nodiscard]] static uint32_t fingerprint(uint64_t name) noexcept {
    const auto high = static_cast<uint32_t>(name >> 40) & 0xFFFFFFU;
    return high == 0 ? 1 : high;
  }

  std::vector<Set> sets_;
};

}  // namespace kvbm::policy
