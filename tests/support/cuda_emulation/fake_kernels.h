// Emulated kernels as functions of the fake driver's modules.
#pragma once

#include <functional>
#include <string>

#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::test {

// Adds the kernels. Each access is checked against what the launch's device may touch. A kernel that a device would
// have stopped reports the place on stderr, and ends with the driver's code for it.
void add_emulated_kernels(FakeCuda& fake);
// Installs the kernels; `after` runs after each kernel on its stream's thread, before later work of the stream.
using AfterKernel = std::function<void(const std::string& name, const FakeLaunch& launch)>;
void add_emulated_kernels(FakeCuda& fake, AfterKernel after);

// True if a launch of a kernel of leaves has a leaf with a run that begins at `address`.
bool has_job_at(const FakeLaunch& launch, const void* address);
// Changes a byte of the record that the first job of a gather has written.
void spoil_first_record(const FakeLaunch& launch);

}  // namespace kvbm::test
