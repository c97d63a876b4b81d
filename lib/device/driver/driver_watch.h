// Watches for calls of the driver that do not return.
//
// The driver has locks of its own. A thread of the engine may hold one while it waits for a stream: in a copy to
// pageable memory, cudaFree or the first launch of a kernel. If that stream waits for a word of a landmark, a call of
// ours that would raise the word waits for the lock.
// So each thread announces its calls (DriverCall; Device::Scope has one), and a thread that never calls the driver
// checks them all. For a late call it first raises words from the CPU, which frees the engine's stream and so the lock.
// If the call is still late after that, the device is given up.
//
// Sign of life: a call returned, or one that is allowed to take long begins (DriverCall::alive; Device::driver() gives
// it). Thread: any. Lock: DriverWatch::mutex_, a leaf; listeners are called without it. Budget: entering and leaving
// take the lock once each, a sign of life reads the clock.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/function.h"
#include "base/process/process.h"
#include "base/status.h"
#include "base/thread/mutex.h"

namespace kvbm::device {

class DriverWatch;

// A piece of code that calls the driver, on the stack of the thread that runs it. DriverCalls nest.
class DriverCall {
 public:
  enum class Late : uint8_t {
    loses,  // a late call loses the device in the end
    waits,  // the call also waits for something else than the driver (a disk): words are raised, no more
  };
  // `watch`: null if no watch checks the call.
  explicit DriverCall(DriverWatch* watch, Late late = Late::loses) noexcept;
  ~DriverCall();
  DriverCall(const DriverCall&) = delete;
  DriverCall& operator=(const DriverCall&) = delete;

  // Notes that this thread's last call has returned, and that the next call may take `more_ns` longer than others.
  static void alive(uint64_t more_ns = 0) noexcept;
  // Returns the innermost call of this thread, for another thread that works for it (Helper); null: none.
  static DriverCall* current() noexcept;

  // Makes this thread's signs of life count for a call of another thread, which waits for this one.
  class Helper {
   public:
    explicit Helper(DriverCall* call) noexcept;
    ~Helper();
    Helper(const Helper&) = delete;
    Helper& operator=(const Helper&) = delete;

   private:
    DriverCall* const before_;
  };

 private:
  friend class DriverWatch;
  friend bool call_beside(const char* name, uint64_t limit_ns, UniqueFunction<void()> work);
  [[nodiscard]] int64_t silent_ns(uint64_t now) const noexcept;

  DriverWatch* const watch_;
  DriverCall* const outer_;
  const Late late_;
  std::atomic<uint64_t> since_;    // time of the last sign of life; in the future for what may take longer
  std::atomic<bool> left_{false};  // its thread was left behind and does nothing more (call_beside)
  bool raised_ = false;            // guarded by the watch's lock, like the next two
  DriverCall* before_ = nullptr;
  DriverCall* next_ = nullptr;
};

class DriverWatch : public std::enable_shared_from_this<DriverWatch> {
 public:
  enum class Step : uint8_t { raise, give_up };
  using Listener = UniqueFunction<void(Step)>;

  // `limit_ns`: time within which a call that does not return has had both steps; kNever: nothing is watched.
  explicit DriverWatch(uint64_t limit_ns) : limit_ns_(limit_ns) {}
  ~DriverWatch() = default;
  DriverWatch(const DriverWatch&) = delete;
  DriverWatch& operator=(const DriverWatch&) = delete;
  // Starts the thread, kvbm-watch, which keeps this object until stop(). no_memory.
  Status start();
  // Ends the thread. No listener is called from now on, except the one that calls this.
  void stop() noexcept;
  // Adds a listener, called on the watch's thread, in the order of adding. It stays as long as this object.
  void add(Listener listener);
  [[nodiscard]] uint64_t limit_ns() const noexcept { return limit_ns_; }
  // Returns true after a call did not return within the limit: no call of the driver can be trusted to return.
  [[nodiscard]] bool has_given_up() const noexcept { return given_up_.load(std::memory_order_relaxed); }

 private:
  friend class DriverCall;
  void enter(DriverCall& call) noexcept;
  void leave(DriverCall& call) noexcept;
  static void* entry(void* self);
  void run() KVBM_EXCLUDES(mutex_);
  bool await(bool& raise, bool& give_up) KVBM_REQUIRES(mutex_);
  // Collects the steps that the calls under way ask for.
  void look(bool& raise, bool& give_up) KVBM_REQUIRES(mutex_);

  const uint64_t limit_ns_;
  ForkGuard fork_guard_;
  pthread_t thread_{};
  bool started_ = false;
  std::atomic<bool> given_up_{false};
  Mutex mutex_;
  std::condition_variable changed_;
  DriverCall* calls_ KVBM_GUARDED_BY(mutex_) = nullptr;
  bool used_ KVBM_GUARDED_BY(mutex_) = false;      // a call was entered since the last look
  bool sleeping_ KVBM_GUARDED_BY(mutex_) = false;  // until a call is entered
  bool stopping_ KVBM_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Listener>> listeners_ KVBM_GUARDED_BY(mutex_);
};

// Runs `work` on a thread of its own and waits for its end. Returns false if a call of the driver in it gave no sign of
// life for limit_ns. That thread is then left behind with all that `work` holds, and does nothing more when its call
// returns. With kNever, and if the system refuses a thread, `work` runs on this one.
bool call_beside(const char* name, uint64_t limit_ns, UniqueFunction<void()> work);

}  // namespace kvbm::device
