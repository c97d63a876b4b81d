// Cost of bringing blocks up, learned from earlier transfers, and whether that beats computing them.
//
// Pure but for SourceCost's lock: time comes from the caller, nothing here waits, allocates or logs. The formula and
// the sources of its constants: docs/cost.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread/mutex.h"

namespace kvbm::copy {

// Expected cost of one source from now on.
struct Expectation {
  uint64_t start_ns = 0;   // until its first byte: transfers queued in front, then its latency
  double ns_per_byte = 0;  // from there on
  [[nodiscard]] uint64_t arrival_ns(uint64_t bytes) const noexcept {
    return start_ns + static_cast<uint64_t>(static_cast<double>(bytes) * ns_per_byte);
  }
};

// The cost of one source: a tier, or the copy out of host memory. A batch of b bytes is expected after
//   start + (bytes in front + b) * ns_per_byte
// Both terms are learned from completed batches: a line of least squares of relative errors through the last few of
// them. Batches of several sizes determine the line; where they do not, the earlier estimate does. A batch that is off
// by more than a factor of 2 means that the source has changed, or is an outlier: then the whole estimate moves by a
// power of the ratio. So a source a thousand times slower than expected is found within a few batches. One outlier
// moves an estimate less than twofold, where a mean of times would move nearly all the way.
// Lock: mutex_, a leaf, taken twice per batch and never per block.
class SourceCost {
 public:
  // The state of a batch between asked() and answered().
  struct Ticket {
    uint64_t asked_ns = 0;
    uint64_t bytes = 0;
    uint64_t front_bytes = 0;
    uint64_t cap_wait_ns = 0;
  };
  enum class Answer {
    arrived,  // `got` bytes arrived
    late,     // abandoned: it would have taken longer still
    nothing,  // a miss or an error: says nothing about the speed
  };

  // Evidence older than this weighs less than the next one, and is worth a probe.
  static constexpr uint64_t kStaleNs = 1'000'000'000;

  // Sets the first expectation. Nothing faster than the cap is expected; 0 = none.
  void seed(const Expectation& first, uint64_t cap_bytes_per_s = 0) noexcept KVBM_EXCLUDES(mutex_);
  [[nodiscard]] Ticket asked(uint64_t now_ns, uint64_t bytes) noexcept KVBM_EXCLUDES(mutex_);
  void answered(uint64_t now_ns, const Ticket& ticket, Answer how, uint64_t got) noexcept KVBM_EXCLUDES(mutex_);
  // Adds a transfer that did not queue.
  void took(uint64_t now_ns, uint64_t bytes, uint64_t ns) noexcept KVBM_EXCLUDES(mutex_);
  [[nodiscard]] Expectation expect(uint64_t now_ns) const noexcept KVBM_EXCLUDES(mutex_);
  // Returns true once in kStaleNs for a source that was not measured for that long: the caller then measures it.
  [[nodiscard]] bool probe_due(uint64_t now_ns) noexcept KVBM_EXCLUDES(mutex_);

 private:
  void learn(uint64_t began_ns, double took_ns, double bytes) noexcept KVBM_REQUIRES(mutex_);
  void follow(double ratio) noexcept KVBM_REQUIRES(mutex_);
  void solve() noexcept KVBM_REQUIRES(mutex_);

  mutable Mutex mutex_;
  double start_ns_ KVBM_GUARDED_BY(mutex_) = 0;
  double ns_per_byte_ KVBM_GUARDED_BY(mutex_) = 0;
  // Weighted sums over batches: of 1, b, b * b, t and b * t.
  double sum_one_ KVBM_GUARDED_BY(mutex_) = 0;
  double sum_b_ KVBM_GUARDED_BY(mutex_) = 0;
  double sum_bb_ KVBM_GUARDED_BY(mutex_) = 0;
  double sum_t_ KVBM_GUARDED_BY(mutex_) = 0;
  double sum_bt_ KVBM_GUARDED_BY(mutex_) = 0;
  double cap_ns_per_byte_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t cap_free_ns_ KVBM_GUARDED_BY(mutex_) = 0;  // when the cap allows the next byte
  uint64_t outstanding_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t learned_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t last_ns_ KVBM_GUARDED_BY(mutex_) = 0;    // time of the last answer
  uint64_t probed_ns_ KVBM_GUARDED_BY(mutex_) = 0;  // time of the last probe; 0 = none
};

// How far to load. Element i of `arrival_ns` is the time at which keys 0 to i are in place, of `compute_ns` the time to
// compute key i alone. Keys that are not loaded are computed after the load.
struct LoadChoice {
  size_t keys = 0;          // leading keys that are worth it
  uint64_t load_ns = 0;     // until they are in place
  uint64_t total_ns = 0;    // until the others are computed, too
  uint64_t compute_ns = 0;  // to compute all of them
};
// Returns the number of keys with the smallest total; of equal ones the largest. "The longest prefix that arrives
// before it could be computed" would be wrong: ten blocks from host memory and ten from a slow disk pass that together,
// though the first ten alone are done sooner. `whole`: all or nothing (a model with its state in the last block only).
[[nodiscard]] LoadChoice choose_load(std::span<const uint64_t> arrival_ns, std::span<const uint64_t> compute_ns,
                                     bool whole) noexcept;

// How much longer than predicted a load may keep its engine waiting. One eighth of the time to compute everything: a
// load that must be abandoned costs at most that much, and small delays of a busy machine do not end it. Plus one
// millisecond: below that only thread scheduling is measured.
[[nodiscard]] constexpr uint64_t load_slack_ns(uint64_t compute_all_ns) noexcept {
  return compute_all_ns / 8 + 1'000'000;
}

// Returns when to stop waiting, in the time of `arrival_ns`. `in_place` keys arrived, the last of them at `last_ns`,
// and computing these would have taken `worth_ns`.
[[nodiscard]] uint64_t latest_ns(std::span<const uint64_t> arrival_ns, size_t in_place, uint64_t last_ns,
                                 uint64_t worth_ns, uint64_t slack_ns) noexcept;

}  // namespace kvbm::copy
