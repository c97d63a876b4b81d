// Measures the kernels of the library and of the benchmark on data that stays on the device, and stores beside other
// work on it.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/gpu.h"
#include "benchmark/gpu_pace.h"
#include "benchmark/gpu_world.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

// gpu.device_gather and gpu.device_scatter, against a copy from device to device; gpu.hash, against reading the same
// memory; gpu.store_beside_gemm and gpu.gather_beside_gemm.
Status bench_gpu_kernels(GpuWorld& world, const GpuOptions& options, GpuPace& pace, std::vector<Row>& rows);

}  // namespace kvbm::benchmark
