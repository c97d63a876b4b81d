// The completion queue: a bounded ring with a pollable descriptor.
//
// Invariant: reserved + in flight + waiting completions <= depth, so a completion always has room: its slot is taken at
// submit. The descriptor is readable exactly while completions or events wait. When either kind begins to wait, that is
// a change of its own, even while the other kind waits: a reader that sleeps for edges (epoll's EPOLLET) is woken for
// it.
// Lock: `mutex_`, a leaf; the eventfd is written under it (it never blocks: the counter stays <= 2).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread/mutex.h"
#include "copy/completion.h"

namespace kvbm::copy {

class Queue {
 public:
  static constexpr uint32_t kMaxDepth = 65536;
  // Most events that may wait for a slow reader before the oldest are lost.
  static constexpr size_t kMaxEvents = 65536;

  static Result<std::shared_ptr<Queue>> create(uint32_t depth);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Takes one of `depth` places; false = again. Ends with exactly one push or unreserve. Thread: any.
  bool reserve() noexcept;
  void unreserve() noexcept;
  void push(const Completion& completion) noexcept;
  void push_events(std::span<const Event> events);

  [[nodiscard]] int fd() const noexcept { return fd_; }
  size_t poll(std::span<Completion> out) noexcept;
  // Waits up to timeout_ns for the first completion; the only blocking call.
  size_t wait(std::span<Completion> out, uint64_t timeout_ns) noexcept;
  size_t poll_events(std::span<Event> out) noexcept;

 private:
  Queue(uint32_t depth, int fd);
  void signal() noexcept KVBM_REQUIRES(mutex_);
  void settle() noexcept KVBM_REQUIRES(mutex_);  // clears the descriptor when nothing waits
  size_t take(std::span<Completion> out) noexcept KVBM_REQUIRES(mutex_);

  const int fd_;
  Mutex mutex_;
  std::condition_variable_any arrived_;
  std::vector<Completion> ring_ KVBM_GUARDED_BY(mutex_);
  size_t head_ KVBM_GUARDED_BY(mutex_) = 0;
  size_t waiting_ KVBM_GUARDED_BY(mutex_) = 0;
  size_t taken_ KVBM_GUARDED_BY(mutex_) = 0;  // reserved and not yet polled
  std::deque<Event> events_ KVBM_GUARDED_BY(mutex_);
  bool signalled_ KVBM_GUARDED_BY(mutex_) = false;  // the descriptor is readable
};

}  // namespace kvbm::copy
