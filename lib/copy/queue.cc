#include "copy/queue.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace kvbm::copy {

Result<std::shared_ptr<Queue>> Queue::create(uint32_t depth) {
  if (depth == 0 || depth > kMaxDepth) return Status(Code::invalid_argument, "a queue's depth is 1 to 65,536");
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) return Status(Code::no_memory, "no file descriptor for the queue (see ulimit -n)");
  return std::shared_ptr<Queue>(new Queue(depth, fd));
}

Queue::Queue(uint32_t depth, int fd) : fd_(fd), ring_(depth) {}

Queue::~Queue() { close(fd_); }

bool Queue::reserve() noexcept {
  MutexLock lock(mutex_);
  if (taken_ == ring_.size()) return false;
  ++taken_;
  return true;
}

void Queue::unreserve() noexcept {
  MutexLock lock(mutex_);
  --taken_;
}

void Queue::signal() noexcept {
  const uint64_t one = 1;
  if (write(fd_, &one, sizeof one) == sizeof one) signalled_ = true;
}

void Queue::settle() noexcept {
  if (!signalled_ || waiting_ != 0 || !events_.empty()) return;
  uint64_t value = 0;
  // EAGAIN is impossible while signalled_; whatever it returns, the descriptor is clear after it.
  [[maybe_unused]] const ssize_t n = read(fd_, &value, sizeof value);
  signalled_ = false;
}

void Queue::push(const Completion& completion) noexcept {
  MutexLock lock(mutex_);
  ring_[(head_ + waiting_) % ring_.size()] = completion;
  if (waiting_++ == 0) signal();
  arrived_.notify_one();
}

void Queue::push_events(std::span<const Event> events) {
  if (events.empty()) return;
  MutexLock lock(mutex_);
  const bool first = events_.empty();
  for (const Event& event : events) {
    if (events_.size() == kMaxEvents) events_.pop_front();
    events_.push_back(event);
  }
  if (first) signal();
}

size_t Queue::take(std::span<Completion> out) noexcept {
  const size_t n = std::min(out.size(), waiting_);
  for (size_t i = 0; i < n; ++i) out[i] = ring_[(head_ + i) % ring_.size()];
  head_ = (head_ + n) % ring_.size();
  waiting_ -= n;
  taken_ -= n;
  settle();
  return n;
}

size_t Queue::poll(std::span<Completion> out) noexcept {
  MutexLock lock(mutex_);
  return take(out);
}

size_t Queue::wait(std::span<Completion> out, uint64_t timeout_ns) noexcept {
  const SystemClock clock;
  const uint64_t deadline = deadline_after(clock, timeout_ns);
  MutexLock lock(mutex_);
  for (;;) {
    const size_t n = take(out);
    if (n != 0 || out.empty()) return n;
    if (deadline == kNever) {
      arrived_.wait(mutex_);
      continue;
    }
    const uint64_t now = clock.now_ns();
    if (now >= deadline) return 0;
    // An hour at a time: a far deadline must not overflow the standard library's clock.
    arrived_.wait_for(mutex_, std::chrono::nanoseconds(std::min<uint64_t>(deadline - now, 3'600'000'000'000ULL)));
  }
}

size_t Queue::poll_events(std::span<Event> out) noexcept {
  MutexLock lock(mutex_);
  const size_t n = std::min(out.size(), events_.size());
  std::copy_n(events_.begin(), n, out.begin());
  events_.erase(events_.begin(), events_.begin() + static_cast<std::ptrdiff_t>(n));
  settle();
  return n;
}

}  // namespace kvbm::copy
