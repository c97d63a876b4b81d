// The 64 bytes that begin every coded leaf, read and checked as codec/leaf/frame.cc does. They are copied once and only
// the copy is read, so that the bytes used are those checked, even if the memory changes meanwhile.
#pragma once

#include "device/kernels/coded_plain.cuh"

namespace kvbm::device::kernels {

constexpr uint32_t kHeaderBytes = 64;
constexpr uint32_t kOwnAt = 32;  // the codec's own fields
constexpr uint32_t kMaxPlainBytes = 65536;
constexpr uint32_t kCodecPlanar = 1;
constexpr uint32_t kCodecQuantized = 3;

// Lies in shared memory, one for each warp.
struct CodedHeader {
  uint64_t words[kHeaderBytes / 8];
};

__device__ __forceinline__ uint32_t field8(const CodedHeader& h, uint32_t at) {
  return static_cast<uint32_t>(h.words[at / 8] >> (8 * (at % 8))) & 0xFF;
}
__device__ __forceinline__ uint32_t field16(const CodedHeader& h, uint32_t at) {  // `at` a multiple of 2
  return static_cast<uint32_t>(h.words[at / 8] >> (8 * (at % 8))) & 0xFFFF;
}
__device__ __forceinline__ uint32_t field32(const CodedHeader& h, uint32_t at) {  // `at` a multiple of 4
  return static_cast<uint32_t>(h.words[at / 8] >> (8 * (at % 8)));
}

// Fields that all codecs have. Uniform over a warp.
struct CodedFrame {
  uint32_t element = 0;
  uint32_t shape = 0;
  uint32_t row = 0;
  uint32_t rows = 0;
  uint64_t raw_hash = 0;
};

// Returns whether a coded leaf of `stored_bytes` bytes has a header.
__device__ __forceinline__ bool has_header(uint32_t stored_bytes) {
  return stored_bytes >= kHeaderBytes && stored_bytes % kHeaderBytes == 0;
}

// Copies the header. All lanes call it, and may read the copy when it returns.
__device__ inline void copy_header(uint64_t address, CodedHeader& header, uint32_t lane) {
  __syncwarp();
  if (lane < kHeaderBytes / 8) header.words[lane] = get64(address + 8 * lane);
  __syncwarp();
}

// Returns whether a leaf with a header has the bytes that were stored. The frame's own hash does not tell: a leaf of
// another block is intact, too. All lanes call it and get one answer; `slot` is the warp's own.
__device__ inline bool is_as_stored(const CodedJob& job, StripeSlot& slot, uint32_t lane) {
  if (job.stored_checked == 0) return true;
  PlainSide from = work_side(job.leaf.record, job.stored_bytes);
  if (job.leaf.record % 16 != 0) from.width = 8;
  WarpHash hash;
  hash.start(job.stored_bytes, lane);
  for (uint32_t offset = 16 * lane; offset - 16 * lane < job.stored_bytes; offset += kWarpBytes) {
    hash.take(get_vector(from, offset), slot, lane);
  }
  return hash.finish(job.stored_bytes, slot, lane) == job.stored_hash;
}

__device__ inline uint32_t check_frame(const CodedHeader& h, uint32_t codec, uint32_t stored_bytes, uint32_t raw_bytes,
                                       CodedFrame& frame) {
  const uint32_t version = field8(h, 0);
  if (version > 1) return kCodedNewer;
  frame.element = field8(h, 2);
  frame.shape = field8(h, 3);
  frame.row = field32(h, 12);
  frame.rows = field32(h, 16);
  frame.raw_hash = h.words[3];
  if (version != 1 || field8(h, 1) != codec || frame.element > 6 || field32(h, 20) != 0) return kCodedDamaged;
  const uint32_t raw = field32(h, 4);
  const uint32_t stored = field32(h, 8);
  const bool agree = raw == raw_bytes && stored == stored_bytes;
  return agree && raw != 0 && raw <= kMaxPlainBytes && stored < raw ? kCodedOk : kCodedDamaged;
}

}  // namespace kvbm::device::kernels
