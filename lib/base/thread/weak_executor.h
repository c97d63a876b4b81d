// Weak executor: posts to an executor that may end earlier than the threads that post. Thread: any; the post is made
// under the lock of Revocable.
#pragma once

#include <utility>

#include "base/function.h"
#include "base/thread/executor.h"
#include "base/thread/revocable.h"

namespace kvbm {

class WeakExecutor {
 public:
  explicit WeakExecutor(Executor& executor) : executor_(executor) {}

  // Drops the task after close().
  void post(UniqueFunction<void()> task) {
    executor_.use([&](Executor& executor) { executor.post(std::move(task)); });
  }
  // Must run before the executor is destroyed.
  void close() { executor_.revoke(); }

 private:
  Revocable<Executor> executor_;
};

}  // namespace kvbm
