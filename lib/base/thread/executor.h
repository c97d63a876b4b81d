// Runs the core's work. The core never creates a thread, sleeps or waits: it posts tasks here. Three executors exist: a
// pool of threads (base/thread/thread_executor.h), the calling thread itself, and the simulation's seeded
// single-threaded one (tests/support).
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
