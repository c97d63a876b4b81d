// A pool of threads that runs tasks in the order posted.
//
// Threads are named kvbm-<name>-<i> (cut to the 15 bytes that Linux keeps, the number whole), block every signal, and
// sleep in the kernel while there is nothing to do. The destructor runs all tasks posted so far, and those that they
// post. It drops timers that are not yet due, and joins. It must not run on a thread of the pool.
//
// Lock: mutex_, a leaf; no task runs under it. Budget: post takes about 100 ns while a thread is awake, a futex wake
// more when all sleep. Callables of up to 48 bytes need no allocation once the ring has reached the size that the load
// needs.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/thread/executor.h"
#include "base/thread/mutex.h"
#include "base/thread/task_queue.h"

namespace kvbm {

class ThreadExecutor final : public Executor {
 public:
  // threads >= 1. Code::no_memory when the system refuses a thread.
  static Result<std::unique_ptr<ThreadExecutor>> create(std::string_view name, uint32_t threads);
  ~ThreadExecutor() override;
  ThreadExecutor(const ThreadExecutor&) = delete;
  ThreadExecutor& operator=(const ThreadExecutor&) = delete;

  void post(Task task) override;
  void post_at(uint64_t when_ns, Task task) override;
  [[nodiscard]] const Clock& clock() const noexcept override { return clock_; }
  [[nodiscard]] size_t threads() const noexcept { return threads_.size(); }
  // Whether the calling thread is one of the pool.
  [[nodiscard]] bool is_current() const noexcept;

 private:
  ThreadExecutor() = default;
  static void* entry(void* self);
  void work();
  Task next();
  void move_due() KVBM_REQUIRES(mutex_);
  void sleep() KVBM_REQUIRES(mutex_);
  void wake_one() KVBM_REQUIRES(mutex_);

  SystemClock clock_;
  std::vector<pthread_t> threads_;
  Mutex mutex_;
  TaskRing ready_ KVBM_GUARDED_BY(mutex_);
  TimerHeap timers_ KVBM_GUARDED_BY(mutex_);
  // At most one sleeping thread watches the timers; the others wait for work only.
  std::condition_variable work_;
  std::condition_variable timer_;
  uint32_t idle_ KVBM_GUARDED_BY(mutex_) = 0;    // threads asleep on work_
  uint32_t waking_ KVBM_GUARDED_BY(mutex_) = 0;  // sleepers that were already notified
  bool watching_ KVBM_GUARDED_BY(mutex_) = false;
  bool watch_notified_ KVBM_GUARDED_BY(mutex_) = false;
  bool stopping_ KVBM_GUARDED_BY(mutex_) = false;
};

// Starts a thread with every signal blocked and the given name. Code::no_memory when refused.
Status start_thread(pthread_t& out, const std::string& name, void* (*entry)(void*), void* argument);

}  // namespace kvbm
