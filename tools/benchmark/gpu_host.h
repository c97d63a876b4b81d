// `kvbm bench gpu --host`: what the processor works for a block that a cache on a device stores or loads, with a driver whose
// calls cost nothing (free_driver). No GPU is needed; what a device adds is its own time.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct GpuHostOptions {
  int rounds = 15;
  bool quiet = false;
};

// Of each model: time on the wall of a block, of a store, a load and a load by layers, beside the wire's; processor time of
// all threads; calls of the driver.
Result<std::vector<Row>> bench_gpu_host(const GpuHostOptions& options);

}  // namespace kvbm::benchmark
