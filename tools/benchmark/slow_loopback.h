// A loopback link as slow as is wanted, in a network namespace of the calling thread's own.
//
// Threads and processes that the thread makes while this exists are in the namespace too, for good; the thread itself
// leaves it at the end.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace kvbm::benchmark {

class SlowLoopback {
 public:
  // not_permitted without the right to make namespaces, unsupported without `tc`.
  static Result<std::unique_ptr<SlowLoopback>> make();
  ~SlowLoopback();
  SlowLoopback(const SlowLoopback&) = delete;
  SlowLoopback& operator=(const SlowLoopback&) = delete;
  // 0: as fast as it is.
  Status limit(uint32_t megabits_per_s);

 private:
  explicit SlowLoopback(int before) : before_(before) {}
  const int before_;  // the namespace that the thread came from
};

}  // namespace kvbm::benchmark
