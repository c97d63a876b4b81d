// The kernels compiled ahead, for all architectures in one fatbin (docs/gpu.md says which). Thread: any.
#pragma once

#include <string>

#include "base/bytes.h"
#include "device/driver.h"

namespace kvbm::device {

// What is in this library's read-only data; empty in a build without nvcc.
ConstBytes embedded_kernels() noexcept;
// The CUDA toolkit that compiled them: "13.0"; empty where there are none. A driver that is older may take none of them.
const char* embedded_toolkit() noexcept;

// For which architectures a fatbin has code: "sm_80, sm_90 and PTX for compute_80"; empty where it is no fatbin, or of
// a form that is not known here. For messages: what loads is the driver's to say.
std::string architectures_of(ConstBytes fatbin);

// What a module is loaded from: the kernels that the driver brings, else the embedded ones; null where there are none.
const void* kernel_image(const Driver& driver) noexcept;

}  // namespace kvbm::device
