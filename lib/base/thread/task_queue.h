// The containers of executors: a ring of tasks, first in first out, and a heap of timers.
// Neither locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/function.h"
#include "base/ring.h"

namespace kvbm {

using Task = UniqueFunction<void()>;

using TaskRing = Ring<Task>;

// Timers with equal times come out in the order in which they were set.
class TimerHeap {
 public:
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  // Time of the first one; kNever if there is none.
  [[nodiscard]] uint64_t first_ns() const noexcept { return heap_.empty() ? kNever : heap_.front().when_ns; }

  void push(uint64_t when_ns, Task task) {
    heap_.push_back({when_ns, next_++, std::move(task)});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  // The heap must not be empty.
  Task pop() noexcept {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Task task = std::move(heap_.back().task);
    heap_.pop_back();
    return task;
  }

 private:
  struct Timer {
    uint64_t when_ns;
    uint64_t order;
    Task task;
  };
  static bool later(const Timer& a, const Timer& b) noexcept {
    return a.when_ns != b.when_ns ? a.when_ns > b.when_ns : a.order > b.order;
  }

  std::vector<Timer> heap_;
  uint64_t next_ = 0;
};

}  // namespace kvbm
