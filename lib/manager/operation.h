// One asynchronous operation: a state machine that is stepped, never blocked.
//
// step() does a bounded piece of work (about kStepBytes of copying) and says what comes next. Steps of one
// operation never run at the same time; between two of them the operation sits in the executor or
// waits to be woken by I/O. A deadline or a cancel ends it at the next step boundary: the completion
// comes then, and memory of the caller is not touched after it. What I/O still owns (slots, pins,
// staging) is kept by the I/O's own callbacks, never by the operation. A device that writes to the caller's memory is
// waited for (quiet()).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/executor.h"
#include "base/function.h"
#include "copy/completion.h"
#include "manager/counters.h"

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

  // Begins on the executor; `done` runs exactly once, on whatever thread finishes the operation.
  void start(Done done);
  // Begins on this thread and stays on it until the operation must wait (a caller that waits anyway).
  void start_here(Done done);
  // For a caller that waits and works meanwhile: all steps are run by it, in run_woken(). `woken` is called, on any
  // thread, when there is a step to run again.
  void start_waited(Done done, UniqueFunction<void()> woken);
  // Thread: that caller's, until `done` ran. One step, if there is one to run. True: something is on its way to it.
  bool run_woken();
  [[nodiscard]] bool is_woken() const noexcept { return state_.load(std::memory_order_acquire) == kQueued; }
  // Asks for an early end. Thread: any.
  void cancel() noexcept;

 protected:
  enum class Next { more, wait, finished };
  virtual Next step() = 0;
  // The last call: marks what was not done with `why` (ok if everything ran), fills status, items, bytes.
  virtual void conclude(Code why, copy::Completion& completion) = 0;
  // Asked before the operation ends, for whatever reason: false while something that cannot be taken back still touches
  // the caller's memory or the host's (a device's batches). That wakes the operation, which then ends without a step.
  [[nodiscard]] virtual bool quiet() noexcept { return true; }
  // Whether something is on its way that will wake it.
  [[nodiscard]] virtual bool expects() { return false; }
  // Something arrived that step() waits for. Thread: any.
  void wake();
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
  // Guards nothing but itself and orders the steps: each transition, and each wake() that finds nothing to change, is a
  // read and write in one (acq_rel). So either a step sees what the waker before it wrote, or the waker sees the step.
  std::atomic<uint32_t> state_{kIdle};
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> expired_{false};
  bool ending_ = false;  // the last step has run; the steps'
  Code why_ = Code::ok;  // of the end
  Done done_;
  UniqueFunction<void()> woken_;  // empty: the executor runs the steps
};

}  // namespace kvbm::manager
