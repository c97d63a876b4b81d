// The only lock of the tree, with clang's thread-safety annotations (-Wthread-safety -Werror).
// Lock order: lib/README.md. No lock is held across I/O, logging, a wait or a plug-in call.
#pragma once

#include <mutex>

#if defined(__clang__)
#define KVBM_TSA(x) __attribute__((x))
#else
#define KVBM_TSA(x)
#endif

#define KVBM_CAPABILITY KVBM_TSA(capability("mutex"))
#define KVBM_SCOPED_CAPABILITY KVBM_TSA(scoped_lockable)
#define KVBM_GUARDED_BY(m) KVBM_TSA(guarded_by(m))
#define KVBM_REQUIRES(...) KVBM_TSA(requires_capability(__VA_ARGS__))
#define KVBM_ACQUIRE(...) KVBM_TSA(acquire_capability(__VA_ARGS__))
#define KVBM_TRY_ACQUIRE(...) KVBM_TSA(try_acquire_capability(__VA_ARGS__))
#define KVBM_RELEASE(...) KVBM_TSA(release_capability(__VA_ARGS__))
#define KVBM_EXCLUDES(...) KVBM_TSA(locks_excluded(__VA_ARGS__))
#define KVBM_NO_TSA KVBM_TSA(no_thread_safety_analysis)

namespace kvbm {

class KVBM_CAPABILITY Mutex {
 public:
  void lock() KVBM_ACQUIRE() { mutex_.lock(); }
  void unlock() KVBM_RELEASE() { mutex_.unlock(); }
  bool try_lock() KVBM_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  // For condition variables, which live in base/thread/executor and in capi waits only.
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

class KVBM_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) KVBM_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() KVBM_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace kvbm
