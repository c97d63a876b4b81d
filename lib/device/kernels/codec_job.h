// What kernels of coded leaves are told of one leaf, and what they answer: plain data, the same for nvcc and the CPU.
#pragma once

#include <stdint.h>

#include "device/kernels/leaf_job.h"

namespace kvbm::device {

// `leaf.record` is where the coded leaf (or the planes) lies, at a multiple of 8; leaf.run and leaf.bytes are its plain
// side, which may be contiguous: a run of one piece.
struct CodedJob {
  LeafJob leaf;
  uint32_t stored_bytes;  // of the coded leaf; coding: room at leaf.record, a multiple of 64
  uint32_t element;       // codec::Element; coding and planes
  uint32_t mode;          // codec::Mode; coding
  uint32_t row;           // codec::LeafForm; coding
  uint32_t rows;
  uint32_t stored_checked;  // decoding: 1: the coded bytes must have this leaf hash
  uint64_t stored_hash;
};
static_assert(sizeof(CodedJob) == 96, "uploaded as it is");

// Numbers of CodedResult::status. Decoding: a leaf that is not ok has become 0xFF bytes.
enum CodedStatus : uint32_t {
  kCodedOk = 0,
  kCodedDamaged = 1,    // these bytes were never made by a coder
  kCodedNewer = 2,      // a version or shape that is not known here
  kCodedWrongHash = 3,  // it decodes, to other bytes than those that were coded or are expected
  kCodedElsewhere = 4,  // for the CPU: a form, mode or alignment that kernels do not take; nothing is said against it
  kCodedNoGain = 5,     // coding: not to be coded (an infinity, a NaN, numbers out of range, no room saved)
};

struct CodedResult {
  uint64_t hash;          // of the plain bytes that decoding gives
  uint32_t status;
  uint32_t stored_bytes;  // coding: of the coded leaf
  double difference;      // quantising: sum of squares of the differences, and of the values
  double value;
};
static_assert(sizeof(CodedResult) == 32, "read back as it is");

// Warps of a block, of every kernel of coded leaves: a warp does a leaf. As many as the shared memory that planar leaves
// want leaves room for, so that a bound on blocks is one on multiprocessors.
inline constexpr uint32_t kCodedWarps = 8;
// Device memory that a warp of kvbm_decode_planar or kvbm_quantize works in, at a multiple of 16; those of a launch's
// warps lie one after the other.
inline constexpr uint32_t kCodedScratch = 65536;

}  // namespace kvbm::device
