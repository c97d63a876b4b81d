// A reference to an object that may end earlier than the threads that use it: its owner revokes the reference first.
//
// Thread: any. Lock: mutex_, held while the object is used, so that it does not end meanwhile; use it shortly.
#pragma once

#include "base/thread/mutex.h"

namespace kvbm {

template <class T>
class Revocable {
 public:
  explicit Revocable(T& object) : object_(&object) {}
  Revocable(const Revocable&) = delete;
  Revocable& operator=(const Revocable&) = delete;

  // Calls `call` with the object; does nothing after revoke().
  template <class Call>
  void use(Call&& call) {
    MutexLock lock(mutex_);
    if (object_ != nullptr) call(*object_);
  }
  // Must run before the object is destroyed.
  void revoke() {
    MutexLock lock(mutex_);
    object_ = nullptr;
  }

 private:
  Mutex mutex_;
  T* object_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm
