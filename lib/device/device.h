// One GPU: its primary context, the kernels loaded into it, and whether it still works.
//
// The context is the one that the engine uses (the primary context), retained while the Device lives. Scope makes it
// current for a piece of code and gives back what was there. After an error that the driver calls sticky (driver_error.h)
// the device is lost: every later call says tier_disabled, and the log has said so once. So it is after a call of the
// driver that does not return (driver_watch.h). In a child that was forked the driver is never called. Thread: any.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/process.h"
#include "base/status.h"
#include "device/device_log.h"
#include "device/driver.h"
#include "device/driver_library.h"
#include "device/driver_watch.h"

namespace kvbm::device {

class KernelSet;

// What the driver lets this thread do while anybody captures a stream into a graph: everything, for nothing that is done
// here is about a stream that is captured. Without it a call that the driver takes for unsafe is refused beside a capture
// of another thread, and ends that capture.
class CaptureMode {
 public:
  void relax(const Driver& driver) noexcept;
  void restore(const Driver& driver) noexcept;

 private:
  int before_ = -1;
};

struct DeviceFacts {
  int ordinal = -1;
  std::string name;        // "NVIDIA H100 80GB HBM3"
  std::string pci;         // "0000:1b:00.0"
  CuUuid uuid{};
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  int copy_engines = 0;
  uint64_t memory_bytes = 0;
  bool integrated = false;         // it has no memory but the host's
  bool maps_host = false;          // kernels may read and write pinned host memory
  // Network cards and its memory (direct_memory.h): whether they read and write it; whether kernels launched after a write
  // see it; whether they do after a flush.
  bool cards_reach = false, cards_ordered = false, cards_flushed = false;
  bool cards_dma_buf = false;      // without a module of the kernel for it
  bool streams_wait_for_words = false;  // of 64 bits: layers are waited for by them (not on WSL and some virtual GPUs)
  int driver_version = 0;          // of CUDA that the driver speaks
};

// Whether the environment leaves devices one hardware queue for all streams of this process (CUDA_DEVICE_MAX_CONNECTIONS):
// a stream that waits for a word may then stand before the very work that writes it (README.md, "Landmarks").
bool has_one_connection() noexcept;
// Whether the environment has each launch wait for its end (CUDA_LAUNCH_BLOCKING): one behind a stream's wait for a word then
// keeps the thread that made it, and with it what is to raise the word.
bool has_blocking_launches() noexcept;

// Every device that the driver shows, without making a context. unsupported with the reason: no driver, too old, none.
Result<std::vector<DeviceFacts>> list_devices(const Driver& driver);

inline constexpr char kLost[] = "the device is lost";

class Device : public std::enable_shared_from_this<Device> {
 public:
  // Retains the context and loads the kernels. unsupported: driver too old, no such ordinal, or kernels for none of its
  // architectures (the message names both); no_memory. `driver` must outlive it, and `log`, which may be null.
  // `lost_after_ns`: a call of the driver that does not return within so long loses the device; kNever: none does.
  // Blocks: the first context of a process takes the driver up to a second.
  static Result<std::shared_ptr<Device>> open(const Driver& driver, int ordinal, Log* log, uint64_t lost_after_ns = kNever);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const DeviceFacts& facts() const noexcept { return facts_; }
  // For the next call: that is a sign of life of this thread.
  [[nodiscard]] const Driver& driver() const noexcept {
    DriverCall::alive();
    return driver_;
  }
  [[nodiscard]] const std::shared_ptr<DeviceLog>& log() const noexcept { return log_; }
  [[nodiscard]] DriverWatch& watch() noexcept { return *watch_; }
  // A thread of the device's, for calls that nobody should wait for: tasks of the executor never call the driver.
  [[nodiscard]] const std::shared_ptr<Executor>& thread() const noexcept { return thread_; }
  // An event without times, in the device's context, which is current; kept for the next one when it is given back.
  CuResult take_event(CuEvent* event) noexcept;
  void give_back_event(CuEvent event) noexcept;
  // Destroys those that are kept; none is from now on. Transfers end so: the device itself may have to stay.
  void drop_events() noexcept;
  [[nodiscard]] CuContext context() const noexcept { return context_; }
  [[nodiscard]] const KernelSet& kernels() const noexcept { return *kernels_; }
  // ok: streams can be made to wait for a word of a load (landmark.h). unsupported: why not. Says it of the environment that
  // the device was opened in, as the driver does.
  [[nodiscard]] Status check_waits() const;
  [[nodiscard]] bool is_lost() const noexcept { return lost_.load(std::memory_order_acquire); }

  // A result of the driver as a Status; a sticky one loses the device. `what` is static and names the call. Of a lost
  // device every result is tier_disabled, success too. Not for results that a handle of the caller's may be to blame for.
  Status check(CuResult result, const char* what);
  // As check, where there is nobody to be told: destructors. Allocates nothing but for the log.
  void note(CuResult result, const char* what) noexcept;
  // From now on the device is lost, and lost_why() says so; the log, the first time. `what` is static: the call that failed;
  // with kCuSuccess, what else it is. Allocates nothing but for the log.
  void lose(const char* what, CuResult result) noexcept;
  // What lost it, in words: "cuMemcpyAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700)"; empty while it is not lost. Asks the driver nothing.
  [[nodiscard]] std::string lost_why() const;
  // What a call is answered whose Scope was not entered: tier_disabled, with lost_why().
  [[nodiscard]] Status lost() const;
  // To the log: what the driver refused while the device is not lost.
  void complain(const char* text, const Status& why) const;

  // Makes the context current until the end of the scope, and has its calls watched. Not entered, and the driver not
  // called: the device is lost.
  class Scope {
   public:
    explicit Scope(Device& device, DriverCall::Late late = DriverCall::Late::loses) noexcept;
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    [[nodiscard]] bool entered() const noexcept { return entered_; }

   private:
    const DriverCall call_;
    Device& device_;
    bool entered_;
    CaptureMode mode_;
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
  CuContext context_ = nullptr;  // retained, where it is set
  std::unique_ptr<KernelSet> kernels_;
  Mutex events_mutex_;
  std::vector<CuEvent> events_ KVBM_GUARDED_BY(events_mutex_);
  bool keeps_events_ KVBM_GUARDED_BY(events_mutex_) = true;
  Mutex losing_;
  // Written once, under losing_, before lost_ is: who has seen that reads it without a lock.
  std::array<char, 112> lost_why_{};
  std::atomic<bool> lost_{false};
};

}  // namespace kvbm::device
