// The functions in the kernels' image, loaded into one context, and their launches with typed parameters.
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

struct LaunchShape {
  uint32_t blocks = 1;
  uint32_t threads = 1;
  uint32_t shared_bytes = 0;  // at most 48 KiB
};

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

  // Kernels of leaves.cu: `warps` is warps_for(bytes of the largest job). All pointers are the device's.
  CuResult gather_leaves(CuStream stream, const LaunchShape& shape, CuPointer jobs, uint32_t count, uint32_t warps,
                         CuPointer hashes) const noexcept {
    return launch(Kernel::gather_leaves, stream, shape, jobs, count, warps, hashes);
  }
  CuResult hash_leaves(CuStream stream, const LaunchShape& shape, CuPointer jobs, uint32_t count, uint32_t warps,
                       CuPointer hashes) const noexcept {
    return launch(Kernel::hash_leaves, stream, shape, jobs, count, warps, hashes);
  }
  CuResult scatter_leaves(CuStream stream, const LaunchShape& shape, CuPointer jobs, uint32_t count, uint32_t warps,
                          CuPointer hashes, CuPointer good) const noexcept {
    return launch(Kernel::scatter_leaves, stream, shape, jobs, count, warps, hashes, good);
  }
  CuResult check_leaves(CuStream stream, const LaunchShape& shape, CuPointer jobs, uint32_t count, uint32_t warps,
                        CuPointer hashes, CuPointer good) const noexcept {
    return launch(Kernel::check_leaves, stream, shape, jobs, count, warps, hashes, good);
  }
  CuResult poison_leaves(CuStream stream, const LaunchShape& shape, CuPointer jobs, uint32_t count,
                         uint32_t warps) const noexcept {
    return launch(Kernel::poison_leaves, stream, shape, jobs, count, warps);
  }

  // Launches any kernel. The types must be those of the kernel's parameters: the driver copies as many bytes as the
  // kernel has.
  template <class... Args>
  CuResult launch(Kernel kernel, CuStream stream, const LaunchShape& shape, Args... args) const noexcept {
    void* parameters[] = {static_cast<void*>(&args)...};
    return launch_with(kernel, stream, shape, parameters);
  }

 private:
  explicit KernelSet(const Driver& driver) : driver_(driver) {}
  CuResult launch_with(Kernel kernel, CuStream stream, const LaunchShape& shape, void** parameters) const noexcept;

  const Driver& driver_;
  CuModule module_ = nullptr;
  std::array<CuFunction, kKernels> functions_{};
};

}  // namespace kvbm::device
