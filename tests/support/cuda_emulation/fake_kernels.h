// The emulated kernels as functions of the fake driver's modules.
#pragma once

#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::test {

// Each access is checked against what the launch's device may touch. A kernel that a device would have stopped says on
// stderr where, and ends with the code that the driver has for it.
void add_emulated_kernels(FakeCuda& fake);

}  // namespace kvbm::test
