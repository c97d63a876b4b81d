// The way back to the links' thread for whatever ends on another thread: the links may be gone by then.
//
// Thread: any. Lock: mutex, a leaf but for a post to the links' executor, over which it is held.
#pragma once

#include <utility>

#include "base/executor.h"
#include "base/function.h"
#include "base/mutex.h"

namespace kvbm::manager {

class LinksTurn {
 public:
  explicit LinksTurn(Executor& links) : links_(&links) {}
  LinksTurn(const LinksTurn&) = delete;
  LinksTurn& operator=(const LinksTurn&) = delete;

  // Nothing happens after close(): the task is dropped.
  void post(UniqueFunction<void()> task) {
    MutexLock lock(mutex_);
    if (links_ != nullptr) links_->post(std::move(task));
  }
  // Before the links end.
  void close() {
    MutexLock lock(mutex_);
    links_ = nullptr;
  }

 private:
  Mutex mutex_;
  Executor* links_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::manager
