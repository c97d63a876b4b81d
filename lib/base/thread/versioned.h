// A value that is read often and replaced rarely, always as a whole: a reader takes no lock and sees one version.
//
// Earlier versions stay until the object ends, so there must be few. Thread: any.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace kvbm {

template <class T>
class Versioned {
 public:
  Versioned() : now_(new Version{T(), nullptr}) {}
  ~Versioned() { (void)end(); }
  Versioned(const Versioned&) = delete;
  Versioned& operator=(const Versioned&) = delete;

  // Returns the value, which stays as it is as long as this object.
  [[nodiscard]] const T& get() const noexcept { return now_.load(std::memory_order_acquire)->value; }
  // Replaces the value by a copy with a change. `change` runs once more if another thread has replaced it meanwhile.
  template <class Change>
  void replace(Change&& change) {
    Version* before = now_.load(std::memory_order_acquire);
    std::unique_ptr<Version> next;
    do {
      next.reset(new Version{before->value, before});
      change(next->value);
    } while (!now_.compare_exchange_weak(before, next.get(), std::memory_order_acq_rel, std::memory_order_acquire));
    (void)next.release();
  }
  // Returns the value and ends all versions: no other thread uses the object, and nothing else is called after it.
  T end() {
    Version* version = now_.exchange(nullptr, std::memory_order_acq_rel);
    T last = version != nullptr ? std::move(version->value) : T();
    while (version != nullptr) delete std::exchange(version, version->before);
    return last;
  }

 private:
  struct Version {
    T value;
    Version* before;
  };
  std::atomic<Version*> now_;
};

}  // namespace kvbm
