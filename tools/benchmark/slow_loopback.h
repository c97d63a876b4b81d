// A loopback link with limited speed, in a network namespace of the calling thread.
//
// Threads and processes that the thread makes while this exists stay in the namespace for good. The thread itself
// leaves it at the end.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"

namespace kvbm::benchmark {

class SlowLoopback {
 public:
  // Returns not_permitted without the right to make namespaces, unsupported without `tc`.
  static Result<std::unique_ptr<SlowLoopback>> make();
  ~SlowLoopback();
  SlowLoopback(const SlowLoopback&) = delete;
  SlowLoopback& operator=(const SlowLoopback&) = delete;
  // Sets the link's speed. 0: no limit.
  Status limit(uint32_t megabits_per_s);

 private:
  explicit SlowLoopback(int before) : before_(before) {}
  const int before_;  // the thread's earlier namespace
};

}  // namespace kvbm::benchmark
