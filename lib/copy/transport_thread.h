// A transport and the thread that drives it. Also an Executor, so that a state machine written against one is driven
// together with the transport, and may use it without a lock.
//
// One thread drives at a time. That is the transport's own, named kvbm-<name>, with every signal blocked, or a helper:
// a thread that waits for a result and drives meanwhile (help_until), which saves two thread switches per answer. The
// driver runs tasks in the order posted, timers when due, and the listener's calls in Transport::progress(). It sleeps
// in ppoll(2) while there is nothing to do. While a thread helps, and for up to kAsideNs after the last one, the
// transport's own thread stands aside.
//
// The destructor runs tasks posted before it, closes the transport (so every listener's call is made), runs tasks that
// these calls posted, drops timers that are not due, and joins. No thread may be helping, and it must not run inside a
// task.
//
// Lock: mutex_, a leaf; no task, listener's call or `done` runs under it. Invariant: driving_ is true while a thread is
// in turn(), and only that thread touches transport_, transport_ready_ and looked_ns_.
// Budget: post() takes 100 ns while the driver is awake, a write to an eventfd more when it sleeps. In a steady load,
// callables of up to 48 bytes need no allocation.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <string_view>

#include "base/thread/executor.h"
#include "base/thread/mutex.h"
#include "base/thread/task_queue.h"
#include "copy/transport.h"

namespace kvbm::copy {

class TransportThread final : public Executor {
 public:
  static Result<std::unique_ptr<TransportThread>> create(std::string_view name, const kvbm_transport_ops_t& ops,
                                                         const TransportOptions& options, TransportListener& listener,
                                                         const Log* log = nullptr);
  ~TransportThread() override;
  TransportThread(const TransportThread&) = delete;
  TransportThread& operator=(const TransportThread&) = delete;

  void post(Task task) override;
  void post_at(uint64_t when_ns, Task task) override;
  // Posts the task and waits until it has run. Never on this thread, or while driving it.
  void post_and_wait(Task task);
  [[nodiscard]] const Clock& clock() const noexcept override { return clock_; }

  // Drives until `done()` or the deadline; returns the last value of `done()`. It is called first, and again whenever
  // something may have happened. While another thread drives, this one waits for its turn and calls `done` now and
  // then.
  // Thread: any that is not driving: not inside a task or a listener's call.
  bool help_until(UniqueFunction<bool()> done, uint64_t deadline_ns = kNever);
  // Like help_until(), but runs `first` as the driver before: as if it had been posted, without waking a thread.
  // `first` is dropped if the turn does not come before the deadline; `done` counts as false until it has run.
  bool help_until(Task first, UniqueFunction<bool()> done, uint64_t deadline_ns = kNever);

  // Runs one round without sleeping, unless another thread drives.
  void help_once();
  // Makes helpers call their `done` again, soon. Thread: any.
  void nudge();

  // While it exists, posts of this thread wake no other: the thread is about to help, and will run them. Tasks left at
  // the end are run by other threads.
  class AboutToHelp {
   public:
    explicit AboutToHelp(TransportThread& thread) noexcept;
    ~AboutToHelp();
    AboutToHelp(const AboutToHelp&) = delete;
    AboutToHelp& operator=(const AboutToHelp&) = delete;

   private:
    TransportThread* const before_;
  };

  // Thread: the driver's, in tasks and in the listener's calls.
  [[nodiscard]] Transport& transport() noexcept { return *transport_; }

 private:
  // How long the own thread stands aside after the last helper, at first and at most: the next helper usually comes
  // sooner. Unsolicited messages of a peer may be noticed that late.
  static constexpr uint64_t kFirstAsideNs = 100'000;
  static constexpr uint64_t kAsideNs = 400'000;
  // A helper that was seen to last this long wakes the own thread at its end.
  static constexpr uint64_t kLongHelpNs = 3'200'000;

  // A helper spins for an answer before it sleeps, at most for kSpinNs. Each failure halves that time. Below
  // kShortestSpinNs the helper sleeps about kUnspun times before it spins again.
  static constexpr uint64_t kSpinNs = 60'000;
  static constexpr uint64_t kShortestSpinNs = 8'000;
  static constexpr uint32_t kUnspun = 64;

  TransportThread() = default;
  static void* entry(void* self);
  void work();
  bool take_turn();
  bool give_turn(uint64_t& within);
  void stand_aside() KVBM_REQUIRES(mutex_);
  bool drive_until(UniqueFunction<bool()>& done, uint64_t deadline_ns);
  bool wait_for_turn(UniqueFunction<bool()>& done, uint64_t deadline_ns, bool& is_done);
  bool others_wait();
  bool spin(UniqueFunction<bool()>& done);
  void leave();
  uint64_t turn();
  void run_tasks(bool all);
  bool next_task(Task& task);
  bool fall_asleep(uint64_t& within) KVBM_REQUIRES(mutex_);
  bool doze(uint64_t within, bool& event) const;
  void after_doze(bool transport, bool event);
  // Returns true if event_ must be written after the lock is released.
  bool take_sleep() KVBM_REQUIRES(mutex_);
  void notify_waiting() KVBM_REQUIRES(mutex_);
  void call_back() KVBM_REQUIRES(mutex_);
  void wake_for_posted();
  void wake() const noexcept;

  SystemClock clock_;
  std::unique_ptr<Transport> transport_;
  bool transport_ready_ = true;  // progress() has work, or may have
  uint64_t looked_ns_ = 0;       // last check whether it has
  uint64_t spin_ns_ = kSpinNs;
  uint32_t unspun_ = 0;  // sleeps since spinning was given up
  int event_ = -1;       // wakes the driver
  pthread_t thread_{};
  bool started_ = false;
  Mutex mutex_;
  std::condition_variable turn_;  // for helpers that wait for their turn
  std::condition_variable back_;  // for the own thread while it stands aside
  TaskRing ready_ KVBM_GUARDED_BY(mutex_);
  TimerHeap timers_ KVBM_GUARDED_BY(mutex_);
  bool driving_ KVBM_GUARDED_BY(mutex_) = false;
  bool aside_ KVBM_GUARDED_BY(mutex_) = false;     // the own thread
  bool called_ KVBM_GUARDED_BY(mutex_) = false;    // the own thread returns only when it is woken
  uint64_t aside_ns_ KVBM_GUARDED_BY(mutex_) = 0;  // how long it stands aside this time
  uint64_t helps_ KVBM_GUARDED_BY(mutex_) = 0;     // turns that helpers took
  uint64_t seen_ KVBM_GUARDED_BY(mutex_) = 0;      // helps_ when the own thread last looked
  uint32_t waiting_ KVBM_GUARDED_BY(mutex_) = 0;   // helpers that wait for their turn
  uint64_t notified_ KVBM_GUARDED_BY(mutex_) = 0;  // number of times that these were notified
  bool nudged_ KVBM_GUARDED_BY(mutex_) = false;    // the driver must check again before it sleeps
  // The driver, or the last one, sleeps, and no thread has undertaken to wake it.
  bool asleep_ KVBM_GUARDED_BY(mutex_) = false;
  bool stopping_ KVBM_GUARDED_BY(mutex_) = false;
};

}  // namespace kvbm::copy
