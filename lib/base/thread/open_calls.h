// Counts the calls inside an object until it closes: none enters from then on, and leave() reports the last one.
//
// Thread: any; no lock. What a thread did before close() happens before what the last call does after leave(), and what
// calls did happens before what follows a close() that found none.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvbm {

class OpenCalls {
 public:
  // Returns false after close(); else leave() must follow.
  [[nodiscard]] bool enter() noexcept {
    uint64_t now = calls_.load(std::memory_order_relaxed);
    do {
      if ((now & kClosed) != 0) return false;
    } while (!calls_.compare_exchange_weak(now, now + 1, std::memory_order_acq_rel, std::memory_order_relaxed));
    return true;
  }
  // Returns true for the last call after close().
  [[nodiscard]] bool leave() noexcept { return calls_.fetch_sub(1, std::memory_order_acq_rel) == (kClosed | 1); }
  // Returns true if no call is inside; else one leave() returns true.
  [[nodiscard]] bool close() noexcept { return (calls_.fetch_or(kClosed, std::memory_order_acq_rel) & ~kClosed) == 0; }

 private:
  static constexpr uint64_t kClosed = 1ULL << 63;
  std::atomic<uint64_t> calls_{0};
};

}  // namespace kvbm
