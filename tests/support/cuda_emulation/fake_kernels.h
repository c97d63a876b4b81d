// The emulated kernels as functions of the fake driver's modules.
#pragma once

#include <functional>
#include <string>

#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::test {

// Each access is checked against what the launch's device may touch. A kernel that a device would have stopped says on
// stderr where, and ends with the code that the driver has for it.
void add_emulated_kernels(FakeCuda& fake);
// The same; `after` runs when a kernel has, on its stream's thread, before what the stream holds behind it.
using AfterKernel = std::function<void(const std::string& name, const FakeLaunch& launch)>;
void add_emulated_kernels(FakeCuda& fake, AfterKernel after);

// Whether a launch of a kernel of leaves has one whose run begins at `address`.
bool has_job_at(const FakeLaunch& launch, const void* address);
// Changes a byte of what the first job of a gather has written.
void spoil_first_record(const FakeLaunch& launch);

}  // namespace kvbm::test
