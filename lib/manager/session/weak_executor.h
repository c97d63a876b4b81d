// Weak executor: posts to the links' thread from other threads, unless the links are closed already.
//
// Thread: any. Lock: mutex, a leaf except for the post to the links' executor, during which it is held.
#pragma once

#include <utility>

#include "base/function.h"
#include "base/thread/executor.h"
#include "base/thread/mutex.h"

namespace kvbm::manager {

class WeakExecutor {
 public:
  explicit WeakExecutor(Executor& links) : links_(&links) {}
  WeakExecutor(const WeakExecutor&) = delete;
  WeakExecutor& operator=(const WeakExecutor&) = delete;

  // Drops the task after close().
  void post(UniqueFunction<void()> task) {
    MutexLock lock(mutex_);
    if (links_ != nullptr) links_->post(std::move(task));
  }
  // Must run before the links are destroyed.
  void close() {
    MutexLock lock(mutex_);
    links_ = nullptr;
  }

 private:
  Mutex mutex_;
  Executor* links_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager
