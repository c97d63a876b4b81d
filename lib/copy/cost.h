// What it takes to bring blocks up, learned from what it took before, and whether that beats computing them.
//
// Pure but for SourceCost's lock: time comes from the caller, nothing here waits, allocates or logs. The formula and
// where its constants come from: docs/cost.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/mutex.h"

namespace kvbm::copy {

// What one source is expected to take from now on.
struct Expectation {
  uint64_t start_ns = 0;    // until its first byte: what is queued in front, then its latency
  double ns_per_byte = 0;   // from there on
  [[nodiscard]] uint64_t arrival_ns(uint64_t bytes) const noexcept {
    return start_ns + static_cast<uint64_t>(static_cast<double>(bytes) * ns_per_byte);
  }
};

// The cost of one source: a tier, or the copy out of host memory. A batch of b bytes is expected after
//   start + (bytes in front + b) * ns_per_byte
// and both terms are learned from completed batches: the line of least squares of relative errors through the last few
// of them, which batches of several sizes determine, and which what was thought before determines where they do not.
// A batch that is more than twice off means that the source has changed, or that it was a stray: then everything known
// moves by a power of the ratio. So a source a thousand times slower than thought is found out in a few batches, and one
// stray batch moves an estimate less than twofold, where a mean of times would take over nearly all of it.
// Lock: mutex_, a leaf, taken twice per batch and never per block.
class SourceCost {
 public:
  struct Seed {
    uint64_t start_ns;
    double ns_per_byte;
    uint64_t cap_bytes_per_s = 0;  // nothing faster is expected; 0 = none
  };
  // The state of a batch between asked() and answered().
  struct Ticket {
    uint64_t asked_ns = 0;
    uint64_t bytes = 0;
    uint64_t front_bytes = 0;
    uint64_t cap_wait_ns = 0;
  };
  enum class Answer {
    arrived,  // `got` bytes came
    late,     // it was given up: it would have taken longer still
    nothing,  // says nothing of the source's speed: a miss, an error
  };

  // Evidence older than this weighs less than what comes next, and is worth a probe.
  static constexpr uint64_t kStaleNs = 1'000'000'000;

  void seed(const Seed& seed) noexcept KVBM_EXCLUDES(mutex_);
  [[nodiscard]] Ticket asked(uint64_t now_ns, uint64_t bytes) noexcept KVBM_EXCLUDES(mutex_);
  void answered(uint64_t now_ns, const Ticket& ticket, Answer how, uint64_t got) noexcept KVBM_EXCLUDES(mutex_);
  // A transfer that nobody queued for.
  void took(uint64_t now_ns, uint64_t bytes, uint64_t ns) noexcept KVBM_EXCLUDES(mutex_);
  [[nodiscard]] Expectation expect(uint64_t now_ns) const noexcept KVBM_EXCLUDES(mutex_);
  // True once in kStaleNs for a source that nobody has measured for so long: the caller then does.
  [[nodiscard]] bool probe_due(uint64_t now_ns) noexcept KVBM_EXCLUDES(mutex_);

 private:
  void learn(uint64_t began_ns, double took_ns, double bytes) noexcept KVBM_REQUIRES(mutex_);
  void follow(double ratio) noexcept KVBM_REQUIRES(mutex_);
  void solve() noexcept KVBM_REQUIRES(mutex_);

  mutable Mutex mutex_;
  double start_ns_ KVBM_GUARDED_BY(mutex_) = 0;
  double ns_per_byte_ KVBM_GUARDED_BY(mutex_) = 0;
  // Weighted sums over batches, of 1, b, b * b, t and b * t.
  struct Sums {
    double one = 0, b = 0, bb = 0, t = 0, bt = 0;
  };
  Sums sums_ KVBM_GUARDED_BY(mutex_);
  double cap_ns_per_byte_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t cap_free_ns_ KVBM_GUARDED_BY(mutex_) = 0;  // when the cap lets the next byte through
  uint64_t outstanding_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t learned_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t last_ns_ KVBM_GUARDED_BY(mutex_) = 0;    // of the last answer
  uint64_t probed_ns_ KVBM_GUARDED_BY(mutex_) = 0;  // of the last probe; 0 = none
};

// How far to load. Element i of `arrival_ns` is when the keys up to i are in place, of `compute_ns` what computing key i
// alone takes. Keys that are not loaded are computed after the load.
struct LoadChoice {
  size_t keys = 0;          // leading keys that are worth it
  uint64_t load_ns = 0;     // when they are in place
  uint64_t total_ns = 0;    // and the others computed
  uint64_t compute_ns = 0;  // computing all of them
};
// The number of keys with the smallest total; of equal ones the largest. Not "the longest prefix that arrives before it
// could be computed": ten blocks from host memory and ten from a slow disk would pass that together, though the ten
// alone are done sooner. `whole`: all or nothing (a model whose state only the last block has).
[[nodiscard]] LoadChoice choose_load(std::span<const uint64_t> arrival_ns, std::span<const uint64_t> compute_ns,
                                     bool whole) noexcept;

// How much longer than predicted a load may keep its engine waiting. One eighth of what computing everything takes: a
// load that must end for nothing costs that much at most, and what a busy machine loses here and there does not end it.
// And one millisecond: below that the scheduling of threads is all that is measured.
[[nodiscard]] constexpr uint64_t load_slack_ns(uint64_t compute_all_ns) noexcept {
  return compute_all_ns / 8 + 1'000'000;
}

// When to give up waiting, in the time of `arrival_ns`. `in_place` keys came, the last of them at `last_ns`, and
// computing these would have taken `worth_ns`.
[[nodiscard]] uint64_t latest_ns(std::span<const uint64_t> arrival_ns, size_t in_place, uint64_t last_ns,
                                 uint64_t worth_ns, uint64_t slack_ns) noexcept;

}  // namespace kvbm::copy
