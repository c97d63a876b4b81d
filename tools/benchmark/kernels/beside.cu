// Kernels that kvbm's own are measured beside, for `kvbm bench gpu` alone. They are not part of the library.
#include <cuda_bf16.h>
#include <mma.h>
#include <stdint.h>

// Reads all of [from, from + count) once, to measure the device's memory. `out` is never written in practice; without
// it the compiler would remove the reads.
extern "C" __global__ void __launch_bounds__(512) kvbm_bench_read(const uint4* from, uint64_t count, uint64_t* out) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  uint32_t all = 0;
  for (; i + 3 * step < count; i += 4 * step) {
    const uint4 a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
    all += a.x ^ a.y ^ a.z ^ a.w;
    all += b.x ^ b.y ^ b.z ^ b.w;
    all += c.x ^ c.y ^ c.z ^ c.w;
    all += d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < count; i += step) all += from[i].x ^ from[i].y ^ from[i].z ^ from[i].w;
  if (all == 0x9E3779B9U) *out = all;
}

// C = A * B in bf16 with fp32 sums on the tensor cores, all three n x n and row-major. It stands for an engine's own
// kernels. n is a multiple of 128; a block of 4 warps makes 128 x 128 of C, a warp 64 x 64. The grid is (n / 128) x
// (n / 128).
extern "C" __global__ void __launch_bounds__(128) kvbm_bench_gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c,
                                                                  uint32_t n) {
  using namespace nvcuda::wmma;
  constexpr int kTile = 16, kSide = 4;
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t row = blockIdx.y * 128 + warp / 2 * 64;
  const uint32_t column = blockIdx.x * 128 + warp % 2 * 64;
  fragment<accumulator, kTile, kTile, kTile, float> sums[kSide][kSide];
  for (auto& line : sums) {
    for (auto& sum : line) fill_fragment(sum, 0.0F);
  }
  for (uint32_t k = 0; k < n; k += kTile) {
    fragment<matrix_a, kTile, kTile, kTile, __nv_bfloat16, row_major> left[kSide];
    fragment<matrix_b, kTile, kTile, kTile, __nv_bfloat16, row_major> right[kSide];
    for (int i = 0; i < kSide; ++i) {
      load_matrix_sync(left[i], a + static_cast<uint64_t>(row + i * kTile) * n + k, n);
      load_matrix_sync(right[i], b + static_cast<uint64_t>(k) * n + column + i * kTile, n);
    }
    for (int i = 0; i < kSide; ++i) {
      for (int j = 0; j < kSide; ++j) mma_sync(sums[i][j], left[i], right[j], sums[i][j]);
    }
  }
  for (int i = 0; i < kSide; ++i) {
    for (int j = 0; j < kSide; ++j) {
      store_matrix_sync(c + static_cast<uint64_t>(row + i * kTile) * n + column + j * kTile, sums[i][j], n, mem_row_major);
    }
  }
}
