// kvbm_decode_planar: decodes coded leaves of codec 1 into device memory, and hashes the plain bytes on the way.
//
// A warp decodes a leaf; the warps of a launch take jobs by stride. The reference is planar_decode() of
// codec/lossless/planar.cc: the kernel refuses and accepts the same leaves, with the same bytes. Launch shapes and
// bounds: CODEC.md.
#include "device/kernels/planar_blocks.cuh"
#include "device/kernels/planar_signs.cuh"

namespace kvbm::device::kernels {

constexpr uint32_t kShapeRepeat = 0;
constexpr uint32_t kShapeRows = 16;
constexpr uint32_t kLeastRowBytes = 32;

// Rows that occur more than once: an index a row, and the location of the different ones.
struct PlanarRows {
  uint64_t index = 0;
  uint64_t held = 0;
  uint32_t row_bytes = 0;
  uint32_t different = 0;
  uint32_t inner_at = 0;  // offset of the different rows in the coded leaf
  bool coded = false;     // as a leaf of their own
};

// Repeats the 8 bytes of the header over the leaf.
__device__ inline void repeat_eight(uint64_t eight, const PlainSide& to, uint32_t lane, PlanarRoom& room, WarpHash& hash) {
  for (uint32_t n = 0; n * kWarpBytes < to.bytes; ++n) {
    const uint32_t offset = n * kWarpBytes + 16 * lane;
    uint64_t words[2] = {eight, eight};
#pragma unroll
    for (uint32_t w = 0; w < 2; ++w) {
      const uint32_t at = offset + 8 * w;
      if (at >= to.bytes) {
        words[w] = 0;
      } else if (to.bytes - at < 8) {
        words[w] &= (uint64_t{1} << (8 * (to.bytes - at))) - 1;
      }
    }
    const uint4 vector = make_uint4(static_cast<uint32_t>(words[0]), static_cast<uint32_t>(words[0] >> 32),
                                    static_cast<uint32_t>(words[1]), static_cast<uint32_t>(words[1] >> 32));
    put_vector(to, offset, vector);
    hash.take(vector, room.slot, lane);
  }
}

// Returns four bytes of the plain leaf, `offset` a multiple of 4. Bytes of rows that do not exist are zero, and clear
// `good`.
__device__ inline uint32_t rows_word(const PlanarRows& rows, uint32_t offset, uint32_t end, bool& good) {
  uint32_t word = 0;
  uint32_t row = offset / rows.row_bytes;
  uint32_t inside = offset - row * rows.row_bytes;
  uint32_t index = get16(rows.index + 2 * row);
  for (uint32_t i = 0; i < 4 && offset + i < end; ++i) {
    if (inside == rows.row_bytes) {
      index = get16(rows.index + 2 * ++row);
      inside = 0;
    }
    good = good && index < rows.different;
    if (index < rows.different) word |= get8(rows.held + index * rows.row_bytes + inside) << (8 * i);
    ++inside;
  }
  return word;
}

__device__ inline uint4 rows_vector(const PlanarRows& rows, uint32_t offset, uint32_t end, bool& good) {
  if (offset >= end) return make_uint4(0, 0, 0, 0);
  if (rows.row_bytes % 16 == 0) {
    const uint32_t row = offset / rows.row_bytes;
    const uint32_t index = get16(rows.index + 2 * row);
    good = good && index < rows.different;
    if (index >= rows.different) return make_uint4(0, 0, 0, 0);
    const uint64_t at = rows.held + index * rows.row_bytes + (offset - row * rows.row_bytes);
    const uint64_t low = get64(at);
    const uint64_t high = get64(at + 8);
    return make_uint4(static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                      static_cast<uint32_t>(high >> 32));
  }
  uint32_t words[4] = {};
#pragma unroll
  for (uint32_t w = 0; w < 4; ++w) {
    if (offset + 4 * w < end) words[w] = rows_word(rows, offset + 4 * w, end, good);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Writes all rows to `to`; false: a row does not exist.
__device__ inline bool spread_rows(const PlanarRows& rows, const PlainSide& to, uint32_t lane, PlanarRoom& room,
                                   WarpHash& hash) {
  bool good = true;
  for (uint32_t n = 0; n * kWarpBytes < to.bytes; ++n) {
    const uint32_t offset = n * kWarpBytes + 16 * lane;
    const uint4 vector = rows_vector(rows, offset, to.bytes, good);
    put_vector(to, offset, vector);
    hash.take(vector, room.slot, lane);
  }
  return __all_sync(kAllLanes, good) != 0;
}

// Finds the rows of a leaf of shape 16; if they are coded, `header` and `frame` become those of the inner leaf.
__device__ inline uint32_t read_rows(const CodedJob& job, CodedHeader& header, uint32_t lane, PlanarRows& rows,
                                     CodedFrame& frame) {
  const uint32_t raw = job.leaf.bytes;
  const uint32_t codec = field32(header, kOwnAt + 8);
  rows.row_bytes = field32(header, kOwnAt);
  rows.different = field32(header, kOwnAt + 4);
  if (rows.row_bytes < kLeastRowBytes || rows.row_bytes > raw || raw % rows.row_bytes != 0 || rows.different == 0 ||
      rows.different > raw / rows.row_bytes) {
    return kCodedDamaged;
  }
  rows.inner_at = round_up_to(kHeaderBytes + 2 * (raw / rows.row_bytes), 64);
  if (rows.inner_at >= job.stored_bytes) return kCodedDamaged;
  rows.index = job.leaf.record + kHeaderBytes;
  rows.held = job.leaf.record + rows.inner_at;
  const uint32_t inner_bytes = job.stored_bytes - rows.inner_at;
  const uint32_t different_bytes = rows.different * rows.row_bytes;
  rows.coded = codec == kCodecPlanar;
  if (!rows.coded) return codec != 0 || inner_bytes < different_bytes ? kCodedDamaged : kCodedOk;
  copy_header(rows.held, header, lane);
  const uint32_t status = check_frame(header, kCodecPlanar, inner_bytes, different_bytes, frame);
  if (status != kCodedOk) return status;
  return planar_values_shape(frame.shape) ? kCodedOk : kCodedDamaged;
}

// Copies plain bytes out of working memory; behind them are zeros up to a multiple of 16.
__device__ inline void copy_out(uint64_t from, const PlainSide& to, uint32_t lane, PlanarRoom& room, WarpHash& hash) {
  for (uint32_t n = 0; n * kWarpBytes < to.bytes; ++n) {
    const uint32_t offset = n * kWarpBytes + 16 * lane;
    uint4 vector = make_uint4(0, 0, 0, 0);
    if (offset < to.bytes) {
      const uint64_t low = get64(from + offset);
      const uint64_t high = get64(from + offset + 8);
      vector = make_uint4(static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32), static_cast<uint32_t>(high),
                          static_cast<uint32_t>(high >> 32));
    }
    put_vector(to, offset, vector);
    hash.take(vector, room.slot, lane);
  }
}

// Decodes a leaf of shape 1 to 8, or 17, with its header in `room`; shape 17 into working memory.
__device__ inline uint32_t decode_values(const CodedFrame& frame, uint64_t at, uint32_t stored, uint32_t raw,
                                         const PlainSide& to, uint32_t lane, PlanarRoom& room, WarpHash& hash) {
  PlanarLane mine;
  PlanarLeaf found = {};
  const uint32_t status = planar_read(room.header, frame, at, stored, raw, lane, found, mine);
  if (status != kCodedOk) return status;
  if (lane == 0) room.leaf = found;
  __syncwarp();
  const PlanarLeaf& leaf = room.leaf;
  if (!planar_classes_known(leaf, lane)) return kCodedDamaged;
  bool good = false;
  if (leaf.width == 1) good = planar_decode<1>(leaf, mine, to, lane, room, hash);
  if (leaf.width == 2) good = planar_decode<2>(leaf, mine, to, lane, room, hash);
  if (leaf.width == 4) good = planar_decode<4>(leaf, mine, to, lane, room, hash);
  if (!good) return kCodedDamaged;
  if (frame.shape == kShapeSigns) {
    const uint32_t bytes = leaf.blocks * kPlanarBlock * leaf.width;
    unfold_signs(to.run.address, bytes, frame.row * leaf.width, frame.element, lane);
  }
  return kCodedOk;
}

// Decodes the leaf into `to`. `raw_hash` is the leaf's statement; `hash` is of all written bytes if the status is ok.
__device__ inline uint32_t decode_leaf(const CodedJob& job, const PlainSide& to, uint64_t scratch, uint32_t lane,
                                       PlanarRoom& room, uint64_t& raw_hash, WarpHash& hash) {
  const uint64_t at = job.leaf.record;
  if (at % 8 != 0) return kCodedElsewhere;
  if (!has_header(job.stored_bytes) || !is_as_stored(job, room.slot, lane)) return kCodedDamaged;
  copy_header(at, room.header, lane);
  CodedFrame frame;
  uint32_t status = check_frame(room.header, kCodecPlanar, job.stored_bytes, job.leaf.bytes, frame);
  if (status != kCodedOk) return status;
  raw_hash = frame.raw_hash;
  if (frame.shape == kShapeRepeat) {
    repeat_eight(room.header.words[kOwnAt / 8], to, lane, room, hash);
    return kCodedOk;
  }
  PlanarRows rows;
  const bool in_rows = frame.shape == kShapeRows;
  if (in_rows) {
    status = read_rows(job, room.header, lane, rows, frame);
    if (status != kCodedOk) return status;
  } else if (!planar_values_shape(frame.shape)) {
    return kCodedNewer;
  }
  if (!in_rows || rows.coded) {
    const bool in_scratch = in_rows || frame.shape == kShapeSigns;
    if (in_scratch && scratch == 0) return kCodedElsewhere;
    const uint32_t raw = in_rows ? rows.different * rows.row_bytes : to.bytes;
    const PlainSide target = in_scratch ? work_side(scratch, raw) : to;
    status = decode_values(frame, at + rows.inner_at, job.stored_bytes - rows.inner_at, raw, target, lane, room, hash);
    if (status != kCodedOk || !in_scratch) return status;
    rows.held = scratch;
    hash.start(to.bytes, lane);
    __syncwarp();  // lanes read what others wrote there
    if (!in_rows) {
      copy_out(scratch, to, lane, room, hash);
      return kCodedOk;
    }
  }
  return spread_rows(rows, to, lane, room, hash) ? kCodedOk : kCodedDamaged;
}

}  // namespace kvbm::device::kernels

// `scratch`: kCodedScratch bytes for each warp of the launch, or 0: then coded rows that repeat, and coded signs, are
// left to the CPU.
extern "C" __global__ void __launch_bounds__(32 * kvbm::device::kCodedWarps)
    kvbm_decode_planar(const kvbm::device::CodedJob* jobs, uint32_t count, kvbm::device::CodedResult* results,
                       uint64_t scratch) {
  using namespace kvbm::device;
  using namespace kvbm::device::kernels;
  __shared__ PlanarRoom rooms[kCodedWarps];
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warp = blockIdx.x * kCodedWarps + threadIdx.x / 32;
  PlanarRoom& room = rooms[threadIdx.x / 32];
  const uint64_t own = scratch == 0 ? 0 : scratch + uint64_t{warp} * kCodedScratch;
  for (uint32_t i = warp; i < count; i += gridDim.x * kCodedWarps) {
    const CodedJob job = jobs[i];
    const PlainSide to = plain_side(job.leaf);
    uint64_t raw_hash = 0;
    WarpHash hash;
    hash.start(to.bytes, lane);
    const uint32_t status = decode_leaf(job, to, own, lane, room, raw_hash, hash);
    const uint64_t found = hash.finish(to.bytes, room.slot, lane);
    end_leaf(job, to, status, found, raw_hash, lane, results + i);
  }
}
