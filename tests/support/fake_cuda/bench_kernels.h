// Kernels of `kvbm bench gpu` for the fake driver. They do nothing, because their results are not read.
#pragma once

#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::test {

void add_bench_kernels(FakeCuda& fake);

}  // namespace kvbm::test
