// Header of a planar leaf of shape 1 to 8, or 17, checked as codec/lossless/planar.cc does. Format: codec/README.md.
#pragma once

#include "device/kernels/coded_frame.cuh"

namespace kvbm::device::kernels {

constexpr uint32_t kPlanarLevels = 8;
constexpr uint32_t kPlanarRests = 4;
constexpr uint32_t kPlanarCodes = 32;
constexpr uint32_t kPlanarClasses = 4;
constexpr uint32_t kPlanarVectors = 64;
constexpr uint32_t kPlanarBlock = 64;  // elements
constexpr uint32_t kPackedBlock = 56;  // bytes of 64 values of 7 bits
constexpr uint32_t kShapeSigns = 17;   // 8 levels, the sign in the symbol

// Equal in all lanes of a warp. Offsets count from the header's first byte; all parts lie below `stored`.
struct PlanarLeaf {
  uint64_t at;
  uint32_t stored;
  uint32_t raw;
  uint32_t width;      // bytes of an element
  uint32_t rest_bits;  // bits of its top byte that are not coded
  uint32_t packed;     // 1: lower bytes are stored without their last bits
  uint32_t blocks;
  uint32_t levels;
  uint32_t full;       // levels that every code has
  uint32_t codes;
  uint64_t limits;     // byte l: a code of l bits, zeros behind it up to 8, is undecided from there on
  uint32_t classes;
  uint32_t period;
  uint32_t group;
  uint32_t vectors;    // 0: one class
  uint32_t escapes;
  uint32_t tables;
  uint32_t streams;
  uint32_t escapes_at;
  uint32_t bits;
  uint32_t planes;
  uint32_t tail;
};

// Own state of a lane: the code of one rank, and one stream.
struct PlanarLane {
  uint32_t code = 0;    // of rank `lane`, with zeros behind it up to `levels` bits
  uint32_t stream = 0;  // start of stream `lane`
  uint32_t words = 0;   // its length in the header
  uint32_t ends = 0;    // bits taken of it
};

// Returns true for shapes with blocks that are decoded here.
__device__ __forceinline__ bool planar_values_shape(uint32_t shape) {
  return (shape != 0 && shape <= kPlanarLevels) || shape == kShapeSigns;
}

__device__ inline void planar_element(uint32_t element, bool signs, PlanarLeaf& leaf) {
  if (signs) {
    // bf16, fp16, e4m3, e5m2.
    leaf.width = element == 1 || element == 2 ? 2 : element == 4 || element == 5 ? 1 : 0;
    leaf.rest_bits = element == 1 ? 0 : element == 4 ? 3 : 2;
    leaf.packed = element == 1 ? 1 : 0;
    return;
  }
  // bf16, fp16, fp32, e4m3, e5m2; no other element is coded in these shapes.
  leaf.width = element == 1 || element == 2 ? 2 : element == 3 ? 4 : element == 4 || element == 5 ? 1 : 0;
  leaf.rest_bits = element == 2 || element == 5 ? 3 : element == 4 ? 4 : 0;
}

// Reads the code tree; false unless it is complete and has at least two codes.
__device__ inline bool planar_tree(const CodedHeader& h, PlanarLeaf& leaf, uint32_t lane, PlanarLane& mine) {
  uint32_t open = 1;
  uint32_t limit = 0;
  for (uint32_t l = 1; l <= kPlanarLevels; ++l) {
    const uint32_t here = field8(h, kOwnAt + l - 1);
    if (l > leaf.levels) {
      if (here != 0) return false;
      continue;
    }
    if (here > 2 * open || leaf.codes + here > kPlanarCodes) return false;
    if (leaf.codes == 0) leaf.full = l;
    const uint32_t step = 1U << (leaf.levels - l);
    if (lane >= leaf.codes && lane < leaf.codes + here) mine.code = limit + (lane - leaf.codes) * step;
    leaf.codes += here;
    limit += here * step;
    open = 2 * open - here;
    if ((open == 0) != (l == leaf.levels)) return false;
    // If codes are left open the limit is below all ones, so it fits.
    if (l < leaf.levels) leaf.limits |= static_cast<uint64_t>(limit << (kPlanarLevels - leaf.levels)) << (8 * l);
  }
  return leaf.codes >= 2;
}

__device__ inline void planar_sections(PlanarLeaf& leaf, uint32_t words, uint32_t& end) {
  const uint32_t values = leaf.blocks * kPlanarBlock;
  leaf.tables = kHeaderBytes + leaf.vectors * (kPlanarBlock / 4);
  leaf.streams = round_up_to(leaf.tables + leaf.classes * (leaf.codes - 1), 8);
  leaf.escapes_at = leaf.streams + 8 * words;
  leaf.bits = round_up_to(leaf.escapes_at + leaf.escapes, 64);
  leaf.planes = leaf.bits + 8 * leaf.rest_bits * leaf.blocks;
  if (leaf.width > 1) leaf.planes = round_up_to(leaf.planes, 64);
  leaf.tail = leaf.planes + (leaf.packed != 0 ? leaf.blocks * kPackedBlock : values * (leaf.width - 1));
  const uint32_t data = leaf.tail + (leaf.raw - values * leaf.width);
  const uint32_t slack = leaf.escapes_at + leaf.escapes + 64;
  end = round_up_to(data > slack ? data : slack, 64);
}

// Reads and checks the header. `h`: the copied header of the leaf at `at`, which check_frame() has passed. All lanes
// call it and get one answer.
__device__ inline uint32_t planar_read(const CodedHeader& h, const CodedFrame& frame, uint64_t at, uint32_t stored,
                                       uint32_t raw, uint32_t lane, PlanarLeaf& leaf, PlanarLane& mine) {
  leaf.at = at;
  leaf.stored = stored;
  leaf.raw = raw;
  const bool signs = frame.shape == kShapeSigns;
  leaf.levels = signs ? kPlanarLevels : frame.shape;
  planar_element(frame.element, signs, leaf);
  if (leaf.width == 0) return kCodedDamaged;
  leaf.blocks = raw / (kPlanarBlock * leaf.width);
  if (leaf.blocks == 0 || leaf.levels == 0) return kCodedDamaged;
  if (signs && (frame.row == 0 || frame.row > leaf.blocks * kPlanarBlock)) return kCodedDamaged;
  if (!planar_tree(h, leaf, lane, mine)) return kCodedDamaged;
  leaf.classes = field8(h, 40);
  leaf.period = field16(h, 42);
  leaf.group = field16(h, 44);
  leaf.escapes = field16(h, 46);
  if (leaf.classes == 0 || leaf.classes > kPlanarClasses || field8(h, 41) != 0) return kCodedDamaged;
  if (leaf.period == 0 || leaf.period > kPlanarVectors || leaf.group == 0 || leaf.group > leaf.blocks) {
    return kCodedDamaged;
  }
  const uint32_t vectors = (leaf.blocks + leaf.group - 1) / leaf.group * leaf.period;
  if (vectors > kPlanarVectors) return kCodedDamaged;
  if (leaf.classes > 1) leaf.vectors = vectors;
  uint32_t words = 0;
  for (uint32_t l = 0; l < kPlanarLevels; ++l) {
    const uint32_t here = field16(h, 48 + 2 * l);
    const uint32_t most = l < leaf.levels ? leaf.blocks : 0;
    if (l < leaf.full ? here != leaf.blocks : here > most) return kCodedDamaged;
    if (lane == l) {
      mine.stream = 8 * words;
      mine.words = here;
    }
    words += here;
  }
  uint32_t end = 0;
  planar_sections(leaf, words, end);
  mine.stream += leaf.streams;
  return end == stored ? kCodedOk : kCodedDamaged;
}

}  // namespace kvbm::device::kernels
