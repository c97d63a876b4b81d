// The kernels of `kvbm bench gpu` for the fake driver: they do nothing, for nothing of theirs is looked at.
#pragma once

#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::test {

void add_bench_kernels(FakeCuda& fake);

}  // namespace kvbm::test
