// One asynchronous operation: a state machine that is stepped, never blocked.
//
// step() does a bounded piece of work (about kStepBytes of copying) and returns how to continue. Steps of one
// operation never run at the same time; between two of them the operation is queued in the executor or waits to be
// woken by I/O. A deadline or a cancel ends it at the next step boundary: it completes then, and memory of the caller
// is not touched after it. Resources that I/O still uses (slots, pins, staging) are held by the I/O's own callbacks,
// never by the operation. The operation waits for a device that writes to the caller's memory (quiet()).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/function.h"
#include "base/thread/executor.h"
#include "copy/completion.h"
#include "manager/common/counters.h"

namespace kvbm::manager {

class Operation : public std::enable_shared_from_this<Operation> {
 public:
  // Copying done in one step; at memory speed about 100 us.
  static constexpr uint64_t kStepBytes = 1 << 20;
  using Done = UniqueFunction<void(const copy::Completion&)>;

  Operation(Executor& executor, Counters& counters, copy::OpKind kind, uint64_t deadline_ns);
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Begins on the executor; `done` runs exactly once, on the thread that finishes the operation.
  void start(Done done);
  // Begins on this thread and stays on it until the operation must wait (a caller that waits anyway).
  void start_here(Done done);
  // Starts for a caller that waits and works meanwhile: it runs all steps itself, in run_woken(). `woken` is called,
  // on any thread, when there is a step to run again.
  void start_waited(Done done, UniqueFunction<void()> woken);
  // Runs one step, if there is one to run. Thread: that caller's, until `done` ran. True: input for the operation is
  // in flight.
  bool run_woken();
  [[nodiscard]] bool is_woken() const noexcept { return state_.load(std::memory_order_acquire) == kQueued; }
  // Requests an early end. Thread: any.
  void cancel() noexcept;

 protected:
  enum class Next { more, wait, finished };
  virtual Next step() = 0;
  // Last call: marks items that were not done with `why` (ok if everything ran), fills status, items, bytes.
  virtual void conclude(Code why, copy::Completion& completion) = 0;
  // Called before the operation ends, for any reason. False while something that cannot be recalled still touches the
  // caller's memory or the host's (a device's batches). Its end wakes the operation, which then ends without a step.
  [[nodiscard]] virtual bool quiet() noexcept { return true; }
  // Returns true if something in flight will wake the operation.
  [[nodiscard]] virtual bool expects() { return false; }
  // Signals that an input of step() has arrived. Thread: any.
  void wake();
  // Signals it at the end of a transfer. Posts a reference to the executor, because a transfer thread must not drop the
  // last one.
  void wake_from_transfer();
  [[nodiscard]] uint64_t deadline_ns() const noexcept { return deadline_ns_; }
  [[nodiscard]] uint64_t submitted_ns() const noexcept { return submitted_ns_; }

 private:
  enum State : uint32_t { kIdle, kQueued, kRunning, kRunningWoken, kFinished };
  void begin(Done done);
  void enqueue();
  void run();
  bool run_step();
  Next step_or_end(Code& why);
  Next next_or_end();
  void finish(Code why);
  [[nodiscard]] Code interrupted() const noexcept;

  Executor& executor_;
  Counters& counters_;
  const copy::OpKind kind_;
  const uint64_t deadline_ns_;
  uint64_t submitted_ns_ = 0;
  uint64_t began_ns_ = 0;
  // Guards nothing but itself and orders the steps: each transition, and each wake() that finds nothing to change, is
  // one atomic read and write (acq_rel). So either a step sees what the waker before it wrote, or the waker sees the
  // step.
  std::atomic<uint32_t> state_{kIdle};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> expired_{false};
  bool ending_ = false;  // the last step has run; used by the steps only
  Code why_ = Code::ok;  // of the end
  Done done_;
  UniqueFunction<void()> woken_;  // empty: the executor runs the steps
};

}  // namespace kvbm::manager
