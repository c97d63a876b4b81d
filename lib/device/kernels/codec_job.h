// Jobs of kernels for coded leaves, one a leaf, and their results: plain data, shared by nvcc and the CPU.
#pragma once

#include <stdint.h>

#include "device/kernels/leaf_job.h"

namespace kvbm::device {

// `leaf.record` is the address of the coded leaf (or the planes), a multiple of 8. leaf.run and leaf.bytes are its
// plain side, which may be contiguous: a run of one piece.
struct CodedJob {
  LeafJob leaf;
  uint32_t stored_bytes;  // of the coded leaf; coding: space at leaf.record, a multiple of 64
  uint32_t element;       // codec::Element; coding and planes
  uint32_t mode;          // codec::Mode; coding
  uint32_t row;           // codec::LeafForm; coding
  uint32_t rows;
  uint32_t stored_checked;  // decoding: 1: the coded bytes must have this leaf hash
  uint64_t stored_hash;
};
static_assert(sizeof(CodedJob) == 96, "uploaded as it is");

// Values of CodedResult::status. When decoding, a leaf that is not ok has become 0xFF bytes.
enum CodedStatus : uint32_t {
  kCodedOk = 0,
  kCodedDamaged = 1,    // no coder made these bytes
  kCodedNewer = 2,      // an unknown version or shape
  kCodedWrongHash = 3,  // decodes, but to other bytes than were coded or are expected
  kCodedElsewhere = 4,  // for the CPU: a form, mode or alignment that kernels do not take; no error
  kCodedNoGain = 5,     // coding: not to be coded (an infinity, a NaN, numbers out of range, no bytes saved)
};

struct CodedResult {
  uint64_t hash;  // of the decoded plain bytes
  uint32_t status;
  uint32_t stored_bytes;  // coding: size of the coded leaf
  double difference;      // quantising: sum of squares of the differences, and of the values
  double value;
};
static_assert(sizeof(CodedResult) == 32, "read back as it is");

// Warps of a block, in every kernel of coded leaves: a warp does a leaf. The shared memory that planar leaves need
// allows no more, so a bound on blocks is a bound on multiprocessors.
inline constexpr uint32_t kCodedWarps = 8;
// Device memory that a warp of kvbm_decode_planar or kvbm_quantize works in, at a multiple of 16; the pieces of a
// launch's warps are contiguous.
inline constexpr uint32_t kCodedScratch = 65536;

}  // namespace kvbm::device
