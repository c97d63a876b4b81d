// How a leaf that was decoded ends: its hash compared, what may not be read overwritten, and the answer.
#pragma once

#include <stdint.h>

#include "device/kernels/coded_run.cuh"

namespace kvbm::device {

// All lanes call it. Each lane overwrites what it wrote itself, so nothing has to be waited for.
__device__ inline void finish_leaf(const CodedJob& job, const PlainRun& to, uint32_t status, uint64_t found,
                                   uint64_t in_frame, uint32_t lane, CodedResult& result) {
  if (status == kCodedOk) {
    const bool unexpected = (job.flags & kCheckExpected) != 0 && found != job.leaf.expected;
    if (found != in_frame || unexpected) status = kCodedWrongHash;
  } else {
    found = 0;
  }
  if (status != kCodedOk) run_poison(to, lane);
  if (lane != 0) return;
  result.hash = found;
  result.status = status;
  result.stored_bytes = job.stored_bytes;
  result.difference = 0;
  result.value = 0;
}

}  // namespace kvbm::device
