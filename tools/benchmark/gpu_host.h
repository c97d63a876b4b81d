// `kvbm bench gpu --host`: measures the processor's work for a block that a cache on a device stores or loads. The
// driver's calls cost nothing (free_driver). No GPU is needed; a device adds its own time.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

struct GpuHostOptions {
  int rounds = 15;
  bool quiet = false;
};

// Rows of each model: wall time per block of a store, a load and a load by layers, beside the wire's; processor time
// of all threads; calls of the driver.
Result<std::vector<Row>> bench_gpu_host(const GpuHostOptions& options);

}  // namespace kvbm::benchmark
