#include "support/inline_executor.h"

#include <algorithm>
#include <chrono>

namespace kvbm::test {

void InlineExecutor::post(Task task) {
  MutexLock lock(mutex_);
  ready_.push(std::move(task));
  if (waiting_ > 0) changed_.notify_one();
}

void InlineExecutor::post_at(uint64_t when_ns, Task task) {
  MutexLock lock(mutex_);
  timers_.push(when_ns, std::move(task));
  if (waiting_ > 0) changed_.notify_all();  // each sleeper's timeout may be too long now
}

void InlineExecutor::move_due() {
  if (timers_.empty()) return;
  const uint64_t now = clock_.now_ns();
  while (timers_.first_ns() <= now) ready_.push(timers_.pop());
}

// A task that ended may have made another driver's predicate true.
void InlineExecutor::ran() {
  MutexLock lock(mutex_);
  ++runs_;
  if (waiting_ > 0) changed_.notify_all();
}

// Returns the next task; none when the deadline passed or more than `seen` tasks have ended.
Task InlineExecutor::take(uint64_t deadline_ns, uint64_t seen, bool& expired) {
  MutexLock lock(mutex_);
  for (;;) {
    move_due();
    if (!ready_.empty()) return ready_.pop();
    if (runs_ != seen) return {};
    const uint64_t now = clock_.now_ns();
    if (now >= deadline_ns) {
      expired = true;
      return {};
    }
    const uint64_t until = std::min(deadline_ns, timers_.first_ns());
    const auto wait = std::chrono::nanoseconds(std::min<uint64_t>(until - now, 3'600'000'000'000ULL));
    ++waiting_;
    std::unique_lock<std::mutex> native(mutex_.native(), std::adopt_lock);
    if (until > now) changed_.wait_for(native, wait);
    native.release();
    --waiting_;
  }
}

bool InlineExecutor::run_until(UniqueFunction<bool()> done, uint64_t deadline_ns) {
  for (;;) {
    uint64_t seen = 0;
    {
      MutexLock lock(mutex_);
      seen = runs_;
    }
    if (done()) return true;
    bool expired = false;
    Task task = take(deadline_ns, seen, expired);
    if (task) {
      task();
      ran();
    } else if (expired) {
      return done();
    }
  }
}

}  // namespace kvbm::test
