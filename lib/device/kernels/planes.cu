// Byte planes: elements of 16 and 32 bits are little-endian integers, turned left by one bit (the sign becomes bit 0,
// the exponent the top of the last byte). Byte p of all of them is plane p; the plain bytes behind the last whole
// element follow. Other elements are one plane, unchanged. A coder of bytes gets these planes (codec/README.md, zstd),
// and the lower bytes of a planar leaf are stored so.
// kvbm_split_planes: out of a run into planes, with the hash of the plain bytes. kvbm_merge_planes: back. A warp a
// leaf.
#include "device/kernels/quantize_number.cuh"

namespace kvbm::device::kernels {

struct PlanesShape {
  uint64_t base;
  uint32_t width;
  uint32_t count;  // whole elements
  uint32_t bytes;
  bool words;      // planes begin at multiples of 4
};

__device__ __forceinline__ PlanesShape planes_shape(const CodedJob& job) {
  const uint32_t width = element_width(job.element);
  const uint32_t count = job.leaf.bytes / width;
  return {job.leaf.record, width, count, job.leaf.bytes, (width == 1 || count % 4 == 0) && job.leaf.record % 4 == 0};
}

// Turns two elements of 16 bits, or one of 32, left by one bit; turn_back() undoes it.
__device__ __forceinline__ uint32_t turn(uint32_t v, uint32_t width) {
  if (width == 1) return v;
  return width == 4 ? v << 1 | v >> 31 : (v << 1 & 0xFFFEFFFEU) | (v >> 15 & 0x00010001U);
}
__device__ __forceinline__ uint32_t turn_back(uint32_t v, uint32_t width) {
  if (width == 1) return v;
  return width == 4 ? v >> 1 | v << 31 : (v >> 1 & 0x7FFF7FFFU) | (v & 0x00010001U) << 15;
}

// Returns the place of byte `offset` of the plain leaf.
__device__ __forceinline__ uint64_t place_in_planes(const PlanesShape& shape, uint32_t offset) {
  if (offset >= shape.count * shape.width) return shape.base + offset;
  return shape.base + offset % shape.width * shape.count + offset / shape.width;
}

// Transposes 4 x 4 bytes: bytes of four words become contiguous in each plane.
__device__ __forceinline__ void transpose(uint32_t (&w)[4]) {
  const uint32_t a = __byte_perm(w[0], w[1], 0x5140);
  const uint32_t b = __byte_perm(w[2], w[3], 0x5140);
  const uint32_t c = __byte_perm(w[0], w[1], 0x7362);
  const uint32_t d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, b, 0x5410);
  w[1] = __byte_perm(a, b, 0x7632);
  w[2] = __byte_perm(c, d, 0x5410);
  w[3] = __byte_perm(c, d, 0x7632);
}

// Separates the even bytes of two words from the odd ones; zip() undoes it.
__device__ __forceinline__ void unzip(uint32_t& low, uint32_t& high) {
  const uint32_t even = __byte_perm(low, high, 0x6420);
  high = __byte_perm(low, high, 0x7531);
  low = even;
}
__device__ __forceinline__ void zip(uint32_t& even, uint32_t& odd) {
  const uint32_t low = __byte_perm(even, odd, 0x5140);
  odd = __byte_perm(even, odd, 0x7362);
  even = low;
}

__device__ inline void split_vector(const PlanesShape& shape, uint32_t offset, const uint4& vector) {
  uint32_t w[4] = {vector.x, vector.y, vector.z, vector.w};
  const uint32_t coded = shape.count * shape.width;
  if (offset + 16 <= coded && shape.words) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) w[i] = turn(w[i], shape.width);
    const uint64_t at = shape.base + offset / shape.width;
    if (shape.width == 4) transpose(w);
    if (shape.width == 2) unzip(w[0], w[1]);
    if (shape.width == 2) unzip(w[2], w[3]);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t plane = shape.width == 1 ? 0 : shape.width == 2 ? i % 2 : i;
      const uint32_t further = shape.width == 1 ? 4 * i : shape.width == 2 ? i / 2 * 4 : 0;
      store4(at + plane * shape.count + further, w[i]);
    }
    return;
  }
#pragma unroll 1
  for (uint32_t i = 0; i < 16 && offset + i < shape.bytes; ++i) {
    const uint32_t word = i / 4 == 0 ? w[0] : i / 4 == 1 ? w[1] : i / 4 == 2 ? w[2] : w[3];
    const uint32_t turned = offset + i < coded ? turn(word, shape.width) : word;
    store1(place_in_planes(shape, offset + i), turned >> (8 * (i % 4)) & 0xFF);
  }
}

