// Log throttle: a failure that repeats for one reason is reported once, and again after 1, 2, 4 ... minutes with the
// number of attempts.
//
// Thread: one at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace kvbm::cluster {

class LogThrottle {
 public:
  static constexpr uint64_t kFirstNs = 60'000'000'000;
  static constexpr uint64_t kMostNs = 64 * kFirstNs;

  // Counts a failure for this reason. Returns the text to log; empty if it was logged lately.
  std::string failed(const std::string& reason, uint64_t now_ns) {
    if (reason != reason_) {
      *this = {};
      reason_ = reason;
      next_ns_ = now_ns + wait_ns_;
      return reason;
    }
    ++again_;
    if (now_ns < next_ns_) return {};
    const std::string text = reason + " (the same " + std::to_string(again_) + " times more)";
    wait_ns_ = std::min(wait_ns_ * 2, kMostNs);
    next_ns_ = now_ns + wait_ns_;
    return text;
  }
  // Resets after a success; the next failure is reported at once.
  void over() { *this = {}; }

 private:
  std::string reason_;
  uint64_t again_ = 0;  // since the last report of a new reason
  uint64_t wait_ns_ = kFirstNs;
  uint64_t next_ns_ = 0;
};

}  // namespace kvbm::cluster
