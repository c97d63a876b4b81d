// Sources of kernels that move and hash.
#define KVBM_CUDA_EMULATION "support/cuda_emulation/device.h"
#include "device/kernels/leaves.cu"
#include "support/cuda_emulation/kernels.h"

namespace kvbm::emulation {

void add_copy_kernels(std::vector<EmulatedKernel>& kernels) {
  kernels.push_back(emulated_kernel("kvbm_gather_leaves", &kvbm_gather_leaves));
  kernels.push_back(emulated_kernel("kvbm_scatter_leaves", &kvbm_scatter_leaves));
  kernels.push_back(emulated_kernel("kvbm_hash_leaves", &kvbm_hash_leaves));
  kernels.push_back(emulated_kernel("kvbm_check_leaves", &kvbm_check_leaves));
  kernels.push_back(emulated_kernel("kvbm_poison_leaves", &kvbm_poison_leaves));
}

}  // namespace kvbm::emulation
