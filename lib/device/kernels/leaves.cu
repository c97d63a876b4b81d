// Moves leaves between device memory and records and hashes them; hashes, checks or overwrites leaves where they lie.
//
// Launch: kBlockThreads a block (or fewer whole warps, a multiple of `warps`), any number of blocks, `warps` =
// warps_for(bytes of the largest job). Results of job i: hashes[i], good[i]. README.md describes every kernel.
//
// One block of a kernel that hashes is on a multiprocessor at a time, as the grids of transfers are made so. A thread
// may then have up to 128 registers, and its keys and vectors stay in them.
#include "device/kernels/cuda.cuh"
#include "device/kernels/group.cuh"
#include "device/kernels/leaf_hash.cuh"
#include "device/kernels/leaf_job.h"
#include "device/kernels/vectors.cuh"

namespace kvbm::device::kernels {

__device__ __forceinline__ uint32_t run_width(const LeafJob& job) { return job.flags >> kRunWidthShift & kWidthMask; }
__device__ __forceinline__ uint32_t record_width(const LeafJob& job) {
  return job.flags >> kRecordWidthShift & kWidthMask;
}

// Returns job i, and prefetches the group's next one.
__device__ __forceinline__ LeafJob job_at(const LeafJob* jobs, uint32_t i, uint32_t count, const Member& me) {
  if (me.step < count - i) prefetch(jobs + i + me.step);
  return read_once(jobs + i, me.thread);
}

__device__ __forceinline__ void put_hash(uint64_t* hashes, uint32_t i, uint64_t h) {
  store8(reinterpret_cast<uint64_t>(hashes + i), make_uint2(static_cast<uint32_t>(h), static_cast<uint32_t>(h >> 32)));
}

__device__ __forceinline__ void sum_into(StripeSlot* slots, const Member& me, const StripeKeys& keys, uint32_t bytes,
                                         const uint4 (&vectors)[kStripeVectors]) {
  const uint32_t rows = (bytes + kHashRowBytes - 1) / kHashRowBytes;
  put_sum(slots[me.index], me.thread, add_stripe(vectors, keys, me.index, me.thread, rows));
}

// Reads leaves out of the device: one wait a leaf. Two sets of sums alternate, so that the other warps are at the next
// leaf while one warp joins this one's; the warps take turns.
template <bool kStored>
__device__ __forceinline__ void take_leaves(const LeafJob* jobs, uint32_t count, uint32_t warps, uint64_t* hashes) {
  __shared__ StripeSlot slots[2][kWarpsPerBlock];
  const Member me = member_of(warps);
  const StripeKeys keys = stripe_keys(me.thread);
  uint32_t turn = 0;
  for (uint32_t i = me.first_job; i < count; i += me.step, ++turn) {
    const LeafJob job = job_at(jobs, i, count, me);
    StripeSlot* sums = slots[turn % 2] + me.group * warps;
    if (me.has_part(job.bytes)) {
      uint4 vectors[kStripeVectors];
      load_run(job.run, run_width(job), me.offset(), job.bytes, vectors);
      if (kStored) store_record(job.record, record_width(job), run_width(job), me.offset(), job.bytes, vectors);
      sum_into(sums, me, keys, job.bytes, vectors);
    }
    me.sync();
    if (me.index != turn % warps) continue;
    const uint64_t h = join_stripes(sums, job.bytes, me.thread);
    if (me.thread == 0) put_hash(hashes, i, h);
  }
}

// Writes leaves into the device, or checks them there. The whole leaf is in the group's registers until its hash is
// known, so a wrong leaf never reaches the pages: 0xFF is written in its place.
template <bool kInPlace>
__device__ __forceinline__ void give_leaves(const LeafJob* jobs, uint32_t count, uint32_t warps, uint64_t* hashes,
                                            uint8_t* good) {
  __shared__ StripeSlot slots[kWarpsPerBlock];
  __shared__ uint32_t wrong[kWarpsPerBlock];
  const Member me = member_of(warps);
  const StripeKeys keys = stripe_keys(me.thread);
  StripeSlot* sums = slots + me.group * warps;
  for (uint32_t i = me.first_job; i < count; i += me.step) {
    const LeafJob job = job_at(jobs, i, count, me);
    uint4 vectors[kStripeVectors];
    if (me.has_part(job.bytes)) {
      if (kInPlace) {
        load_run(job.run, run_width(job), me.offset(), job.bytes, vectors);
      } else {
        load_record(job.record, record_width(job), run_width(job), me.offset(), job.bytes, vectors);
      }
      sum_into(sums, me, keys, job.bytes, vectors);
    }
    me.sync();
    if (me.index == 0) {
      const uint64_t h = join_stripes(sums, job.bytes, me.thread);
      if (me.thread == 0) {
        const bool bad = (job.flags & kJobChecked) != 0 && h != job.expected;
        wrong[me.group] = bad;
        put_hash(hashes, i, h);
        store1(reinterpret_cast<uint64_t>(good + i), bad ? 0 : 1);
      }
    }
    me.sync();
    const bool bad = wrong[me.group] != 0;
    if (!me.has_part(job.bytes) || (kInPlace && !bad)) continue;
    if (bad) {
#pragma unroll
      for (uint32_t k = 0; k < kStripeVectors; ++k) vectors[k] = make_uint4(~0U, ~0U, ~0U, ~0U);
    }
    store_run(job.run, run_width(job), me.offset(), job.bytes, vectors);
  }
}

}  // namespace kvbm::device::kernels

