// The executor of a caller that drives the work itself: tasks run only inside run_until, on the thread that
// calls it. Several threads may drive at once; a waiting thread sleeps in the kernel until a task is posted, a timer
// falls due or another driver ran a task. Tasks that were not run when the object ends are dropped.
// Lock: mutex_, a leaf; neither a task nor a predicate runs under it.
#pragma once

#include <condition_variable>

#include "base/thread/executor.h"
#include "base/thread/mutex.h"
#include "base/thread/task_queue.h"

namespace kvbm::test {

class InlineExecutor final : public Executor {
 public:
  void post(Task task) override;
  void post_at(uint64_t when_ns, Task task) override;
  [[nodiscard]] const Clock& clock() const noexcept override { return clock_; }

  // Runs tasks until `done()` or the deadline; returns the last value of `done()`. It is called before the first task,
  // after each task, and after another thread ran some.
  bool run_until(UniqueFunction<bool()> done, uint64_t deadline_ns = kNever);

 private:
  void move_due() KVBM_REQUIRES(mutex_);
  void ran() KVBM_EXCLUDES(mutex_);
  Task take(uint64_t deadline_ns, uint64_t seen, bool& expired);

  SystemClock clock_;
  Mutex mutex_;
  std::condition_variable changed_;
  TaskRing ready_ KVBM_GUARDED_BY(mutex_);
  TimerHeap timers_ KVBM_GUARDED_BY(mutex_);
  uint32_t waiting_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t runs_ KVBM_GUARDED_BY(mutex_) = 0;  // tasks that ended
};

}  // namespace kvbm::test
