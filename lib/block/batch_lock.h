// A scoped lock for critical sections of a few microseconds: tries for about as long as such a
// section lasts before it sleeps, because a sleep and a wake-up cost more than the wait.
#pragma once

#include "base/mutex.h"

namespace kvbm::block {

class KVBM_SCOPED_CAPABILITY BatchLock {
 public:
  explicit BatchLock(Mutex& mutex) KVBM_ACQUIRE(mutex) KVBM_NO_TSA : mutex_(mutex) {
    for (int spins = 0; spins < kSpins; ++spins) {
      if (mutex_.try_lock()) return;
      pause();
    }
    mutex_.lock();
  }
  ~BatchLock() KVBM_RELEASE() { mutex_.unlock(); }
  BatchLock(const BatchLock&) = delete;
  BatchLock& operator=(const BatchLock&) = delete;

 private:
  static constexpr int kSpins = 200;
  static void pause() noexcept {
#if defined(__x86_64__)
    for (int i = 0; i < 4; ++i) __builtin_ia32_pause();
#endif
  }
  Mutex& mutex_;
};

}  // namespace kvbm::block
