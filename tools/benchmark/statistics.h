// Makes rows out of samples: medians of rounds, and the ratio's direction.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

// Returns the middle sample (the upper one of two); 0 if there is none.
double median(std::vector<double> values);
// Returns the value below which `share` (0 to 1) of the samples lie.
double quantile(std::vector<double> values, double share);

// Returns a row with the ratio limit / value: times, sizes. No limit: 0.
Row less_is_better(std::string name, double value, std::string unit, double limit, std::string limit_name);
// Returns a row with the ratio value / limit: speeds.
Row more_is_better(std::string name, double value, std::string unit, double limit, std::string limit_name);

class Stopwatch {
 public:
  Stopwatch() : start_(std::chrono::steady_clock::now()) {}
  [[nodiscard]] double ns() const {
    return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start_).count();
  }
  [[nodiscard]] double seconds() const { return ns() / 1e9; }

 private:
  std::chrono::steady_clock::time_point start_;
};

// Time that the calling thread has run. For work that never waits it equals wall time on an idle machine, and does
// not grow while other programs have the processor.
class ThreadStopwatch {
 public:
  ThreadStopwatch() : start_(now()) {}
  [[nodiscard]] double seconds() const { return now() - start_; }

 private:
  static double now();
  double start_;
};

// Time that all threads of this process have run: work that a call hands to another thread counts as well.
class ProcessStopwatch {
 public:
  ProcessStopwatch() : start_(now()) {}
  [[nodiscard]] double seconds() const { return now() - start_; }

 private:
  static double now();
  double start_;
};

// Adds the thread's own time of the work.
template <class Work>
Status timed(std::vector<double>& out, Work&& work) {
  const ThreadStopwatch watch;
  Status done = work();
  out.push_back(watch.seconds());
  return done;
}

}  // namespace kvbm::benchmark
