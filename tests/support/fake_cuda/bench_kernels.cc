#include "support/fake_cuda/bench_kernels.h"

namespace kvbm::test {

void add_bench_kernels(FakeCuda& fake) {
  const auto nothing = [](const FakeLaunch&) { return device::kCuSuccess; };
  fake.add_kernel("kvbm_bench_read", {8, 8, 8}, nothing);
  fake.add_kernel("kvbm_bench_gemm", {8, 8, 8, 4}, nothing);
}

}  // namespace kvbm::test
