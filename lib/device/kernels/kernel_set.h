// The functions in the kernels' image, loaded into one context, and their launches.
//
// Each kernel's source describes its parameters (kernels/README.md). Thread: any; the context is current.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "device/driver/driver.h"

namespace kvbm::device {

enum class Kernel : uint8_t {
  gather_leaves,
  scatter_leaves,
  check_leaves,
  hash_leaves,
  poison_leaves,
  decode_planar,
  dequantize,
  quantize,
  split_planes,
  merge_planes,
};
inline constexpr size_t kKernels = 10;
// Returns the name that the image exports.
const char* kernel_name(Kernel kernel) noexcept;

class KernelSet {
 public:
  // Loads the kernels. `ordinal` is for messages. unsupported: no kernels in this build, or none for the device or the
  // driver, with the architectures and versions of both; no_memory; internal: any other refusal of the driver.
  static Result<std::unique_ptr<KernelSet>> load(const Driver& driver, int ordinal, int major, int minor);
  ~KernelSet();
  KernelSet(const KernelSet&) = delete;
  KernelSet& operator=(const KernelSet&) = delete;
  // Forgets the module without unloading it, because its context is gone.
  void abandon() noexcept { module_ = nullptr; }

  // Returns false for a kernel that an image of another release lacks; launching it returns kCuNotFound and does
  // nothing.
  [[nodiscard]] bool has(Kernel kernel) const noexcept { return functions_[static_cast<size_t>(kernel)] != nullptr; }

  // Launches a kernel of leaves.cu with at most `most_blocks` blocks, one for each multiprocessor that it may use, and
  // no more than its jobs need. `count` is not 0; `warps`: warps_for(bytes of the largest job). All pointers are the
  // device's. A kernel reads as many of these parameters as it has.
  CuResult launch_leaves(Kernel kernel, CuStream stream, uint32_t most_blocks, CuPointer jobs, uint32_t count,
                         uint32_t warps, CuPointer hashes = 0, CuPointer good = 0) const noexcept;
  // Launches a kernel of coded leaves likewise; `scratch`: kCodedScratch bytes for each warp.
  CuResult launch_coded(Kernel kernel, CuStream stream, uint32_t most_blocks, CuPointer jobs, uint32_t count,
                        CuPointer results, CuPointer scratch) const noexcept;

 private:
  explicit KernelSet(const Driver& driver) : driver_(driver) {}
  CuResult launch(Kernel kernel, CuStream stream, uint32_t blocks, uint32_t threads, void** parameters) const noexcept;

  const Driver& driver_;
  CuModule module_ = nullptr;
  std::array<CuFunction, kKernels> functions_{};
};

}  // namespace kvbm::device
