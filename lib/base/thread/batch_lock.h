// A scoped lock for critical sections of a few microseconds. It tries for about as long as such a section lasts before
// it sleeps, because a sleep and a wake-up cost more than the wait.
#pragma once

#include "base/thread/mutex.h"

namespace kvbm {

class KVBM_SCOPED_CAPABILITY BatchLock {
 public:
  explicit BatchLock(Mutex& mutex) KVBM_ACQUIRE(mutex) KVBM_NO_TSA : mutex_(mutex), waited_(!lock(mutex)) {}
  ~BatchLock() KVBM_RELEASE() { mutex_.unlock(); }
  BatchLock(const BatchLock&) = delete;
  BatchLock& operator=(const BatchLock&) = delete;
  // For callers that cannot use a scope. Returns false if another thread had the lock.
  static bool lock(Mutex& mutex) KVBM_ACQUIRE(mutex) KVBM_NO_TSA {
    if (mutex.try_lock()) return true;
    for (int spins = 0; spins < kSpins; ++spins) {
      pause();
      if (mutex.try_lock()) return false;
    }
    mutex.lock();
    return false;
  }
  [[nodiscard]] bool waited() const noexcept { return waited_; }

 private:
  static constexpr int kSpins = 200;
  static void pause() noexcept {
#if defined(__x86_64__)
    for (int i = 0; i < 4; ++i) __builtin_ia32_pause();
#endif
  }
  Mutex& mutex_;
  const bool waited_;
};

}  // namespace kvbm
