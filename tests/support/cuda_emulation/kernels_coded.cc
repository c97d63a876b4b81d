// Sources of kernels that decode and code leaves.
#define KVBM_CUDA_EMULATION "support/cuda_emulation/device.h"
#include "device/kernels/planar_decode.cu"
#include "device/kernels/planes.cu"
#include "device/kernels/quantize_decode.cu"
#include "device/kernels/quantize_encode.cu"
#include "support/cuda_emulation/kernels.h"

namespace kvbm::emulation {

void add_coded_kernels(std::vector<EmulatedKernel>& kernels) {
  kernels.push_back(emulated_kernel("kvbm_decode_planar", &kvbm_decode_planar));
  kernels.push_back(emulated_kernel("kvbm_split_planes", &kvbm_split_planes));
  kernels.push_back(emulated_kernel("kvbm_merge_planes", &kvbm_merge_planes));
  kernels.push_back(emulated_kernel("kvbm_quantize", &kvbm_quantize));
  kernels.push_back(emulated_kernel("kvbm_dequantize", &kvbm_dequantize));
}

}  // namespace kvbm::emulation
