#include "device/driver/driver_watch.h"

#include <unistd.h>

#include <chrono>
#include <mutex>
#include <utility>

#include "base/thread/memory_wait.h"
#include "base/thread/thread_executor.h"

namespace kvbm::device {

namespace {

// Number of times that the watch looks at a call within its limit. The words are raised at look kRaiseAt. The device is
// given up at look kGiveUpAt, one before the limit, so that this is never late.
constexpr uint64_t kLooks = 8;
constexpr uint64_t kRaiseAt = 5;
constexpr uint64_t kGiveUpAt = 7;

thread_local DriverCall* innermost = nullptr;

uint64_t now_ns() noexcept { return SystemClock().now_ns(); }

[[noreturn]] void stay() noexcept {
  for (;;) (void)::pause();
}

void wait_for(Mutex& mutex, std::condition_variable& changed, uint64_t ns) {
  std::unique_lock<std::mutex> lock(mutex.native(), std::adopt_lock);
  changed.wait_for(lock, std::chrono::nanoseconds(ns));
  lock.release();
}

}  // namespace

// ---- DriverCall ----

DriverCall::DriverCall(DriverWatch* watch, Late late) noexcept
    : watch_(watch != nullptr && watch->started_ ? watch : nullptr), outer_(innermost), late_(late), since_(now_ns()) {
  innermost = this;
  if (watch_ != nullptr) watch_->enter(*this);
}

DriverCall::~DriverCall() {
  if (watch_ != nullptr) watch_->leave(*this);
  innermost = outer_;
  alive();
}

void DriverCall::alive(uint64_t more_ns) noexcept {
  if (innermost == nullptr) return;
  const uint64_t now = now_ns() + more_ns;
  for (DriverCall* call = innermost; call != nullptr; call = call->outer_) {
    call->since_.store(now, std::memory_order_relaxed);
    if (call->left_.load(std::memory_order_acquire)) stay();  // partner: call_beside
  }
}

DriverCall* DriverCall::current() noexcept { return innermost; }

int64_t DriverCall::silent_ns(uint64_t now) const noexcept {
  return static_cast<int64_t>(now - since_.load(std::memory_order_relaxed));
}

DriverCall::Helper::Helper(DriverCall* call) noexcept : before_(innermost) { innermost = call; }
DriverCall::Helper::~Helper() {
  DriverCall::alive();
  innermost = before_;
}

// ---- DriverWatch ----

Status DriverWatch::start() {
  if (limit_ns_ == kNever) return {};
  auto* const self = new std::shared_ptr<DriverWatch>(shared_from_this());
  if (Status s = start_thread(thread_, "kvbm-watch", &DriverWatch::entry, self); !s.ok()) {
    delete self;
    return s;
  }
  started_ = true;
  return {};
}

void DriverWatch::stop() noexcept {
  if (!std::exchange(started_, false) || fork_guard_.forked()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  // A listener, running on this thread, may hold the last reference to the device.
  if (pthread_equal(pthread_self(), thread_) != 0) {
    pthread_detach(thread_);
  } else {
    pthread_join(thread_, nullptr);
  }
}

void DriverWatch::add(Listener listener) {
  MutexLock lock(mutex_);
  listeners_.push_back(std::make_shared<Listener>(std::move(listener)));
}

void DriverWatch::enter(DriverCall& call) noexcept {
  MutexLock lock(mutex_);
  call.next_ = calls_;
  if (calls_ != nullptr) calls_->before_ = &call;
  calls_ = &call;
  used_ = true;
  if (!std::exchange(sleeping_, false)) return;
  changed_.notify_all();
}

void DriverWatch::leave(DriverCall& call) noexcept {
  MutexLock lock(mutex_);
  (call.before_ != nullptr ? call.before_->next_ : calls_) = call.next_;
  if (call.next_ != nullptr) call.next_->before_ = call.before_;
}

void* DriverWatch::entry(void* self) {
  const MemoryWait patient;
  const std::unique_ptr<std::shared_ptr<DriverWatch>> watch(static_cast<std::shared_ptr<DriverWatch>*>(self));
  (*watch)->run();
  return nullptr;
}

void DriverWatch::look(bool& raise, bool& give_up) {
  const uint64_t now = now_ns();
  for (DriverCall* call = calls_; call != nullptr; call = call->next_) {
    const int64_t silent = call->silent_ns(now);
    if (silent < static_cast<int64_t>(limit_ns_ / kLooks * kRaiseAt)) {
      call->raised_ = false;
      continue;
    }
    raise |= !std::exchange(call->raised_, true);
    const bool late = silent >= static_cast<int64_t>(limit_ns_ / kLooks * kGiveUpAt);
    give_up |= late && call->late_ == DriverCall::Late::loses;
  }
}

// Waits until a look is due, and looks once. Returns false if the watch was stopped.
bool DriverWatch::await(bool& raise, bool& give_up) {
  while (calls_ == nullptr && !std::exchange(used_, false) && !stopping_) {
    sleeping_ = true;
    std::unique_lock<std::mutex> native(mutex_.native(), std::adopt_lock);
    changed_.wait(native);
    native.release();
    sleeping_ = false;
  }
  if (!stopping_) wait_for(mutex_, changed_, limit_ns_ / kLooks);
  if (stopping_) return false;
  look(raise, give_up);
  return true;
}

void DriverWatch::run() {
  for (;;) {
    bool raise = false;
    bool give_up = false;
    std::vector<std::shared_ptr<Listener>> listeners;
    {
      MutexLock lock(mutex_);
      if (!await(raise, give_up)) return;
      if (raise || give_up) listeners = listeners_;
    }
    if (give_up) given_up_.store(true, std::memory_order_relaxed);
    for (const auto& listener : listeners) {
      {
        MutexLock lock(mutex_);
        if (stopping_) return;
      }
      if (raise) (*listener)(Step::raise);
      if (give_up) (*listener)(Step::give_up);
    }
    if (give_up) return;  // the device is lost: nothing is left to do
  }
}

// ---- Beside ----

namespace {

struct Beside {
  Mutex mutex;
  std::condition_variable changed;
  DriverCall* call KVBM_GUARDED_BY(mutex) = nullptr;  // of the thread; null before it begins and once it is over
  bool over KVBM_GUARDED_BY(mutex) = false;
  UniqueFunction<void()> work;  // the thread's
};

void* run_beside(void* argument) {
  const std::unique_ptr<std::shared_ptr<Beside>> held(static_cast<std::shared_ptr<Beside>*>(argument));
  Beside& state = **held;
  const MemoryWait patient;
  {
    DriverCall call(nullptr);
    {
      MutexLock lock(state.mutex);
      state.call = &call;
    }
    state.work();
    state.work = {};
    DriverCall::alive();
    MutexLock lock(state.mutex);
    state.call = nullptr;
  }
  MutexLock lock(state.mutex);
  state.over = true;
  state.changed.notify_all();
  return nullptr;
}

}  // namespace

bool call_beside(const char* name, uint64_t limit_ns, UniqueFunction<void()> work) {
  pthread_t thread{};
  auto state = std::make_shared<Beside>();
  state->work = std::move(work);
  auto* const held = limit_ns == kNever ? nullptr : new std::shared_ptr<Beside>(state);
  if (held == nullptr || !start_thread(thread, name, &run_beside, held).ok()) {
    delete held;
    state->work();
    return true;
  }
  bool left = false;
  {
    MutexLock lock(state->mutex);
    while (!state->over && !left) {
      wait_for(state->mutex, state->changed, limit_ns / kLooks);
      if (state->over || state->call == nullptr) continue;
      if (state->call->silent_ns(now_ns()) < static_cast<int64_t>(limit_ns / kLooks * kGiveUpAt)) continue;
      // Release: work of this thread from here on happens after the other thread's last action.
      state->call->left_.store(true, std::memory_order_release);
      left = true;
    }
  }
  if (left) {
    pthread_detach(thread);
  } else {
    pthread_join(thread, nullptr);
  }
  return !left;
}

}  // namespace kvbm::device
