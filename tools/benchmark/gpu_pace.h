// Decides for which rounds of `kvbm bench gpu` there is time, and shows the progress of all of them. Without it, a
// device that copies as slowly as the tests' fake driver would take minutes for useless figures. Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "terminal/progress.h"

namespace kvbm::benchmark {

class GpuPace {
 public:
  using Clock = std::chrono::steady_clock;
  // Divides `seconds` equally among `figures` figures. `rounds` is the total number of requested rounds.
  GpuPace(double seconds, uint64_t figures, uint64_t rounds, bool quiet)
      : share_(std::chrono::duration_cast<Clock::duration>(
            std::chrono::duration<double>(seconds / static_cast<double>(figures)))),
        progress_("moving", rounds, terminal::Unit::items, quiet) {}

  // Begins a figure of `rounds` rounds.
  void begin(int rounds) {
    asked_ = rounds;
    round_ = -1;
    until_ = Clock::now() + share_;
  }
  // Returns whether there is another round: the first always, others while the figure's share lasts. For `while
  // (pace.another())`.
  bool another() {
    if (round_ >= 0) progress_.advance(1);
    if (++round_ >= asked_) return false;
    if (round_ == 0 || Clock::now() < until_) return true;
    ++cut_;
    progress_.advance(static_cast<uint64_t>(asked_ - round_));
    return false;
  }
  [[nodiscard]] int round() const noexcept { return round_; }
  // Returns the number of samples with fewer rounds than requested.
  [[nodiscard]] uint64_t cut() const noexcept { return cut_; }
  void finish() { progress_.finish(); }

 private:
  const Clock::duration share_;
  Clock::time_point until_;
  terminal::Progress progress_;
  int asked_ = 0;
  int round_ = 0;
  uint64_t cut_ = 0;
};

// Seconds of a figure and of its limit.
struct Samples {
  std::vector<double> ours, theirs;
};

// Runs both in turns; the first one alternates. Each returns a Result<double>.
template <class Ours, class Theirs>
Status alternate(int rounds, Samples& samples, GpuPace& pace, Ours&& ours, Theirs&& theirs) {
  pace.begin(rounds);
  while (pace.another()) {
    for (int turn = 0; turn < 2; ++turn) {
      const bool is_ours = (pace.round() + turn) % 2 == 0;
      const Result<double> seconds = is_ours ? ours() : theirs();
      if (!seconds.ok()) return seconds.status();
      (is_ours ? samples.ours : samples.theirs).push_back(seconds.value());
    }
  }
  return {};
}

}  // namespace kvbm::benchmark
