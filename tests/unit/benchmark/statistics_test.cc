// The clocks of `kvbm bench`: which time each of them counts.
#include "benchmark/statistics.h"

#include <gtest/gtest.h>

#include <thread>

namespace kvbm::benchmark::statistics_test {
namespace {

TEST(Stopwatches, the_process_clock_counts_the_work_of_another_thread) {
  constexpr double kWork = 0.01;
  const ProcessStopwatch process;
  std::thread([] {
    const ThreadStopwatch own;
    while (own.seconds() < kWork) {
    }
  }).join();
  EXPECT_GE(process.seconds(), kWork);
}

}  // namespace
}  // namespace kvbm::benchmark::statistics_test
