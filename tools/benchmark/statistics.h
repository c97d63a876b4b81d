// Rows out of samples: medians of rounds, and the ratio's direction.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

// The middle sample (the upper one of two); 0 of none.
double median(std::vector<double> values);
// The value below which `share` (0 to 1) of the samples lie.
double quantile(std::vector<double> values, double share);

// A row whose ratio is limit / value: times, sizes. No limit: 0.
Row less_is_better(std::string name, double value, std::string unit, double limit, std::string limit_name);
// A row whose ratio is value / limit: speeds.
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

// Time that the calling thread has run. For work that never waits it is what a clock on the wall says of an idle
// machine, and does not grow while other programs have the processor.
class ThreadStopwatch {
 public:
  ThreadStopwatch() : start_(now()) {}
  [[nodiscard]] double seconds() const { return now() - start_; }

 private:
  static double now();
  double start_;
};

// Adds the thread's own time that the work took.
template <class Work>
Status timed(std::vector<double>& out, Work&& work) {
  const ThreadStopwatch watch;
  Status done = work();
  out.push_back(watch.seconds());
  return done;
}

}  // namespace kvbm::benchmark
