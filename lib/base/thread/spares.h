// Objects kept for reuse, last in, first out: the one that was used last is most likely still in a cache.
//
// Thread: any. Lock: mutex_, a leaf; no object is destroyed under it.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/thread/mutex.h"

namespace kvbm {

template <class T>
class Spares {
 public:
  // Keeps at most `most`.
  explicit Spares(size_t most) : most_(most) { kept_.reserve(most); }
  // Returns T() if none is kept.
  T take() {
    MutexLock lock(mutex_);
    if (kept_.empty()) return T();
    T spare = std::move(kept_.back());
    kept_.pop_back();
    return spare;
  }
  // Returns false, and leaves it to the caller, if it is not kept. Never allocates.
  bool give_back(T&& spare) {
    MutexLock lock(mutex_);
    if (kept_.size() >= most_) return false;
    kept_.push_back(std::move(spare));
    return true;
  }
  // Returns all that are kept. None is kept from then on.
  std::vector<T> close() {
    MutexLock lock(mutex_);
    most_ = 0;
    return std::exchange(kept_, {});
  }

 private:
  Mutex mutex_;
  size_t most_ KVBM_GUARDED_BY(mutex_);
  std::vector<T> kept_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm
