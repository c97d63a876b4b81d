// One value that a thread gives and another waits for: the end of work that runs elsewhere.
//
// Thread: any. Lock: mutex_, a leaf. give() has finished with the object before wait() returns, which may destroy it.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/thread/mutex.h"

namespace kvbm {

template <class T>
class Awaited {
 public:
  void give(T value) {
    MutexLock lock(mutex_);
    value_ = std::move(value);
    given_.notify_all();
  }
  // Takes the value: for one thread, once.
  T wait() {
    MutexLock lock(mutex_);
    while (!value_) {
      std::unique_lock<std::mutex> native(mutex_.native(), std::adopt_lock);
      given_.wait(native);
      native.release();
    }
    return std::move(*value_);
  }
  // Returns false if the deadline passed first; else wait() returns at once.
  [[nodiscard]] bool wait_until(const Clock& clock, uint64_t deadline_ns) {
    // At most an hour at a time: a far deadline must not overflow the standard library's clock.
    constexpr uint64_t kHourNs = 3'600'000'000'000;
    MutexLock lock(mutex_);
    while (!value_) {
      const uint64_t now = clock.now_ns();
      if (now >= deadline_ns) return false;
      std::unique_lock<std::mutex> native(mutex_.native(), std::adopt_lock);
      given_.wait_for(native, std::chrono::nanoseconds(std::min(deadline_ns - now, kHourNs)));
      native.release();
    }
    return true;
  }

 private:
  Mutex mutex_;
  std::condition_variable given_;
  std::optional<T> value_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm
