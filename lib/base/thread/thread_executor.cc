#include "base/thread/thread_executor.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>

#include "base/thread/memory_wait.h"

namespace kvbm {

namespace {

// A condition variable works on the std::mutex that a held Mutex wraps; ownership stays with the caller.
template <class Wait>
void with_native(Mutex& mutex, Wait&& wait) {
  std::unique_lock<std::mutex> lock(mutex.native(), std::adopt_lock);
  wait(lock);
  lock.release();
}

}  // namespace

Status start_thread(pthread_t& out, const std::string& name, void* (*entry)(void*), void* argument) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // a new thread inherits the mask
  const int error = pthread_create(&out, nullptr, entry, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return Status(Code::no_memory, "the system refused a thread", std::strerror(error));
  pthread_setname_np(out, name.c_str());
  return {};
}

Result<std::unique_ptr<ThreadExecutor>> ThreadExecutor::create(std::string_view name, uint32_t threads) {
  if (threads == 0) return Status(Code::invalid_argument, "a pool needs at least one thread");
  std::unique_ptr<ThreadExecutor> pool(new ThreadExecutor);
  pool->threads_.reserve(threads);
  for (uint32_t i = 0; i < threads; ++i) {
    const std::string number = std::to_string(i);
    std::string full = "kvbm-";
    full.append(name);
    full.resize(std::min(full.size(), 14 - number.size()));
    full.append("-").append(number);
    pthread_t thread;
    if (Status s = start_thread(thread, full, &ThreadExecutor::entry, pool.get()); !s.ok()) return s;
    pool->threads_.push_back(thread);
  }
  return pool;
}

ThreadExecutor::~ThreadExecutor() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    work_.notify_all();
    timer_.notify_all();
  }
  for (pthread_t thread : threads_) pthread_join(thread, nullptr);
}

bool ThreadExecutor::is_current() const noexcept {
  return std::any_of(threads_.begin(), threads_.end(),
                     [](pthread_t thread) { return pthread_equal(thread, pthread_self()) != 0; });
}

void* ThreadExecutor::entry(void* self) {
  static_cast<ThreadExecutor*>(self)->work();
  return nullptr;
}

void ThreadExecutor::work() {
  const MemoryWait patient;
  while (Task task = next()) task();
}

// Returns the next task, or none when the pool ends.
Task ThreadExecutor::next() {
  MutexLock lock(mutex_);
  for (;;) {
    if (!timers_.empty() && !stopping_) move_due();
    if (!ready_.empty()) {
      Task task = ready_.pop();
      // A thread that stops watching the timers passes the watch to a sleeper, if there is one.
      if (!timers_.empty() && !watching_ && idle_ > waking_) wake_one();
      return task;
    }
    if (stopping_) return {};
    sleep();
  }
}

void ThreadExecutor::move_due() {
  const uint64_t now = clock_.now_ns();
  while (timers_.first_ns() <= now) {
    ready_.push(timers_.pop());
    if (ready_.size() > 1) wake_one();  // this thread takes the first one
  }
}

void ThreadExecutor::sleep() {
  if (!timers_.empty() && !watching_) {
    watching_ = true;
    const uint64_t now = clock_.now_ns();
    const uint64_t first = timers_.first_ns();
    // An hour at most, so that the sum below cannot overflow; the loop then sleeps again.
    const uint64_t wait = first > now ? std::min<uint64_t>(first - now, 3'600'000'000'000ULL) : 0;
    with_native(mutex_, [&](auto& lock) { timer_.wait_for(lock, std::chrono::nanoseconds(wait)); });
    watching_ = false;
    watch_notified_ = false;
    return;
  }
  ++idle_;
  with_native(mutex_, [&](auto& lock) { work_.wait(lock); });
  --idle_;
  if (waking_ > 0) --waking_;
}

// Notifies a sleeper that was not notified yet. While tasks are posted faster than a thread wakes
// up, this costs one futex call for all of them.
void ThreadExecutor::wake_one() {
  if (idle_ > waking_) {
    ++waking_;
    work_.notify_one();
  } else if (watching_ && !watch_notified_) {
    watch_notified_ = true;
    timer_.notify_one();
  }
}

void ThreadExecutor::post(Task task) {
  MutexLock lock(mutex_);
  ready_.push(std::move(task));
  wake_one();
}

void ThreadExecutor::post_at(uint64_t when_ns, Task task) {
  MutexLock lock(mutex_);
  const bool first = when_ns < timers_.first_ns();
  timers_.push(when_ns, std::move(task));
  if (!first) return;
  if (watching_) {
    watch_notified_ = true;
    timer_.notify_one();
  } else {
    wake_one();
  }
}

}  // namespace kvbm
