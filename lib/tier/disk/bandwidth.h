// A cap in bytes a second: a token bucket that may go into debt by one transfer, so that a
// transfer larger than the bucket still passes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace kvbm::tier::disk {

class Bandwidth {
 public:
  explicit Bandwidth(uint64_t bytes_per_s) : rate_(bytes_per_s) {}
  // Returns when the next transfer may start; 0: now.
  uint64_t ready_at(uint64_t now_ns) noexcept {
    if (rate_ == 0 || free_at_ <= now_ns) return 0;
    return free_at_;
  }
  void take(uint64_t now_ns, uint64_t bytes) noexcept {
    if (rate_ == 0) return;
    // An idle cap saves up at most 10 ms of transfers.
    constexpr uint64_t kBurstNs = 10'000'000;
    const uint64_t earliest = now_ns > kBurstNs ? now_ns - kBurstNs : 0;
    const auto cost = static_cast<uint64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(rate_));
    free_at_ = std::max(free_at_, earliest) + cost;
  }

 private:
  uint64_t rate_;
  uint64_t free_at_ = 0;
};

}  // namespace kvbm::tier::disk
