// Jobs of kvbm_copy_runs (kernels/copy_runs.cu) out of runs, and out of what re-slicing has to move. Pure.
//
// Addresses are the device's; a run's own `data` is not looked at.
#pragma once

#include <vector>

#include "base/bytes.h"
#include "device/driver.h"
#include "device/kernels/leaf_job.h"
#include "layout/reslice.h"

namespace kvbm::device {

// from.total() == to.total(), below 4 GiB and not 0; they may be cut into different pieces but must not overlap.
void append_copy_jobs(const StridedRun& from, CuPointer from_address, const StridedRun& to, CuPointer to_address,
                      std::vector<CopyJob>& jobs);
// Payloads of the source and of the target begin at these addresses.
void append_copy_jobs(const layout::Move& move, CuPointer source, CuPointer target, std::vector<CopyJob>& jobs);

}  // namespace kvbm::device
