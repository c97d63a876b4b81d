// The benchmark's own kernels (tools/benchmark/kernels), compiled and embedded. Empty in a build without nvcc.
#pragma once

#include "base/bytes.h"

namespace kvbm::benchmark {

ConstBytes gpu_image() noexcept;

}  // namespace kvbm::benchmark
