#include "copy/transport_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/errno_status.h"
#include "base/thread_executor.h"

namespace kvbm::copy {

namespace {

// Tasks that run before the transport gets its turn.
constexpr size_t kTurn = 64;
// An hour at most, so that no sum overflows; the loop then sleeps again.
constexpr uint64_t kLongestSleepNs = 3'600'000'000'000ULL;
// What Linux keeps of a thread's name, without its end.
constexpr size_t kNameBytes = 15;

}  // namespace

Result<std::unique_ptr<TransportThread>> TransportThread::create(std::string_view name, const kvbm_transport_ops_t& ops,
                                                                 const TransportOptions& options,
                                                                 TransportListener& listener, const Log* log) {
  std::unique_ptr<TransportThread> out(new TransportThread);
  auto transport = Transport::open(ops, options, listener, log);
  if (!transport.ok()) return transport.status();
  out->transport_ = std::move(transport).value();
  out->event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (out->event_ < 0) return errno_status(errno, "the system refused a descriptor", "eventfd");
  const std::string full = ("kvbm-" + std::string(name)).substr(0, kNameBytes);
  if (Status s = start_thread(out->thread_, full, &TransportThread::entry, out.get()); !s.ok()) return s;
  out->started_ = true;
  return out;
}

TransportThread::~TransportThread() {
  if (started_) {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake();
    pthread_join(thread_, nullptr);
  }
  if (event_ >= 0) close(event_);
}

void* TransportThread::entry(void* self) {
  static_cast<TransportThread*>(self)->work();
  return nullptr;
}

void TransportThread::work() {
  for (;;) {
    run_tasks(false);
    const bool more = transport_->progress();
    {
      MutexLock lock(mutex_);
      if (stopping_) break;
    }
    if (!more) sleep();
  }
  run_tasks(true);
  transport_->close();
  run_tasks(true);
}

bool TransportThread::next_task(Task& task) {
  MutexLock lock(mutex_);
  if (!timers_.empty() && !stopping_) {
    const uint64_t now = clock_.now_ns();
    while (timers_.first_ns() <= now) ready_.push(timers_.pop());
  }
  if (ready_.empty()) return false;
  task = ready_.pop();
  return true;
}

void TransportThread::run_tasks(bool all) {
  for (size_t n = 0; all || n < kTurn; ++n) {
    Task task;
    if (!next_task(task)) return;
    task();
  }
}

void TransportThread::sleep() {
  uint64_t within = UINT64_MAX;
  if (transport_->arm(within) != Code::ok) return;
  {
    MutexLock lock(mutex_);
    if (!ready_.empty() || stopping_) return;
    if (!timers_.empty()) {
      const uint64_t now = clock_.now_ns();
      const uint64_t first = timers_.first_ns();
      within = std::min(within, first > now ? first - now : 0);
    }
    asleep_ = true;
  }
  within = std::min(within, kLongestSleepNs);
  const timespec timeout{static_cast<time_t>(within / 1'000'000'000), static_cast<long>(within % 1'000'000'000)};
  pollfd fds[2] = {{transport_->fd(), POLLIN, 0}, {event_, POLLIN, 0}};
  ppoll(fds, 2, &timeout, nullptr);
  {
    MutexLock lock(mutex_);
    asleep_ = false;
  }
  uint64_t count = 0;
  // A write that comes only now makes the next sleep short, no more.
  if ((fds[1].revents & POLLIN) != 0 && read(event_, &count, sizeof count) < 0) return;
}

// One write wakes for all that is posted until the thread is awake.
bool TransportThread::take_sleep() { return std::exchange(asleep_, false); }

void TransportThread::wake() const noexcept {
  const uint64_t one = 1;
  if (write(event_, &one, sizeof one) < 0) return;  // a full eventfd is readable all the same
}

void TransportThread::post(Task task) {
  bool slept = false;
  {
    MutexLock lock(mutex_);
    ready_.push(std::move(task));
    slept = take_sleep();
  }
  if (slept) wake();
}

void TransportThread::post_at(uint64_t when_ns, Task task) {
  bool slept = false;
  {
    MutexLock lock(mutex_);
    slept = when_ns < timers_.first_ns() && take_sleep();
    timers_.push(when_ns, std::move(task));
  }
  if (slept) wake();
}

}  // namespace kvbm::copy
