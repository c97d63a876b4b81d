// One GPU: its primary context, the kernels loaded into it, and whether it still works.
//
// The context is the one that the engine uses (the primary context), retained while the Device lives. Scope makes it
// current for a piece of code and gives back what was there. After an error that the driver calls sticky the device is
// lost: every later call says tier_disabled, and the log has said so once. Thread: any.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "device/driver.h"

namespace kvbm::device {

class KernelSet;

struct DeviceFacts {
  int ordinal = -1;
  std::string name;        // "NVIDIA H100 80GB HBM3"
  std::string pci;         // "0000:1b:00.0"
  CuUuid uuid{};
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int copy_engines = 0;
  uint64_t memory_bytes = 0;
  bool maps_host = false;          // kernels may read and write pinned host memory
  bool registers_read_only = false;
  int driver_version = 0;          // of CUDA that the driver speaks
};

// Every device that the driver shows, without making a context. unsupported with the reason: no driver, too old, none.
Result<std::vector<DeviceFacts>> list_devices(const Driver& driver);

class Device {
 public:
  // The oldest driver that is used: CUDA 12.0 (stream memory operations without opt-in).
  static constexpr int kOldestDriver = 12000;

  // Retains the context and loads the kernels. unsupported: driver too old, no such ordinal, or kernels for none of its
  // architectures (the message names both). `driver` must outlive it.
  static Result<std::shared_ptr<Device>> open(const Driver& driver, int ordinal, Log* log);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const DeviceFacts& facts() const noexcept { return facts_; }
  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] CuContext context() const noexcept { return context_; }
  [[nodiscard]] const KernelSet& kernels() const noexcept { return *kernels_; }
  [[nodiscard]] bool is_lost() const noexcept { return lost_.load(std::memory_order_acquire); }

  // A result of the driver as a Status; a sticky one loses the device. `what` is static and names the call.
  Status check(CuResult result, const char* what);
  // Called, once, when the device is lost; at once where it is already. Thread: any.
  void lose(const char* what, CuResult result);

  // Makes the context current until the end of the scope.
  class Scope {
   public:
    explicit Scope(Device& device) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    [[nodiscard]] bool entered() const noexcept { return entered_; }

   private:
    Device& device_;
    bool entered_;
  };

 private:
  Device(const Driver& driver, Log* log) : driver_(driver), log_(log) {}
  const Driver& driver_;
  Log* log_;
  DeviceFacts facts_;
  CuDevice handle_ = -1;
  CuContext context_ = nullptr;
  std::unique_ptr<KernelSet> kernels_;
  std::atomic<bool> lost_{false};
};

}  // namespace kvbm::device
