// `kvbm bench gpu`: moves an engine's cache in device memory to records in pinned host memory and back, plain and
// coded. Each figure stands beside that of the device's own copies in the same run.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "benchmark/row.h"
#include "device/driver/driver.h"

namespace kvbm::benchmark {

struct GpuOptions {
  int device = 0;
  int rounds = 15;
  int calls = 5;                  // per round of a latency
  uint64_t bytes = 256ULL << 20;  // bytes moved in one sample; twice as much device memory is allocated
  uint32_t multiprocessors = 8;   // limit for transfers: device.multiprocessors
  double seconds = 60;            // for the rounds of all figures; a slow figure gets fewer rounds, at least one
  bool quiet = false;
};

struct GpuFigures {
  std::string device;  // name, place and driver of the device, for the reader of the figures
  std::vector<Row> rows;
  uint64_t cut = 0;  // samples with fewer rounds than requested
};

// Checks every transfer byte by byte once before it is timed; a wrong one is an error and no figure. Returns
// unsupported without a device or without kernels for it, and damaged if bytes are wrong.
Result<GpuFigures> bench_gpu(const device::Driver& driver, const GpuOptions& options);

}  // namespace kvbm::benchmark