__device__ inline uint4 merge_vector(const PlanesShape& shape, uint32_t offset) {
  uint32_t w[4] = {};
  const uint32_t coded = shape.count * shape.width;
  if (offset + 16 <= coded && shape.words) {
    const uint64_t at = shape.base + offset / shape.width;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t plane = shape.width == 1 ? 0 : shape.width == 2 ? i % 2 : i;
      const uint32_t further = shape.width == 1 ? 4 * i : shape.width == 2 ? i / 2 * 4 : 0;
      w[i] = load4(at + plane * shape.count + further);
    }
    if (shape.width == 4) transpose(w);
    if (shape.width == 2) zip(w[0], w[1]);
    if (shape.width == 2) zip(w[2], w[3]);
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) w[i] = turn_back(w[i], shape.width);
    return make_uint4(w[0], w[1], w[2], w[3]);
  }
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    uint32_t word = 0;
    for (uint32_t b = 0; b < 4; ++b) {
      const uint32_t byte = offset + 4 * i + b;
      if (byte < shape.bytes) word |= load1(place_in_planes(shape, byte)) << (8 * b);
    }
    // An element of 16 bits may be the last whole one of its word: the bytes behind it are not turned.
    const uint32_t begin = offset + 4 * i;
    if (begin + 4 <= coded) {
      word = turn_back(word, shape.width);
    } else if (begin + 2 <= coded) {
      word = (turn_back(word & 0xFFFF, shape.width) & 0xFFFF) | (word & 0xFFFF0000U);
    }
    w[i] = word;
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}

}  // namespace kvbm::device::kernels

extern "C" __global__ void __launch_bounds__(32 * kvbm::device::kCodedWarps)
    kvbm_split_planes(const kvbm::device::CodedJob* jobs, uint32_t count, kvbm::device::CodedResult* results) {
  using namespace kvbm::device;
  using namespace kvbm::device::kernels;
  __shared__ StripeSlot slots[kCodedWarps];
  const uint32_t lane = threadIdx.x % 32;
  StripeSlot& slot = slots[threadIdx.x / 32];
  for (uint32_t i = blockIdx.x * kCodedWarps + threadIdx.x / 32; i < count; i += gridDim.x * kCodedWarps) {
    const CodedJob job = jobs[i];
    const PlainSide from = plain_side(job.leaf);
    const PlanesShape shape = planes_shape(job);
    WarpHash hash;
    hash.start(from.bytes, lane);
    for (uint32_t offset = 16 * lane; offset - 16 * lane < from.bytes; offset += kWarpBytes) {
      const uint4 vector = get_vector(from, offset);
      split_vector(shape, offset, vector);
      hash.take(vector, slot, lane);
    }
    const CodedResult result = {hash.finish(from.bytes, slot, lane), kCodedOk, from.bytes, 0, 0};
    if (lane == 0) results[i] = result;
  }
}

// A checked job with another hash than expected becomes 0xFF.
extern "C" __global__ void __launch_bounds__(32 * kvbm::device::kCodedWarps)
    kvbm_merge_planes(const kvbm::device::CodedJob* jobs, uint32_t count, kvbm::device::CodedResult* results) {
  using namespace kvbm::device;
  using namespace kvbm::device::kernels;
  __shared__ StripeSlot slots[kCodedWarps];
  const uint32_t lane = threadIdx.x % 32;
  StripeSlot& slot = slots[threadIdx.x / 32];
  for (uint32_t i = blockIdx.x * kCodedWarps + threadIdx.x / 32; i < count; i += gridDim.x * kCodedWarps) {
    const CodedJob job = jobs[i];
    const PlainSide to = plain_side(job.leaf);
    const PlanesShape shape = planes_shape(job);
    WarpHash hash;
    hash.start(to.bytes, lane);
    for (uint32_t offset = 16 * lane; offset - 16 * lane < to.bytes; offset += kWarpBytes) {
      const uint4 vector = merge_vector(shape, offset);
      put_vector(to, offset, vector);
      hash.take(vector, slot, lane);
    }
    const uint64_t found = hash.finish(to.bytes, slot, lane);
    end_leaf(job, to, kCodedOk, found, found, lane, results + i);
  }
}
