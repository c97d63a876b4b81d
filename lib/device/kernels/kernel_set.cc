#include "device/kernels/kernel_set.h"

#include <algorithm>
#include <string>

#include "device/driver/driver_error.h"
#include "device/driver/driver_library.h"
#include "device/kernels/codec_job.h"
#include "device/kernels/kernel_image.h"
#include "device/kernels/leaf_job.h"

namespace kvbm::device {

namespace {

constexpr std::array<const char*, kKernels> kNames = {
    "kvbm_gather_leaves", "kvbm_scatter_leaves", "kvbm_check_leaves", "kvbm_hash_leaves",  "kvbm_poison_leaves",
    "kvbm_decode_planar", "kvbm_dequantize",     "kvbm_quantize",     "kvbm_split_planes", "kvbm_merge_planes",
};

constexpr unsigned kLoadingThreads = 32;

// CUresults of loading an image that this device, or this driver's compiler of PTX, cannot take: INVALID_PTX,
// JIT_COMPILER_NOT_FOUND, UNSUPPORTED_PTX_VERSION, JIT_COMPILATION_DISABLED. A driver that is older than the toolkit
// may not even read the compressed image: INVALID_IMAGE.
constexpr CuResult kInvalidPtx = 218, kNoCompiler = 221, kNewerPtx = 222, kCompilerOff = 223;

bool says_no_code(CuResult result) {
  return result == kCuInvalidImage || result == kCuNoBinaryForGpu || result == kInvalidPtx || result == kNoCompiler ||
         result == kNewerPtx || result == kCompilerOff;
}

std::string driver_text(const Driver& driver) {
  int version = 0;
  if (driver.cuDriverGetVersion(&version) != kCuSuccess) return "a driver that does not say its version";
  return "a driver of CUDA " + cuda_version_text(version);
}

Status refused(const Driver& driver, CuResult result, int ordinal, int major, int minor) {
  if (!says_no_code(result)) return driver_status(driver, result, "loading the kernels");
  const bool embedded = driver.own_kernels == nullptr;
  const std::string have = embedded ? architectures_of(embedded_kernels()) : "";
  return {Code::unsupported, "no kernels for this device",
          "device " + std::to_string(ordinal) + " is sm_" + std::to_string(major * 10 + minor) + " with " +
              driver_text(driver) + "; this libkvbm has " +
              (have.empty() ? "kernels for others" : "kernels for " + have) +
              (embedded ? ", built with CUDA " + std::string(embedded_toolkit()) : "") + " (the driver says " +
              driver_error_text(driver, result) + ")"};
}

// Loads a function now. Drivers since 12.2 load at the first launch by default, and loading may wait for all work of
// the device. That may include a stream of the engine that waits for this very kernel's result.
CuResult get_function(const Driver& driver, CuModule module, const char* name, CuFunction* function) {
  const CuResult result = driver.cuModuleGetFunction(function, module, name);
  if (result != kCuSuccess || driver.cuFuncLoad == nullptr) return result;
  return driver.cuFuncLoad(*function);
}

// Launches each kernel once without jobs, because a driver before CUDA 12.4 has no call that loads a kernel and a
// launch does. Uses a stream that no stream of the engine waits for.
CuResult launch_each_once(const Driver& driver, const std::array<CuFunction, kKernels>& functions) {
  CuStream stream = nullptr;
  CuResult result = driver.cuStreamCreateWithPriority(&stream, kCuStreamNonBlocking, 0);
  if (result != kCuSuccess) return result;
  // No jobs, at no address; one warp for kernels that take warps. The driver reads as many of these as the kernel has.
  uint64_t none = 0, one = 1;
  void* parameters[] = {&none, &none, &one, &none, &none};
  for (const CuFunction function : functions) {
    if (function == nullptr || result != kCuSuccess) continue;
    result = driver.cuLaunchKernel(function, 1, 1, 1, kLoadingThreads, 1, 1, 0, stream, parameters, nullptr);
  }
  if (result == kCuSuccess) result = driver.cuStreamSynchronize(stream);
  const CuResult destroyed = driver.cuStreamDestroy(stream);
  return result != kCuSuccess ? result : destroyed;
}

}  // namespace

const char* kernel_name(Kernel kernel) noexcept { return kNames[static_cast<size_t>(kernel)]; }

Result<std::unique_ptr<KernelSet>> KernelSet::load(const Driver& driver, int ordinal, int major, int minor) {
  const void* const image = kernel_image(driver);
  if (image == nullptr) {
    return Status{Code::unsupported, "this libkvbm was built without its CUDA kernels",
                  "build it where nvcc is (docs/gpu.md)"};
  }
  std::unique_ptr<KernelSet> set(new KernelSet(driver));
  CuResult result = driver.cuModuleLoadData(&set->module_, image);
  if (result != kCuSuccess) {
    set->module_ = nullptr;
    return refused(driver, result, ordinal, major, minor);
  }
  for (size_t i = 0; i < kKernels; ++i) {
    result = get_function(driver, set->module_, kNames[i], &set->functions_[i]);
    if (result == kCuSuccess) continue;
    set->functions_[i] = nullptr;
    if (result != kCuNotFound) return refused(driver, result, ordinal, major, minor);
  }
  if (driver.cuFuncLoad == nullptr) {
    result = launch_each_once(driver, set->functions_);
    if (result != kCuSuccess) return refused(driver, result, ordinal, major, minor);
  }
  return set;
}

KernelSet::~KernelSet() {
  if (module_ != nullptr) driver_.cuModuleUnload(module_);
}

CuResult KernelSet::launch_leaves(Kernel kernel, CuStream stream, uint32_t most_blocks, CuPointer jobs, uint32_t count,
                                  uint32_t warps, CuPointer hashes, CuPointer good) const noexcept {
  void* parameters[] = {&jobs, &count, &warps, &hashes, &good};
  const uint32_t at_once = jobs_per_block(warps);
  return launch(kernel, stream, std::min(most_blocks, (count + at_once - 1) / at_once), kBlockThreads, parameters);
}

CuResult KernelSet::launch_coded(Kernel kernel, CuStream stream, uint32_t most_blocks, CuPointer jobs, uint32_t count,
                                 CuPointer results, CuPointer scratch) const noexcept {
  void* parameters[] = {&jobs, &count, &results, &scratch};
  const uint32_t needed = (count + kCodedWarps - 1) / kCodedWarps;
  return launch(kernel, stream, std::min(most_blocks, needed), 32 * kCodedWarps, parameters);
}

CuResult KernelSet::launch(Kernel kernel, CuStream stream, uint32_t blocks, uint32_t threads,
                           void** parameters) const noexcept {
  const CuFunction function = functions_[static_cast<size_t>(kernel)];
  if (function == nullptr) return kCuNotFound;
  return driver_.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace kvbm::device
