// A bounded memory of blocks that left: when they were last used and what class they were in.
//
// Sets of 8 entries of 8 bytes, one cache line, found by fingerprint; the oldest of a full set makes room.
// A fingerprint of 24 bits and the set number tell blocks apart, so a wrong memory has a chance of
// about 8 / 2^24 a look-up; it costs a misjudged block, never a wrong one.
// Budget: at most max(65,536, 2 x capacity) entries: 16 bytes a block of a large cache, so that all metadata
// stays within 96.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvbm::policy {

struct Ghost {
  bool known = false;
  uint8_t kind = 0;
  uint32_t last_use = 0;
};

class Ghosts {
 public:
  static constexpr size_t kWays = 8;
  static constexpr size_t kLeast = 65536;

  explicit Ghosts(size_t capacity) : sets_(std::bit_floor(std::max(2 * capacity, kLeast) / kWays)) {}

  void prefetch(uint64_t name) const noexcept { __builtin_prefetch(&sets_[set(name)], 1); }

  // Removes and returns what is known of a block.
  Ghost take(uint64_t name) noexcept {
    Set& at = sets_[set(name)];
    const uint32_t wanted = fingerprint(name);
    uint32_t found = 0;
    for (uint32_t i = 0; i < kWays; ++i) found |= uint32_t{at.tags[i] >> 8 == wanted} << i;
    if (found == 0) return {};
    const auto i = static_cast<size_t>(std::countr_zero(found));
    const Ghost ghost = at.ghost(i);
    at.tags[i] = 0;
    return ghost;
  }

  // Returns the entry that had to make room; not known when there was room.
  Ghost put(uint64_t name, uint32_t last_use, uint8_t kind, uint32_t now) noexcept {
    Set& at = sets_[set(name)];
    // The greatest of age and place, without branches: which is the oldest cannot be foretold.
    uint64_t best = 0;
    for (uint32_t i = 0; i < kWays; ++i) {
      const uint64_t age = at.tags[i] == 0 ? uint64_t{UINT32_MAX} + 1 : now - at.last_uses[i];
      best = std::max<uint64_t>(best, age << 3 | (kWays - 1 - i));
    }
    const size_t i = kWays - 1 - (best & (kWays - 1));
    const Ghost gone = at.ghost(i);
    at.tags[i] = fingerprint(name) << 8 | kind;
    at.last_uses[i] = last_use;
    return gone;
  }

  // Entries in the order of memory, for a walk over all.
  [[nodiscard]] size_t size() const noexcept { return sets_.size() * kWays; }
  [[nodiscard]] Ghost at(size_t i) const noexcept { return sets_[i / kWays].ghost(i % kWays); }
  [[nodiscard]] size_t bytes() const noexcept { return sets_.size() * sizeof(Set); }

 private:
  struct alignas(64) Set {
    std::array<uint32_t, kWays> tags;  // fingerprint << 8 | kind; 0 = empty
    std::array<uint32_t, kWays> last_uses;
    [[nodiscard]] Ghost ghost(size_t i) const noexcept {
      return {tags[i] != 0, static_cast<uint8_t>(tags[i]), last_uses[i]};
    }
  };
  static_assert(sizeof(Set) == 64);

  [[nodiscard]] size_t set(uint64_t name) const noexcept { return static_cast<size_t>(name) & (sets_.size() - 1); }
  [[nodiscard]] static uint32_t fingerprint(uint64_t name) noexcept {
    const auto high = static_cast<uint32_t>(name >> 40);
    return high == 0 ? 1 : high;
  }

  std::vector<Set> sets_;
};

}  // namespace kvbm::policy
