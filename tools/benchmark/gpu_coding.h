// Blocks of a cache on a device as coded streams in the host's memory and back, as kvbm_cache_encode and
// kvbm_cache_decode do.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "benchmark/gpu.h"
#include "benchmark/gpu_pace.h"
#include "benchmark/gpu_world.h"
#include "benchmark/row.h"

namespace kvbm::benchmark {

// How many rows the following gives: zstd's are left out of a build without it.
[[nodiscard]] uint64_t gpu_coding_figures() noexcept;

// gpu.encode.MODE and gpu.decode.MODE: plain bytes a second of made-up bf16, an eighth of a sample in one call, against
// one copy of the plain bytes. What is encoded is compared with what the processor makes of the same bytes, and what is
// decoded with that.
Status bench_gpu_coding(GpuWorld& world, const GpuOptions& options, GpuPace& pace, std::vector<Row>& rows);

}  // namespace kvbm::benchmark
