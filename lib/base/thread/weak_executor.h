// Weak executor: posts to an executor that may end earlier than the threads that post.
//
// Thread: any. Lock: mutex_, a leaf except for the post to the executor, during which it is held.
#pragma once

#include <utility>

#include "base/function.h"
#include "base/thread/executor.h"
#include "base/thread/mutex.h"

namespace kvbm {

class WeakExecutor {
 public:
  explicit WeakExecutor(Executor& executor) : executor_(&executor) {}
  WeakExecutor(const WeakExecutor&) = delete;
  WeakExecutor& operator=(const WeakExecutor&) = delete;

  // Drops the task after close().
  void post(UniqueFunction<void()> task) {
    MutexLock lock(mutex_);
    if (executor_ != nullptr) executor_->post(std::move(task));
  }
  // Must run before the executor is destroyed.
  void close() {
    MutexLock lock(mutex_);
    executor_ = nullptr;
  }

 private:
  Mutex mutex_;
  Executor* executor_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm
