// Measures loads of coded blocks into the pages of a device, which decodes them.
#pragma once

#include <vector>

#include "base/status.h"
#include "benchmark/gpu.h"
#include "benchmark/gpu_pace.h"
#include "benchmark/gpu_world.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

// gpu.load_coded.MODE: plain bytes per second of made-up bf16 that is coded in pinned memory, against one copy of the
// plain bytes. Every leaf is compared with the hash of the plain leaf.
Status bench_gpu_coded(GpuWorld& world, const GpuOptions& options, GpuPace& pace, std::vector<Row>& rows);

}  // namespace kvbm::benchmark