// Moves leaves from pages into records; hashes[i] is of the written bytes.
extern "C" __global__ void __launch_bounds__(kvbm::device::kBlockThreads, 1)
    kvbm_gather_leaves(const kvbm::device::LeafJob* jobs, uint32_t count, uint32_t warps, uint64_t* hashes) {
  kvbm::device::kernels::take_leaves<true>(jobs, count, warps, hashes);
}

// Hashes leaves where they lie in device memory.
extern "C" __global__ void __launch_bounds__(kvbm::device::kBlockThreads, 1)
    kvbm_hash_leaves(const kvbm::device::LeafJob* jobs, uint32_t count, uint32_t warps, uint64_t* hashes) {
  kvbm::device::kernels::take_leaves<false>(jobs, count, warps, hashes);
}

// Moves leaves from records into pages. For a checked leaf with another hash than expected, good[i] = 0 and its run is
// 0xFF.
extern "C" __global__ void __launch_bounds__(kvbm::device::kBlockThreads, 1)
    kvbm_scatter_leaves(const kvbm::device::LeafJob* jobs, uint32_t count, uint32_t warps, uint64_t* hashes,
                        uint8_t* good) {
  kvbm::device::kernels::give_leaves<false>(jobs, count, warps, hashes, good);
}

// Checks leaves like kvbm_scatter_leaves, but in their pages, where a copy engine has put them.
extern "C" __global__ void __launch_bounds__(kvbm::device::kBlockThreads, 1)
    kvbm_check_leaves(const kvbm::device::LeafJob* jobs, uint32_t count, uint32_t warps, uint64_t* hashes,
                      uint8_t* good) {
  kvbm::device::kernels::give_leaves<true>(jobs, count, warps, hashes, good);
}

// Writes 0xFF into every run.
extern "C" __global__ void __launch_bounds__(kvbm::device::kBlockThreads, 2)
    kvbm_poison_leaves(const kvbm::device::LeafJob* jobs, uint32_t count, uint32_t warps) {
  namespace k = kvbm::device::kernels;
  const k::Member me = k::member_of(warps);
  uint4 vectors[k::kStripeVectors];
#pragma unroll
  for (uint32_t n = 0; n < k::kStripeVectors; ++n) vectors[n] = make_uint4(~0U, ~0U, ~0U, ~0U);
  for (uint32_t i = me.first_job; i < count; i += me.step) {
    const kvbm::device::LeafJob job = k::job_at(jobs, i, count, me);
    if (me.has_part(job.bytes)) k::store_run(job.run, k::run_width(job), me.offset(), job.bytes, vectors);
  }
}
