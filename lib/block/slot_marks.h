// Marks of the blocks that the next process may find: one word per slot, in memory that outlives this one (the host
// tier's file).
//
//   none  -> a value   the block is findable, and its bytes are whole (kept())
//   any   -> ended     it was withdrawn: for good, even if another thread is about to mark it
//   any   -> none      the slot has no block: before any thread may write to its bytes
//
// So a slot has a value only while its block is registered and not withdrawn. Budget: one store or compare-and-swap;
// nothing without such memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace kvbm::block {

class SlotMarks {
 public:
  static constexpr uint64_t kNone = 0;
  static constexpr uint64_t kEnded = 1;  // values are larger

  explicit SlotMarks(std::span<uint64_t> words) noexcept : words_(words) {}

  void kept(SlotId slot, uint64_t value) noexcept {
    if (words_.empty()) return;
    uint64_t none = kNone;
    (void)at(slot).compare_exchange_strong(none, value);
  }
  void ended(SlotId slot) noexcept {
    if (!words_.empty()) at(slot).store(kEnded);
  }
  void none(SlotId slot) noexcept {
    if (!words_.empty()) at(slot).store(kNone, std::memory_order_release);
  }

 private:
  [[nodiscard]] std::atomic_ref<uint64_t> at(SlotId slot) const noexcept {
    return std::atomic_ref<uint64_t>(words_[slot]);
  }
  std::span<uint64_t> words_;
};

}  // namespace kvbm::block
