// Times of retries for a peer: waits double from `first_ns` to `most_ns`. Each is drawn evenly from its upper half,
// so that the peers of a node that returns do not all connect at once ("equal jitter"; Brooker, AWS Architecture
// Blog, 2015).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/crypto/random.h"

namespace kvbm::cluster {

class Backoff {
 public:
  // A restarted peer must serve again within 1 s, so the longest wait stays below that.
  static constexpr uint64_t kFirstNs = 20'000'000;
  static constexpr uint64_t kMostNs = 800'000'000;

  explicit Backoff(Random& random, uint64_t first_ns = kFirstNs, uint64_t most_ns = kMostNs) noexcept
      : random_(random), first_ns_(first_ns), most_ns_(most_ns), next_ns_(first_ns) {}

  // Returns the next wait.
  uint64_t wait_ns() noexcept {
    const uint64_t wait = next_ns_;
    next_ns_ = std::min(most_ns_, next_ns_ * 2);
    return wait - random_.below(wait / 2 + 1);
  }
  // Resets the wait after a connection that was established and has lived.
  void succeeded() noexcept { next_ns_ = first_ns_; }

 private:
  Random& random_;
  uint64_t first_ns_;
  uint64_t most_ns_;
  uint64_t next_ns_;
};

}  // namespace kvbm::cluster
