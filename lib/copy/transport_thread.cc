#include "copy/transport_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>

#include "base/errno_status.h"
#include "base/thread/awaited.h"
#include "base/thread/memory_wait.h"
#include "base/thread/thread_executor.h"

namespace kvbm::copy {

namespace {

// Most tasks that run before the transport gets its turn.
constexpr size_t kTurn = 64;
// An hour at most, so that no sum overflows; the loop then sleeps again.
constexpr uint64_t kLongestSleepNs = 3'600'000'000'000ULL;
// Length that Linux keeps of a thread's name, without its terminator.
constexpr size_t kNameBytes = 15;

// The TransportThread that this thread is about to help.
thread_local TransportThread* about_to_help = nullptr;

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
      back_.notify_one();
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

// --- driving

void TransportThread::work() {
  const MemoryWait patient;
  bool transport = false;
  bool event = false;
  for (;;) {
    if (!take_turn()) break;
    after_doze(transport, event);
    transport = event = false;
    uint64_t within = turn();
    // A steady flow of tasks must not keep the sockets waiting.
    transport = give_turn(within) ? doze(within, event) : true;
  }
  run_tasks(true);
  transport_->close();
  run_tasks(true);
}

// Returns false at the end.
bool TransportThread::take_turn() {
  MutexLock lock(mutex_);
  while (!stopping_ && (driving_ || waiting_ != 0 || helps_ != seen_)) stand_aside();
  aside_ = false;
  aside_ns_ = 0;
  asleep_ = false;
  if (stopping_) return false;
  driving_ = true;
  return true;
}

// During short helps in a row this thread checks now and then whether there are more: waking it would cost each helper
// a wake-up. A long help wakes it at its end.
void TransportThread::stand_aside() {
  called_ = driving_ && helps_ == seen_ && aside_ns_ >= kLongHelpNs;
  const uint64_t most = driving_ && helps_ == seen_ ? kLongHelpNs : kAsideNs;
  aside_ns_ = std::min(std::max(2 * aside_ns_, kFirstAsideNs), most);
  seen_ = helps_;
  aside_ = true;
  std::unique_lock<std::mutex> lock(mutex_.native(), std::adopt_lock);
  if (called_) {
    back_.wait(lock);
  } else {
    back_.wait_for(lock, std::chrono::nanoseconds(aside_ns_));
  }
  called_ = false;
  lock.release();
}

// The own thread sleeps without the turn, so that a helper can take it. True: it may sleep for `within` at most.
bool TransportThread::give_turn(uint64_t& within) {
  MutexLock lock(mutex_);
  driving_ = false;
  nudged_ = false;
  notify_waiting();
  return waiting_ == 0 && within != 0 && !stopping_ && fall_asleep(within);
}

// Runs one round; returns how long the thread may sleep, 0 when there is more to do.
uint64_t TransportThread::turn() {
  run_tasks(false);
  // After a task that used the transport, progress() has nothing to do unless arm() says so. Data in sockets is found
  // by the thread that sleeps in ppoll. If helps follow each other without a sleep while the own thread stands aside,
  // this checks every kAsideNs.
  uint64_t within = UINT64_MAX;
  const uint64_t now = clock_.now_ns();
  if (transport_ready_ || now - std::min(now, looked_ns_) >= kAsideNs || transport_->arm(within) != Code::ok) {
    looked_ns_ = now;
    transport_ready_ = transport_->progress() || transport_->arm(within) != Code::ok;
  }
  return transport_ready_ ? 0 : within;
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

// Returns false if there is work instead.
bool TransportThread::fall_asleep(uint64_t& within) {
  if (!ready_.empty()) return false;
  if (!timers_.empty()) {
    const uint64_t now = clock_.now_ns();
    const uint64_t first = timers_.first_ns();
    within = std::min(within, first - std::min(first, now));
  }
  asleep_ = true;
  return true;
}

// Returns true if the transport has work, or may have.
bool TransportThread::doze(uint64_t within, bool& event) const {
  within = std::min(within, kLongestSleepNs);
  const timespec timeout{static_cast<time_t>(within / 1'000'000'000), static_cast<long>(within % 1'000'000'000)};
  pollfd fds[2] = {{transport_->fd(), POLLIN, 0}, {event_, POLLIN, 0}};
  const int n = ppoll(fds, 2, &timeout, nullptr);
  event = (fds[1].revents & POLLIN) != 0;
  return n <= 0 || fds[0].revents != 0;
}

// Run by the driver when it wakes.
void TransportThread::after_doze(bool transport, bool event) {
  if (transport) transport_ready_ = true;
  looked_ns_ = clock_.now_ns();
  uint64_t count = 0;
  // A write that arrives only now just makes the next sleep short.
  if (event && read(event_, &count, sizeof count) < 0) return;
}

// --- helping

// Returns true with the turn; false if `done` was true, or the deadline passed, before.
bool TransportThread::wait_for_turn(UniqueFunction<bool()>& done, uint64_t deadline_ns, bool& is_done) {
  mutex_.lock();
  ++waiting_;
  bool late = false;
  // Tasks that this thread posted without a wake-up are for the driver.
  if (driving_ && !ready_.empty() && std::exchange(asleep_, false)) {
    mutex_.unlock();
    wake();
    mutex_.lock();
  }
  // Calls `done` once more before the first wait: events since the caller's own call were notified to earlier waiters
  // only.
  uint64_t notified = notified_ - 1;
  while (driving_ && !is_done && !late) {
    if (notified == notified_) {
      std::unique_lock<std::mutex> lock(mutex_.native(), std::adopt_lock);
      const uint64_t now = clock_.now_ns();
      const uint64_t rest = std::min(deadline_ns - std::min(deadline_ns, now), kLongestSleepNs);
      turn_.wait_for(lock, std::chrono::nanoseconds(rest));
      lock.release();
    }
    notified = notified_;
    mutex_.unlock();
    is_done = done();
    late = clock_.now_ns() >= deadline_ns;
    mutex_.lock();
  }
  --waiting_;
  const bool mine = !driving_;
  if (mine) {
    ++helps_;
    driving_ = true;
    asleep_ = false;
  }
  mutex_.unlock();
  return mine;
}

bool TransportThread::help_until(UniqueFunction<bool()> done, uint64_t deadline_ns) {
  const MemoryWait patient;  // this thread drives links, with work that belongs to other operations as well
  bool is_done = done();
  if (is_done || !wait_for_turn(done, deadline_ns, is_done)) return is_done;
  is_done = is_done || drive_until(done, deadline_ns);
  leave();
  return is_done;
}

void TransportThread::notify_waiting() {
  if (waiting_ == 0) return;
  ++notified_;
  turn_.notify_all();
}

bool TransportThread::help_until(Task first, UniqueFunction<bool()> done, uint64_t deadline_ns) {
  const MemoryWait patient;
  UniqueFunction<bool()> not_yet([] { return false; });
  bool is_done = false;
  if (!wait_for_turn(not_yet, deadline_ns, is_done)) return false;
  first();
  is_done = drive_until(done, deadline_ns);
  leave();
  return is_done;
}

void TransportThread::help_once() {
  const MemoryWait patient;
  {
    MutexLock lock(mutex_);
    if (driving_) return;
    ++helps_;
    driving_ = true;
    asleep_ = false;
  }
  transport_ready_ = true;
  (void)turn();
  leave();
}

bool TransportThread::others_wait() {
  MutexLock lock(mutex_);
  return waiting_ != 0;
}

// Polls for a moment: an answer from a near node arrives sooner than a sleeping thread wakes up. If that fails, because
// the answer takes longer or its sender needs this processor, spinning stops for a while.
bool TransportThread::spin(UniqueFunction<bool()>& done) {
  if (transport_->unfinished() == 0 || others_wait()) return false;
  if (spin_ns_ < kShortestSpinNs) {
    if (++unspun_ < kUnspun) return false;
    unspun_ = 0;
    spin_ns_ = kSpinNs;
  }
  const uint64_t until = clock_.now_ns() + spin_ns_;
  do {
    transport_ready_ = transport_->progress();
    if (done()) {
      spin_ns_ = kSpinNs;
      return true;
    }
  } while (clock_.now_ns() < until);
  spin_ns_ /= 2;
  return false;
}

bool TransportThread::drive_until(UniqueFunction<bool()>& done, uint64_t deadline_ns) {
  bool is_done = false;
  while (!is_done && clock_.now_ns() < deadline_ns) {
    uint64_t within = turn();
    is_done = done() || (within != 0 && spin(done));
    bool sleeps = false;
    bool nudged = false;
    {
      MutexLock lock(mutex_);
      notify_waiting();
      nudged = std::exchange(nudged_, false);
      sleeps = !is_done && !nudged && within != 0 && fall_asleep(within);
    }
    if (is_done) break;
    if (!sleeps) {
      transport_ready_ = transport_ready_ || !nudged;
      continue;
    }
    const uint64_t now = clock_.now_ns();
    bool event = false;
    const bool transport = doze(std::min(within, deadline_ns - std::min(deadline_ns, now)), event);
    {
      MutexLock lock(mutex_);
      asleep_ = false;
    }
    after_doze(transport, event);
  }
  return is_done;
}

// Data in sockets is found by the next driver's sleep, and ended operations by its arm().
void TransportThread::leave() {
  bool watches = false;
  {
    MutexLock lock(mutex_);
    driving_ = false;
    if (waiting_ != 0) {
      notify_waiting();
    } else if (called_) {
      back_.notify_one();
    } else if (aside_ && !ready_.empty() && about_to_help != this) {
      call_back();
    } else {
      watches = !aside_;
    }
  }
  if (watches) wake();  // a timer set meanwhile may be due before the own thread would wake
}

TransportThread::AboutToHelp::AboutToHelp(TransportThread& thread) noexcept
    : before_(std::exchange(about_to_help, &thread)) {}

TransportThread::AboutToHelp::~AboutToHelp() { std::exchange(about_to_help, before_)->wake_for_posted(); }

void TransportThread::wake_for_posted() {
  bool slept = false;
  {
    MutexLock lock(mutex_);
    slept = !ready_.empty() && take_sleep();
  }
  if (slept) wake();
}

// --- waking

void TransportThread::nudge() {
  bool slept = false;
  {
    MutexLock lock(mutex_);
    if (!driving_) return;  // a thread that waits for its turn takes it now, and calls `done`
    nudged_ = true;
    notify_waiting();
    slept = std::exchange(asleep_, false);
  }
  if (slept) wake();
}

// One write is enough for all tasks posted until the thread is awake.
bool TransportThread::take_sleep() {
  call_back();
  return std::exchange(asleep_, false);
}

// While no thread drives and the own thread stands aside, posted tasks do not wait for its next check.
void TransportThread::call_back() {
  if (!aside_ || driving_ || waiting_ != 0) return;
  seen_ = helps_;
  back_.notify_one();
}

void TransportThread::wake() const noexcept {
  const uint64_t one = 1;
  if (write(event_, &one, sizeof one) < 0) return;  // a full eventfd is readable all the same
}

void TransportThread::post(Task task) {
  bool slept = false;
  {
    MutexLock lock(mutex_);
    ready_.push(std::move(task));
    slept = about_to_help != this && take_sleep();
  }
  if (slept) wake();
}

void TransportThread::post_and_wait(Task task) {
  Awaited<bool> turned;
  post([&] {
    task();
    turned.give(true);
  });
  // This thread waits without helping: tasks that it posted without a wake-up are for other threads.
  if (about_to_help == this) wake_for_posted();
  turned.wait();
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
