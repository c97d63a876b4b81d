// One GPU: its primary context, the kernels loaded into it, and whether it still works.
//
// The context is the one that the engine uses (the primary context), retained while the Device lives. Scope makes it
// current for a piece of code and restores the context that was current before.
// A device is lost after an error that the driver calls sticky (driver_error.h), and after a call of the driver that
// does not return (driver_watch.h). From then on every call returns tier_disabled; the log reports it once. The driver
// is never called in a forked child. Thread: any.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/process/process.h"
#include "base/status.h"
#include "base/thread/executor.h"
#include "base/thread/spares.h"
#include "device/context/device_log.h"
#include "device/driver/driver.h"
#include "device/driver/driver_library.h"
#include "device/driver/driver_watch.h"

namespace kvbm::device {

class KernelSet;

// Makes a context current until the end of the scope, and sets the calling thread to relaxed capture mode. Some stream
// of the process may be under capture into a graph: the driver would refuse calls that it regards as unsafe while
// another thread captures, and end that capture. Relaxed mode is right here: none of our calls concerns a captured
// stream.
class ContextScope {
 public:
  ContextScope(const Driver& driver, CuContext context) noexcept;
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  [[nodiscard]] CuResult result() const noexcept { return result_; }

 private:
  const Driver& driver_;
  const CuResult result_;
  int mode_before_ = -1;
};

struct DeviceFacts {
  int ordinal = -1;
  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string pci;   // "0000:1b:00.0"
  CuUuid uuid{};
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int copy_engines = 0;
  uint64_t memory_bytes = 0;
  bool integrated = false;  // no memory but the host's
  bool maps_host = false;   // kernels may read and write pinned host memory
  // Network cards and the device's memory (direct_memory.h): whether cards read and write it, whether kernels launched
  // after a write see it, and whether they see it after a flush.
  bool cards_reach = false, cards_ordered = false, cards_flushed = false;
  bool cards_dma_buf = false;           // cards reach it without a kernel module for it
  bool streams_wait_for_words = false;  // 64-bit words; layers are awaited with them (not on WSL and some virtual GPUs)
  int driver_version = 0;               // the CUDA version that the driver supports
};

// Returns whether the environment leaves devices one hardware queue for all streams of this process
// (CUDA_DEVICE_MAX_CONNECTIONS). A stream that waits for a word may then stand before the very work that writes it
// (device/README.md, "Landmarks").
bool has_one_connection() noexcept;
// Returns whether each launch waits for its end (CUDA_LAUNCH_BLOCKING). A launch behind a stream's wait for a word then
// blocks its thread, and so may block the work that raises the word.
bool has_blocking_launches() noexcept;

// Lists every device that the driver shows, without creating a context. unsupported with the reason: no driver, too
// old, none.
Result<std::vector<DeviceFacts>> list_devices(const Driver& driver);

inline constexpr char kLost[] = "the device is lost";

class Device : public std::enable_shared_from_this<Device> {
 public:
  // Retains the context and loads the kernels. unsupported: the driver is too old, there is no such ordinal, or the
  // kernels support none of its architectures (the message names both); no_memory. `driver` must outlive the device,
  // and `log` (may be null) too unless log()->close() is called before. `lost_after_ns`: a call of the driver that does
  // not return within this time loses the device; kNever: none does. Blocks: the driver needs up to a second for the
  // first context of a process.
  static Result<std::shared_ptr<Device>> open(const Driver& driver, int ordinal, Log* log,
                                              uint64_t lost_after_ns = kNever);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const DeviceFacts& facts() const noexcept { return facts_; }
  // Returns the table for the next call. Taking it is a sign of life of this thread (DriverCall::alive).
  [[nodiscard]] const Driver& driver() const noexcept {
    DriverCall::alive();
    return driver_;
  }
  [[nodiscard]] const std::shared_ptr<DeviceLog>& log() const noexcept { return log_; }
  [[nodiscard]] DriverWatch& watch() noexcept { return *watch_; }
  // Returns the device's own thread, for calls that no caller should wait for: tasks of the executor never call the
  // driver.
  [[nodiscard]] const std::shared_ptr<Executor>& thread() const noexcept { return thread_; }
  // Returns an event without times, in the device's context, which is current. give_back_event() keeps it for reuse.
  CuResult take_event(CuEvent* event) noexcept;
  void give_back_event(CuEvent event) noexcept;
  // Destroys the cached events; none is cached from now on. Called at the end of transfers, because the device may
  // outlive them.
  void drop_events() noexcept;
  [[nodiscard]] CuContext context() const noexcept { return context_; }
  [[nodiscard]] const KernelSet& kernels() const noexcept { return *kernels_; }
  // Returns ok if streams can be made to wait for a word of a load (landmark.h); unsupported with the reason if not.
  // Refers to the environment in which the device was opened, as the driver does.
  [[nodiscard]] Status check_waits() const;
  [[nodiscard]] bool is_lost() const noexcept { return lost_.load(std::memory_order_acquire); }

  // Converts a result of the driver to a Status; a sticky one loses the device. `what` is static and names the call. On
  // a lost device every result is tier_disabled, success too. Not for results that a handle of the caller's may have
  // caused.
  Status check(CuResult result, const char* what);
  // Like check, for destructors, which cannot report a status. Allocates only for the log.
  void note(CuResult result, const char* what) noexcept;
  // Marks the device as lost: lost_why() then gives the reason, and the first loss is logged. `what` is static and
  // names the call that failed, or the reason if `result` is kCuSuccess. Allocates only for the log.
  void lose(const char* what, CuResult result) noexcept;
  // Returns the reason in words: "cuMemcpyAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700)"; empty while the device is not lost.
  // Does not call the driver.
  [[nodiscard]] std::string lost_why() const;
  // Returns the status for a call that could not enter its Scope: tier_disabled, with lost_why().
  [[nodiscard]] Status lost() const;
  // Logs a refusal of the driver, unless the device is lost.
  void complain(const char* text, const Status& why) const;

  // A ContextScope of the device's context that has its calls watched. A Scope that is not entered means that the
  // device is lost and that the driver must not be called.
  class Scope {
   public:
    explicit Scope(Device& device, DriverCall::Late late = DriverCall::Late::loses) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    [[nodiscard]] bool entered() const noexcept { return context_ && context_->result() == kCuSuccess; }

   private:
    const DriverCall call_;
    std::optional<ContextScope> context_;
  };

 private:
  Device(const Driver& driver, Log* log, uint64_t lost_after_ns);
  Status start();
  const Driver& driver_;
  const std::shared_ptr<DeviceLog> log_;
  const std::shared_ptr<DriverWatch> watch_;
  std::shared_ptr<Executor> thread_;
  ForkGuard fork_guard_;
  DeviceFacts facts_;
  bool blocking_launches_ = false;
  CuDevice handle_ = -1;
  CuContext context_ = nullptr;  // retained, if set
  std::unique_ptr<KernelSet> kernels_;
  static constexpr size_t kSpareEvents = 4096;  // more than are in use: destroying one may wait for the driver
  Spares<CuEvent> events_{kSpareEvents};
  std::once_flag losing_;
  // Written once, before lost_ is set: a reader that has seen lost_ needs no lock.
  std::array<char, 112> lost_why_{};
  std::atomic<bool> lost_{false};
};

}  // namespace kvbm::device
