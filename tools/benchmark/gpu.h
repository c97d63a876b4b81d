// `kvbm bench gpu`: an engine's cache in device memory to records in pinned host memory and back, as they are and
// coded, each figure beside what the device's own copies reach in the same run.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"
#include "device/driver.h"

namespace kvbm::benchmark {

struct GpuOptions {
  int device = 0;
  int rounds = 15;
  int calls = 5;                    // a round of a latency
  uint64_t bytes = 256ULL << 20;    // moved in one sample; twice as much device memory is taken
  uint32_t multiprocessors = 8;     // that transfers may use: device.multiprocessors
  double seconds = 60;  // for the rounds of all figures: one that is too slow for its share gets fewer, one at least
  bool quiet = false;
};

struct GpuFigures {
  std::string device;  // its name, place and driver, for whoever writes the figures down
  std::vector<Row> rows;
  uint64_t cut = 0;  // samples that had fewer rounds than asked for
};

// Every transfer is checked byte by byte once before it is timed; a wrong one is an error and no figure. unsupported
// without a device or without kernels for it; damaged where bytes are not what they should be.
Result<GpuFigures> bench_gpu(const device::Driver& driver, const GpuOptions& options);

}  // namespace kvbm::benchmark
