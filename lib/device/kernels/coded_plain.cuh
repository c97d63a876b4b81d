// Plain side of a coded leaf, for one warp: vectors of 16 bytes, one a lane, 512 bytes at a time; their leaf hash, and
// the end of a leaf that is refused. Also loads from the coded side.
#pragma once

#include "device/kernels/codec_job.h"
#include "device/kernels/leaf_hash.cuh"
#include "device/kernels/vectors.cuh"

namespace kvbm::device::kernels {

constexpr uint32_t kAllLanes = 0xFFFFFFFFU;
constexpr uint32_t kWarpBytes = 512;      // of the 32 vectors of a warp
constexpr uint32_t kStripeSteps = 8;      // of kWarpBytes in a stripe

// Accesses that stay in the caches, for data that is read again; `address` is a multiple of their size.
#if defined(KVBM_CUDA_EMULATION)
inline uint64_t get64(uint64_t address) { return emulated_load<uint64_t>(address); }
inline uint32_t get32(uint64_t address) { return emulated_load<uint32_t>(address); }
inline uint32_t get16(uint64_t address) { return emulated_load<uint16_t>(address); }
inline uint32_t get8(uint64_t address) { return emulated_load<uint8_t>(address); }
inline void put64(uint64_t address, uint64_t v) { emulated_store(address, v); }
inline void put32(uint64_t address, uint32_t v) { emulated_store(address, v); }
inline void put16(uint64_t address, uint32_t v) { emulated_store(address, static_cast<uint16_t>(v)); }
inline void put8(uint64_t address, uint32_t v) { emulated_store(address, static_cast<uint8_t>(v)); }
#else
__device__ __forceinline__ uint64_t get64(uint64_t address) {
  uint64_t v;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(v) : "l"(address));
  return v;
}
__device__ __forceinline__ uint32_t get32(uint64_t address) {
  uint32_t v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(address));
  return v;
}
__device__ __forceinline__ uint32_t get16(uint64_t address) {
  uint16_t v;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(address));
  return v;
}
__device__ __forceinline__ uint32_t get8(uint64_t address) {
  uint32_t v;
  asm volatile("ld.global.u8 %0, [%1];" : "=r"(v) : "l"(address));
  return v;
}
__device__ __forceinline__ void put64(uint64_t address, uint64_t v) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(address), "l"(v) : "memory");
}
__device__ __forceinline__ void put32(uint64_t address, uint32_t v) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(v) : "memory");
}
__device__ __forceinline__ void put16(uint64_t address, uint32_t v) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(address), "h"(static_cast<uint16_t>(v)) : "memory");
}
__device__ __forceinline__ void put8(uint64_t address, uint32_t v) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(address), "r"(v) : "memory");
}
#endif

__device__ __forceinline__ uint64_t word_of(uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; }
__device__ __forceinline__ uint32_t round_up_to(uint32_t v, uint32_t step) { return (v + step - 1) / step * step; }

// Uniform over a warp. The job's maker guarantees the run: its pieces are the device's and have the stated total
// length.
struct PlainSide {
  DeviceRun run;
  uint32_t width;  // divides every piece, place and `bytes`
  uint32_t bytes;
};

__device__ __forceinline__ PlainSide plain_side(const LeafJob& job) {
  return {job.run, job.flags >> kRunWidthShift & kWidthMask, job.bytes};
}

// Returns working memory, at a multiple of 16, as whole vectors.
__device__ __forceinline__ PlainSide work_side(uint64_t address, uint32_t bytes) {
  const uint32_t whole = round_up_to(bytes, 16);
  return {{address, 0, 0, whole, UINT32_MAX / whole, 1, UINT32_MAX}, 16, whole};
}

