// Makes jobs of kvbm_copy_runs (kernels/copy_runs.cu) from runs, and from the moves of re-slicing. Pure.
//
// Addresses are the device's; a run's own `data` is ignored.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "device/driver/driver.h"
#include "device/kernels/leaf_job.h"
#include "layout/reslice.h"

namespace kvbm::device {

// Requires from.total() == to.total(), below 4 GiB and not 0. Both may be cut into different pieces but must not
// overlap.
void append_copy_jobs(const StridedRun& from, CuPointer from_address, const StridedRun& to, CuPointer to_address,
                      std::vector<CopyJob>& jobs);
// Copies a move; payloads of the source and of the target begin at these addresses.
void append_copy_jobs(const layout::Move& move, CuPointer source, CuPointer target, std::vector<CopyJob>& jobs);

}  // namespace kvbm::device
