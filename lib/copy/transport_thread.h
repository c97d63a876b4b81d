// A transport and the thread that drives it; also an Executor, so that a state machine written against one is ticked on
// that thread and may use the transport without a lock.
//
// The thread is named kvbm-<name>, blocks every signal, and sleeps in ppoll(2) while there is nothing to do. Tasks run
// in the order posted, timers when due, between two calls of Transport::progress(). The destructor runs what was posted
// before it, closes the transport (so every listener's call is on the thread), runs what these calls posted, drops
// timers that are not due, and joins; it may not run on the thread itself. Lock: mutex_, a leaf; no task runs under it.
// Budget: post() takes 100 ns while the thread is awake, a write to an eventfd more when it sleeps; nothing is
// allocated for callables of up to 48 bytes in a steady load.
#pragma once

#include <pthread.h>

#include <memory>
#include <string_view>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/task_queue.h"
#include "copy/transport.h"

namespace kvbm::copy {

class TransportThread final : public Executor {
 public:
  static Result<std::unique_ptr<TransportThread>> create(std::string_view name, const kvbm_transport_ops_t& ops,
                                                         const TransportOptions& options, TransportListener& listener,
                                                         const Log* log = nullptr);
  ~TransportThread() override;
  TransportThread(const TransportThread&) = delete;
  TransportThread& operator=(const TransportThread&) = delete;

  void post(Task task) override;
  void post_at(uint64_t when_ns, Task task) override;
  [[nodiscard]] const Clock& clock() const noexcept override { return clock_; }

  // Thread: this one's own, in tasks and in the listener's calls.
  [[nodiscard]] Transport& transport() noexcept { return *transport_; }

 private:
  TransportThread() = default;
  static void* entry(void* self);
  void work();
  void run_tasks(bool all);
  bool next_task(Task& task);
  void sleep();
  // True: write to event_ after the lock is released.
  bool take_sleep() KVBM_REQUIRES(mutex_);
  void wake() const noexcept;

  SystemClock clock_;
  std::unique_ptr<Transport> transport_;
  int event_ = -1;
  pthread_t thread_{};
  bool started_ = false;
  Mutex mutex_;
  TaskRing ready_ KVBM_GUARDED_BY(mutex_);
  TimerHeap timers_ KVBM_GUARDED_BY(mutex_);
  bool asleep_ KVBM_GUARDED_BY(mutex_) = false;  // and nobody has taken it upon himself to wake the thread
  bool stopping_ KVBM_GUARDED_BY(mutex_) = false;
};

}  // namespace kvbm::copy
