// Measures blocks of a cache on a device that are coded to streams in the host's memory and back, as
// kvbm_cache_encode and kvbm_cache_decode do.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "benchmark/gpu.h"
#include "benchmark/gpu_pace.h"
#include "benchmark/gpu_world.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

// Returns the number of rows of bench_gpu_coding(). A build without zstd leaves out its rows.
[[nodiscard]] uint64_t gpu_coding_figures() noexcept;

// gpu.encode.MODE and gpu.decode.MODE: plain bytes per second of made-up bf16, an eighth of a sample in one call,
// against one copy of the plain bytes. Encoded streams are compared with those of the processor for the same bytes,
// and decoded bytes with the processor's.
Status bench_gpu_coding(GpuWorld& world, const GpuOptions& options, GpuPace& pace, std::vector<Row>& rows);

}  // namespace kvbm::benchmark
