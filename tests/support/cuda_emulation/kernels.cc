#include "support/cuda_emulation/kernels.h"

namespace kvbm::emulation {

const std::vector<EmulatedKernel>& emulated_kernels() {
  static const std::vector<EmulatedKernel> kernels = [] {
    std::vector<EmulatedKernel> all;
    add_copy_kernels(all);
    add_coded_kernels(all);
    return all;
  }();
  return kernels;
}

const EmulatedKernel* emulated_kernel_named(const std::string& name) {
  for (const EmulatedKernel& kernel : emulated_kernels()) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

}  // namespace kvbm::emulation
