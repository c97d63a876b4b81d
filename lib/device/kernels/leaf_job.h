// What a kernel is told of one leaf: plain data, the same for nvcc, the CPU and the driver's parameter blocks.
#pragma once

#include <stdint.h>

namespace kvbm::device {

// One leaf: count0 x count1 pieces of `piece_bytes` in device memory, piece (i, j) at device + i * stride0 + j * stride1,
// in that order `bytes` long together, and the same bytes contiguous at `record`. Both addresses are the device's.
struct LeafJob {
  uint64_t device;
  uint64_t record;
  int64_t stride0;
  int64_t stride1;
  uint64_t expected;     // the leaf hash that the bytes must have; of scatters
  uint32_t piece_bytes;
  uint32_t count0;
  uint32_t count1;
  uint32_t bytes;
};
static_assert(sizeof(LeafJob) == 56, "uploaded as it is");

}  // namespace kvbm::device
