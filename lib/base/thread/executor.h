// Runs the core's work. The core never creates a thread, sleeps or waits: it posts tasks here. Executors are
// pools of threads (base/thread/thread_executor.h) and threads that drive a transport (copy/transport_thread.h); tests
// have the simulation's seeded one, and one that its caller drives (tests/support).
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/function.h"

namespace kvbm {

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `task` once, soon, on some thread of this executor; never inside post itself. Thread: any.
  virtual void post(UniqueFunction<void()> task) = 0;
  // Runs `task` once when `clock().now_ns() >= when_ns`. Thread: any.
  virtual void post_at(uint64_t when_ns, UniqueFunction<void()> task) = 0;
  [[nodiscard]] virtual const Clock& clock() const noexcept = 0;
};

}  // namespace kvbm
