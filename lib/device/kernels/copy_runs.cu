// Copies strided runs to strided runs in device memory: tensor-parallel re-slicing, and any copy between two
// arrangements.
//
// Launch as in leaves.cu. Nothing is hashed and no warp waits for another. Runs must not overlap.
#include "device/kernels/cuda.cuh"
#include "device/kernels/group.cuh"
#include "device/kernels/leaf_job.h"
#include "device/kernels/vectors.cuh"

extern "C" __global__ void __launch_bounds__(kvbm::device::kBlockThreads, 2)
    kvbm_copy_runs(const kvbm::device::CopyJob* jobs, uint32_t count, uint32_t warps) {
  namespace k = kvbm::device::kernels;
  const k::Member me = k::member_of(warps);
  for (uint32_t i = me.first_job; i < count; i += me.step) {
    const kvbm::device::CopyJob job = jobs[i];
    if (!me.has_part(job.bytes)) continue;
    const uint32_t width = job.flags >> kvbm::device::kRunWidthShift & kvbm::device::kWidthMask;
    const uint32_t first = job.first + me.offset();
    const uint32_t end = job.first + job.bytes;
    uint4 vectors[k::kVectorsOfStripe];
    k::load_run<false>(job.from, width, first, end, vectors);
    k::store_run<false>(job.to, width, first, end, vectors);
  }
}
