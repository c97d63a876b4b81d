// Moves vectors of 16 bytes out of and into strided runs and contiguous records, by accesses of 16, 8, 4 or 1 bytes.
//
// A vector is named by its offset in the run's bytes, a multiple of 16. Every piece and address of a run is a multiple
// of its width, so an access never leaves a piece. Bytes behind the end read as zero and are not written.
#pragma once

#include "device/kernels/cuda.cuh"
#include "device/kernels/leaf_job.h"

namespace kvbm::device::kernels {

// Returns floor(n / d), and in `rest` the remainder; `inverse` is inverse_of(d).
__device__ __forceinline__ uint32_t divide(uint32_t n, uint32_t d, uint32_t inverse, uint32_t& rest) {
  uint32_t quotient = __umulhi(n, inverse);
  rest = n - quotient * d;
  if (rest >= d) {
    ++quotient;
    rest -= d;
  }
  return quotient;
}

__device__ __forceinline__ uint64_t address_in(const DeviceRun& run, uint32_t offset) {
  uint32_t inside, j;
  const uint32_t piece = divide(offset, run.piece_bytes, run.piece_inverse, inside);
  const uint32_t i = divide(piece, run.count1, run.count1_inverse, j);
  return run.address + static_cast<uint64_t>(int64_t{i} * run.stride0 + int64_t{j} * run.stride1) + inside;
}

// Returns address_in() for an offset below 64 KiB and pieces of 2 bytes to 64 KiB. No quotient is one off: with m =
// inverse + 1 and e = m * d - 2^32 < d, the error is offset * e / (d * 2^32) < 1 / d. A run with a count1 of 1 has a
// single piece (leaf_job.h), and m = 0 gives its quotient 0.
__device__ __forceinline__ uint64_t near_address_in(const DeviceRun& run, uint32_t offset) {
  const uint32_t piece = __umulhi(offset, run.piece_inverse + 1);
  const uint32_t i = __umulhi(piece, run.count1_inverse + 1);
  const uint32_t j = piece - i * run.count1;
  return run.address + static_cast<uint64_t>(int64_t{i} * run.stride0 + int64_t{j} * run.stride1) +
         (offset - piece * run.piece_bytes);
}

// Maps an offset to an address, in a run or in contiguous bytes. kNear: near_address_in() finds it.
template <bool kNear = false>
struct InRun {
  const DeviceRun& run;
  __device__ __forceinline__ uint64_t at(uint32_t offset) const {
    return kNear ? near_address_in(run, offset) : address_in(run, offset);
  }
};
struct InRecord {
  uint64_t address;
  __device__ __forceinline__ uint64_t at(uint32_t offset) const { return address + offset; }
};

template <class Place>
__device__ __forceinline__ uint32_t load_word_by_bytes(const Place& place, uint32_t offset, uint32_t end) {
  uint32_t word = 0;
#pragma unroll 1
  for (uint32_t b = 0; b < 4 && offset + b < end; ++b) word |= load1(place.at(offset + b)) << (8 * b);
  return word;
}

template <class Place>
__device__ __forceinline__ void store_word_by_bytes(const Place& place, uint32_t offset, uint32_t end, uint32_t word) {
#pragma unroll 1
  for (uint32_t b = 0; b < 4 && offset + b < end; ++b) store1(place.at(offset + b), word >> (8 * b) & 0xFFU);
}

template <uint32_t kGrain, class Place>
__device__ __forceinline__ uint32_t load_word(const Place& place, uint32_t offset, uint32_t end) {
  if (kGrain < 4) return load_word_by_bytes(place, offset, end);
  return load4_if(place.at(offset), offset < end);
}

template <uint32_t kGrain, class Place>
__device__ __forceinline__ void store_word(const Place& place, uint32_t offset, uint32_t end, uint32_t word) {
  if (kGrain < 4) return store_word_by_bytes(place, offset, end, word);
  if (offset < end) store4(place.at(offset), word);
}

// kWidth: 16, or kGrain. kGrain divides `end` and every piece.
template <uint32_t kWidth, uint32_t kGrain, class Place>
__device__ __forceinline__ uint4 load_vector(const Place& place, uint32_t offset, uint32_t end) {
  if (kGrain == 16) return load16_if(place.at(offset), offset < end);
  if (kWidth == 16 && offset + 16 <= end) return load16(place.at(offset));
  uint4 v = make_uint4(0, 0, 0, 0);
  if (kGrain == 8) {
    const uint2 low = load8_if(place.at(offset), offset < end);
    const uint2 high = load8_if(place.at(offset + 8), offset + 8 < end);
    return make_uint4(low.x, low.y, high.x, high.y);
  }
  if (kWidth == 16 && offset >= end) return v;
  v.x = load_word<kGrain>(place, offset, end);
  v.y = load_word<kGrain>(place, offset + 4, end);
  v.z = load_word<kGrain>(place, offset + 8, end);
  v.w = load_word<kGrain>(place, offset + 12, end);
  return v;
}

template <uint32_t kWidth, uint32_t kGrain, class Place>
__device__ __forceinline__ void store_vector(const Place& place, uint32_t offset, uint32_t end, const uint4& v) {
  if (kWidth == 16 && offset + 16 <= end) return store16(place.at(offset), v);
  if (kGrain == 16 || offset >= end) return;
  if (kGrain == 8) {
    store8(place.at(offset), make_uint2(v.x, v.y));
    if (offset + 8 < end) store8(place.at(offset + 8), make_uint2(v.z, v.w));
    return;
  }
  store_word<kGrain>(place, offset, end, v.x);
  store_word<kGrain>(place, offset + 4, end, v.y);
  store_word<kGrain>(place, offset + 8, end, v.z);
  store_word<kGrain>(place, offset + 12, end, v.w);
}

// Vectors of a thread in a stripe, 512 bytes apart. `first` is the offset of the thread's first one.
constexpr uint32_t kVectorsOfStripe = 8;
constexpr uint32_t kVectorStep = 32 * 16;
static_assert(kVectorsOfStripe * kVectorStep == kStripeBytes, "a warp takes a stripe in vectors of 16 bytes");

template <uint32_t kWidth, uint32_t kGrain, class Place>
__device__ __forceinline__ void load_vectors(const Place& place, uint32_t first, uint32_t end,
                                             uint4 (&vectors)[kVectorsOfStripe]) {
  first = apart(first);
#pragma unroll
  for (uint32_t k = 0; k < kVectorsOfStripe; ++k) {
    vectors[k] = load_vector<kWidth, kGrain>(place, first + k * kVectorStep, end);
  }
}

template <uint32_t kWidth, uint32_t kGrain, class Place>
__device__ __forceinline__ void store_vectors(const Place& place, uint32_t first, uint32_t end,
                                              const uint4 (&vectors)[kVectorsOfStripe]) {
  first = apart(first);
#pragma unroll
  for (uint32_t k = 0; k < kVectorsOfStripe; ++k) {
    store_vector<kWidth, kGrain>(place, first + k * kVectorStep, end, vectors[k]);
  }
}

// Returns true for a run of one piece, as nearly every page is: it is contiguous, and no piece has to be found.
__device__ __forceinline__ bool is_flat(const DeviceRun& run, uint32_t width) {
  return width == 16 && run.count1 == 1;
}

// Offsets are below 64 KiB, as those of leaves are.
__device__ __forceinline__ void load_run(const DeviceRun& run, uint32_t width, uint32_t first, uint32_t end,
                                         uint4 (&vectors)[kVectorsOfStripe]) {
  const InRun<true> place{run};
  if (is_flat(run, width)) return load_vectors<16, 16>(InRecord{run.address}, first, end, vectors);
  if (width == 16) return load_vectors<16, 16>(place, first, end, vectors);
  if (width == 8) return load_vectors<8, 8>(place, first, end, vectors);
  if (width == 4) return load_vectors<4, 4>(place, first, end, vectors);
  load_vectors<1, 1>(InRun<>{run}, first, end, vectors);
}

__device__ __forceinline__ void store_run(const DeviceRun& run, uint32_t width, uint32_t first, uint32_t end,
                                          const uint4 (&vectors)[kVectorsOfStripe]) {
  const InRun<true> place{run};
  if (is_flat(run, width)) return store_vectors<16, 16>(InRecord{run.address}, first, end, vectors);
  if (width == 16) return store_vectors<16, 16>(place, first, end, vectors);
  if (width == 8) return store_vectors<8, 8>(place, first, end, vectors);
  if (width == 4) return store_vectors<4, 4>(place, first, end, vectors);
  store_vectors<1, 1>(InRun<>{run}, first, end, vectors);
}

// `grain`, the run's width, divides `end`. A record that allows no accesses of 16 bytes is accessed by the width that
// both allow.
__device__ __forceinline__ void load_record(uint64_t record, uint32_t width, uint32_t grain, uint32_t first,
                                            uint32_t end, uint4 (&vectors)[kVectorsOfStripe]) {
  const InRecord place{record};
  if (width == 16 && grain == 16) return load_vectors<16, 16>(place, first, end, vectors);
  if (width == 16) return load_vectors<16, 1>(place, first, end, vectors);
  const uint32_t both = width < grain ? width : grain;
  if (both == 8) return load_vectors<8, 8>(place, first, end, vectors);
  if (both == 4) return load_vectors<4, 4>(place, first, end, vectors);
  load_vectors<1, 1>(place, first, end, vectors);
}

__device__ __forceinline__ void store_record(uint64_t record, uint32_t width, uint32_t grain, uint32_t first,
                                             uint32_t end, const uint4 (&vectors)[kVectorsOfStripe]) {
  const InRecord place{record};
  if (width == 16 && grain == 16) return store_vectors<16, 16>(place, first, end, vectors);
  if (width == 16) return store_vectors<16, 1>(place, first, end, vectors);
  const uint32_t both = width < grain ? width : grain;
  if (both == 8) return store_vectors<8, 8>(place, first, end, vectors);
  if (both == 4) return store_vectors<4, 4>(place, first, end, vectors);
  store_vectors<1, 1>(place, first, end, vectors);
}

}  // namespace kvbm::device::kernels
