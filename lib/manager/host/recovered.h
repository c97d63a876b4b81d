// Slots with unverified blocks of an earlier process: one bit each. Their heads were checked when they were found;
// their bytes are verified before the first use (HostTier::trust).
//
// Thread: any; begin() before there are others. Budget: one load of a word that no longer changes, once all blocks
// are verified or gone.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/ids.h"

namespace kvbm::manager {

class Recovered {
 public:
  void begin(uint32_t slots) { words_ = std::make_unique<std::atomic<uint64_t>[]>((slots + 63U) / 64U); }
  void add(SlotId slot) noexcept {
    if ((words_[slot / 64].fetch_or(bit(slot)) & bit(slot)) == 0) left_.fetch_add(1, std::memory_order_release);
  }
  [[nodiscard]] bool has(SlotId slot) const noexcept {
    return any() && (words_[slot / 64].load(std::memory_order_acquire) & bit(slot)) != 0;
  }
  [[nodiscard]] bool any() const noexcept { return left_.load(std::memory_order_acquire) != 0; }
  // Clears a slot that was verified, or has other bytes now.
  void remove(SlotId slot) noexcept {
    if (any() && (words_[slot / 64].fetch_and(~bit(slot)) & bit(slot)) != 0) {
      left_.fetch_sub(1, std::memory_order_release);
    }
  }

 private:
  static uint64_t bit(SlotId slot) noexcept { return 1ULL << slot % 64; }
  std::unique_ptr<std::atomic<uint64_t>[]> words_;
  std::atomic<uint32_t> left_{0};
};

}  // namespace kvbm::manager
