// Groups of warps that share a job, and their choice of jobs.
//
// A grid takes jobs by stride: group g of all G does jobs g, g + G, ... So early jobs land first, no launch has to
// clear a counter in memory, and a grid may have any number of blocks.
#pragma once

#include "device/kernels/cuda.cuh"
#include "device/kernels/leaf_job.h"

namespace kvbm::device::kernels {

constexpr uint32_t kWarpsPerBlock = kBlockThreads / 32;

struct Member {
  uint32_t thread;  // index in the warp
  uint32_t group;   // index in the block
  uint32_t index;   // index of the warp in its group
  uint32_t warps;   // of a group
  uint32_t first_job;
  uint32_t step;

  // Returns the offset in the job of this thread's first vector.
  [[nodiscard]] __device__ __forceinline__ uint32_t offset() const { return index * kStripeBytes + thread * 16; }
  [[nodiscard]] __device__ __forceinline__ bool has_part(uint32_t bytes) const { return index * kStripeBytes < bytes; }

  // Waits for all warps of the group, and makes their writes to shared memory visible.
  __device__ __forceinline__ void sync() const {
    if (warps == 1) return __syncwarp();
    sync_some(1 + group, warps * 32);  // two warps or more: at most 8 groups, barriers 1 to 8
  }
};

// `warps` is a power of two, at most kMaxWarpsPerLeaf and the warps of a block.
__device__ __forceinline__ Member member_of(uint32_t warps) {
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t groups = blockDim.x / 32 / warps;
  const uint32_t group = warp / warps;
  return {threadIdx.x % 32, group, warp % warps, warps, blockIdx.x * groups + group, gridDim.x * groups};
}

}  // namespace kvbm::device::kernels
