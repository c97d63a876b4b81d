// The leaf hash (codec/README.md, "Leaf hash") for groups of warps.
//
// Between two scrambles, which come after each 16th row, the formula only adds: a lane's gain in these 4 KiB, a stripe,
// does not depend on earlier stripes. So a leaf is split over warps by stripes, and each warp sums its stripe on its
// own. One warp joins the sums in as many steps as there are stripes, 16 for 64 KiB. The result is exact.
//
// In a stripe thread t of a warp takes vectors of 16 bytes: words 2(t mod 16) and 2(t mod 16) + 1 of every second row.
// So loads are wide and word l XOR 1 belongs to the same thread.
#pragma once

#include "device/kernels/cuda.cuh"

namespace kvbm::device::kernels {

constexpr uint32_t kHashLanes = 32;
constexpr uint32_t kHashRowBytes = 256;
constexpr uint32_t kStripeRows = 16;
constexpr uint32_t kStripeVectors = 8;  // of a thread: kStripeRows * kHashRowBytes / 32 threads / 16 bytes
constexpr uint64_t kHashRowStep = 0xD1342543DE82EF95ULL;

// Returns output n of SplitMix64 seeded with 0: codec/hash/kernel.h, leaf_hash_constant.
__device__ __forceinline__ uint64_t hash_constant(uint32_t n) {
  uint64_t z = (uint64_t{n} + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// Sums of a thread over a stripe.
struct StripeSum {
  uint64_t even;  // lane 2(t mod 16)
  uint64_t odd;
};

// Keys of a thread's two lanes in its first row of stripe 0.
struct StripeKeys {
  uint64_t even;
  uint64_t odd;
};

__device__ __forceinline__ StripeKeys stripe_keys(uint32_t thread) {
  const uint64_t first_row = (thread >> 4) * kHashRowStep;
  // Kept by apart(): short of registers, the compiler would compute both constants again, 50 instructions, for every
  // vector.
  return {apart(hash_constant(kHashLanes + 2 * (thread & 15)) + first_row),
          apart(hash_constant(kHashLanes + 2 * (thread & 15) + 1) + first_row)};
}

__device__ __forceinline__ uint64_t multiply_halves(uint64_t x) { return (x & 0xFFFFFFFFULL) * (x >> 32); }

// Adds the words of a vector, with the keys of its row.
__device__ __forceinline__ void add_vector(StripeSum& sum, const uint4& vector, const StripeKeys& keys) {
  const uint64_t even = uint64_t{vector.y} << 32 | vector.x;
  const uint64_t odd = uint64_t{vector.w} << 32 | vector.z;
  sum.even += multiply_halves(even ^ keys.even) + odd;
  sum.odd += multiply_halves(odd ^ keys.odd) + even;
}

// Sums a stripe. Vector k of the thread is in row 16 * stripe + 2k + t / 16; `rows` is the leaf's. Behind the leaf's
// end vectors are zero.
__device__ __forceinline__ StripeSum add_stripe(const uint4 (&vectors)[kStripeVectors], StripeKeys keys,
                                                uint32_t stripe, uint32_t thread, uint32_t rows) {
  StripeSum sum = {0, 0};
  const uint32_t row = stripe * kStripeRows + (thread >> 4);
  const uint64_t moved = uint64_t{stripe * kStripeRows} * kHashRowStep;
  keys.even += moved;
  keys.odd += moved;
#pragma unroll
  for (uint32_t k = 0; k < kStripeVectors; ++k) {
    if (row + 2 * k < rows) add_vector(sum, vectors[k], keys);
    keys.even += 2 * kHashRowStep;
    keys.odd += 2 * kHashRowStep;
  }
  return sum;
}

// Sums of one stripe in shared memory: two parts (even and odd rows) of 32 lanes.
struct alignas(16) StripeSlot {
  uint64_t part[2][kHashLanes];
};

__device__ __forceinline__ void put_sum(StripeSlot& slot, uint32_t thread, const StripeSum& sum) {
  uint64_t* at = &slot.part[thread >> 4][2 * (thread & 15)];
  at[0] = sum.even;
  at[1] = sum.odd;
}

__device__ __forceinline__ uint64_t fold(uint64_t a, uint64_t b) { return a * b ^ __umul64hi(a, b); }

// Returns a lane's accumulator after one more stripe; `rows` is the leaf's. Before the first it is
// hash_constant(thread).
__device__ __forceinline__ uint64_t join_stripe(uint64_t lane, const StripeSlot& slot, uint32_t stripe, uint32_t rows,
                                                uint32_t thread) {
  lane += slot.part[0][thread] + slot.part[1][thread];
  if ((stripe + 1) * kStripeRows > rows) return lane;
  return (lane ^ (lane >> 47) ^ hash_constant(2 * kHashLanes + thread)) * 0x9E3779B1ULL;
}

// Returns the hash of `bytes`, in every thread of the warp. Each thread's accumulator includes all stripes.
__device__ __forceinline__ uint64_t finish_hash(uint64_t lane, uint32_t bytes, uint32_t thread) {
  const uint64_t merged = lane ^ hash_constant(3 * kHashLanes + thread);
  uint64_t sum = fold(merged, __shfl_xor_sync(0xFFFFFFFFU, merged, 1));  // equal in both threads of a pair
#pragma unroll
  for (int step = 2; step < 32; step *= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
  uint64_t h = uint64_t{bytes} * 0x9E3779B185EBCA87ULL + sum;
  h = (h ^ (h >> 37)) * 0x165667919E3779F9ULL;
  return h ^ (h >> 32);
}

// Returns the leaf's hash from the sums of its stripes, in every thread of the calling warp. slots[s] is stripe s.
__device__ __forceinline__ uint64_t join_stripes(const StripeSlot* slots, uint32_t bytes, uint32_t thread) {
  const uint32_t rows = (bytes + kHashRowBytes - 1) / kHashRowBytes;
  thread = apart(thread);  // constants are computed here and not kept
  uint64_t lane = hash_constant(thread);
  for (uint32_t s = 0; s * kStripeRows < rows; ++s) lane = join_stripe(lane, slots[s], s, rows, thread);
  return finish_hash(lane, bytes, thread);
}

}  // namespace kvbm::device::kernels
