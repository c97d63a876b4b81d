// Groups of warps that share a job, and which jobs a group does.
//
// A grid takes jobs by stride: group g of all G does jobs g, g + G, ... So early jobs land first, nothing is counted in
// memory that a launch would have to clear, and a grid may have any number of blocks.
#pragma once

#include "device/kernels/cuda.cuh"
#include "device/kernels/leaf_job.h"

namespace kvbm::device::kernels {

constexpr uint32_t kWarpsPerBlock = kBlockThreads / 32;

struct Member {
  uint32_t thread;  // of the warp
  uint32_t group;   // of the block
  uint32_t index;   // of the warp in its group
  uint32_t warps;   // of a group
  uint32_t first_job;
  uint32_t step;

  // The offset in the job of what this thread takes first.
  [[nodiscard]] __device__ __forceinline__ uint32_t offset() const { return index * kStripeBytes + thread * 16; }
  [[nodiscard]] __device__ __forceinline__ bool has_part(uint32_t bytes) const { return index * kStripeBytes < bytes; }

  // All warps of the group, and what they wrote to shared memory.
  __device__ __forceinline__ void sync() const {
    if (warps == 1) return __syncwarp();
    sync_some(1 + group, warps * 32);  // two warps or more: at most 8 groups, barriers 1 to 8
  }
};

// `warps` is a power of two, at most kMaxWarpsPerLeaf and what a block has.
__device__ __forceinline__ Member member_of(uint32_t warps) {
  const uint32_t warp = threadIdx.x / 32;
  const uint32_t groups = blockDim.x / 32 / warps;
  const uint32_t group = warp / warps;
  return {threadIdx.x % 32, group, warp % warps, warps, blockIdx.x * groups + group, gridDim.x * groups};
}

}  // namespace kvbm::device::kernels
