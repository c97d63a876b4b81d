// Kernels of lib/device/kernels, from their own source, compiled for the CPU.
#pragma once

#include <string>
#include <vector>

#include "support/cuda_emulation/launch.h"

namespace kvbm::emulation {

// All kernels of a device's module, made once.
const std::vector<EmulatedKernel>& emulated_kernels();
// Returns null if there is no such kernel.
const EmulatedKernel* emulated_kernel_named(const std::string& name);

// One function for each file that compiles sources of kernels.
void add_copy_kernels(std::vector<EmulatedKernel>& kernels);
void add_coded_kernels(std::vector<EmulatedKernel>& kernels);

#ifdef KVBM_ON_DEVICE
// Runs the kernels' tests on a device, if there is one (tests/device/kernels_on_device.cc).
Outcome launch_on_device(const std::string& name, const LaunchShape& shape, void** parameters);
#endif

// Launches a kernel by name, as the driver does. The arguments' types must be the parameters'; sizes are checked.
template <class... Args>
Outcome launch_named(const std::string& name, const LaunchShape& shape, const Options& options, Args... args) {
  const EmulatedKernel* kernel = emulated_kernel_named(name);
  if (kernel == nullptr) return {Outcome::Kind::invalid_launch, "there is no kernel " + name};
  if (kernel->parameter_bytes != std::vector<size_t>{sizeof(Args)...}) {
    return {Outcome::Kind::invalid_launch, name + " has other parameters"};
  }
  void* parameters[] = {static_cast<void*>(&args)...};
#ifdef KVBM_ON_DEVICE
  (void)options;
  return launch_on_device(name, shape, parameters);
#else
  return kernel->run(shape, options, parameters);
#endif
}

}  // namespace kvbm::emulation
