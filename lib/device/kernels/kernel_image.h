// The kernels compiled ahead, for all architectures in one fatbin (docs/gpu.md says which). Thread: any.
#pragma once

#include <string>

#include "base/bytes.h"
#include "device/driver/driver.h"

namespace kvbm::device {

// Returns the kernels in this library's read-only data; empty in a build without nvcc.
ConstBytes embedded_kernels() noexcept;
// Returns the CUDA toolkit that compiled them: "13.0"; empty if there are none. An older driver may refuse all of them.
const char* embedded_toolkit() noexcept;

// Names the architectures that a fatbin has code for: "sm_80, sm_90 and PTX for compute_80"; empty if it is no fatbin,
// or has an unknown form. For messages only: the driver decides which image loads.
std::string architectures_of(ConstBytes fatbin);

// Returns the image that a module is loaded from: the kernels that the driver brings, else the embedded ones; null if
// there are none.
const void* kernel_image(const Driver& driver) noexcept;

}  // namespace kvbm::device
