// A count-min sketch of 4-bit counters that halve after a period, so that old counts fade.
// Budget: half a byte a counter, 16 counters a block of capacity. Locks: none.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvbm::policy {

class Sketch {
 public:
  explicit Sketch(size_t capacity, bool fades = true)
      : fades_(fades),
        words_(std::bit_ceil(std::max<size_t>(capacity, 64))),
        period_(10 * std::max<size_t>(capacity, 64)) {}

  void add(uint64_t name) noexcept {
    for (uint32_t row = 0; row < kRows; ++row) {
      const size_t at = counter(name, row);
      if (value(at) < 15) words_[at / 16] += uint64_t{1} << at % 16 * 4;
    }
    if (fades_ && ++added_ >= period_) halve();
  }
  [[nodiscard]] uint32_t count(uint64_t name) const noexcept {
    uint64_t least = 15;
    for (uint32_t row = 0; row < kRows; ++row) least = std::min(least, value(counter(name, row)));
    return static_cast<uint32_t>(least);
  }
  void halve() noexcept {
    for (uint64_t& word : words_) word = word >> 1 & 0x7777777777777777ULL;
    added_ = 0;
  }
  [[nodiscard]] size_t bytes() const noexcept { return words_.size() * sizeof(uint64_t); }

 private:
  static constexpr uint32_t kRows = 4;
  // Number of the block's counter of a row; a word has 16 counters.
  [[nodiscard]] size_t counter(uint64_t name, uint32_t row) const noexcept {
    const uint64_t h = (name ^ row * 0xD6E8FEB86659FD93ULL) * (0x9E3779B97F4A7C15ULL + uint64_t{2} * row);
    return (static_cast<size_t>(h >> 32) & (words_.size() - 1)) * 16 + row * 4 + (h >> 30 & 3);
  }
  [[nodiscard]] uint64_t value(size_t counter) const noexcept { return words_[counter / 16] >> counter % 16 * 4 & 15; }

  bool fades_;
  std::vector<uint64_t> words_;
  size_t period_;
  size_t added_ = 0;
};

}  // namespace kvbm::policy