// Loads a vector. Bytes behind the end are zero; stores skip them.
__device__ inline uint4 get_vector(const PlainSide& side, uint32_t offset) {
  const InRun<> place{side.run};
  if (side.width == 16) return load_vector<16, 16>(place, offset, side.bytes);
  if (side.width == 8) return load_vector<8, 8>(place, offset, side.bytes);
  if (side.width == 4) return load_vector<4, 4>(place, offset, side.bytes);
  return load_vector<1, 1>(place, offset, side.bytes);
}

__device__ inline void put_vector(const PlainSide& side, uint32_t offset, const uint4& v) {
  const InRun<> place{side.run};
  if (side.width == 16) {
    store_vector<16, 16>(place, offset, side.bytes, v);
  } else if (side.width == 8) {
    store_vector<8, 8>(place, offset, side.bytes, v);
  } else if (side.width == 4) {
    store_vector<4, 4>(place, offset, side.bytes, v);
  } else {
    store_vector<1, 1>(place, offset, side.bytes, v);
  }
}

// Leaf hash of vectors that one warp takes in order: vector n of a lane is at 512 n + 16 lane. Vectors behind the end
// are zero. `slot` is the warp's own, in shared memory.
struct WarpHash {
  StripeSum sum;
  StripeKeys keys;
  uint64_t lane_sum;
  uint32_t taken;
  uint32_t rows;

  __device__ __forceinline__ void start(uint32_t bytes, uint32_t lane) {
    sum = {0, 0};
    keys = stripe_keys(lane);
    lane_sum = hash_constant(lane);
    taken = 0;
    rows = (bytes + kHashRowBytes - 1) / kHashRowBytes;
  }

  __device__ __forceinline__ void take(const uint4& vector, StripeSlot& slot, uint32_t lane) {
    if (2 * taken + (lane >> 4) < rows) add_vector(sum, vector, keys);
    keys.even += 2 * kHashRowStep;
    keys.odd += 2 * kHashRowStep;
    if (++taken % kStripeSteps == 0) join(slot, lane);
  }

  __device__ __forceinline__ uint64_t finish(uint32_t bytes, StripeSlot& slot, uint32_t lane) {
    if (taken % kStripeSteps != 0) join(slot, lane);
    return finish_hash(lane_sum, bytes, lane);
  }

 private:
  __device__ __forceinline__ void join(StripeSlot& slot, uint32_t lane) {
    const uint32_t stripe = (taken - 1) / kStripeSteps;
    put_sum(slot, lane, sum);
    __syncwarp();
    lane_sum = join_stripe(lane_sum, slot, stripe, rows, lane);
    __syncwarp();
    sum = {0, 0};
  }
};

// Ends a decoded leaf: compares its hash, overwrites bytes that must not be read, and writes the result. All lanes call
// it; each overwrites only its own bytes, so no lane waits for another.
__device__ inline void end_leaf(const CodedJob& job, const PlainSide& to, uint32_t status, uint64_t found,
                                uint64_t in_frame, uint32_t lane, CodedResult* result) {
  if (status == kCodedOk) {
    const bool unexpected = (job.leaf.flags & kJobChecked) != 0 && found != job.leaf.expected;
    if (found != in_frame || unexpected) status = kCodedWrongHash;
  } else {
    found = 0;
  }
  if (status != kCodedOk) {
    const uint4 nans = make_uint4(~0U, ~0U, ~0U, ~0U);
    for (uint32_t offset = 16 * lane; offset < to.bytes; offset += kWarpBytes) put_vector(to, offset, nans);
  }
  if (lane != 0) return;
  CodedResult answer = {found, status, job.stored_bytes, 0, 0};
  *result = answer;
}

// Returns the sum of `n` over the lanes below, and in `total` over all.
__device__ __forceinline__ uint32_t sum_below(uint32_t n, uint32_t lane, uint32_t& total) {
  uint32_t sum = n;
#pragma unroll
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  total = __shfl_sync(kAllLanes, sum, 31);
  return sum - n;
}

}  // namespace kvbm::device::kernels
