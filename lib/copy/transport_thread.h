// A transport and the thread that drives it; also an Executor, so that a state machine written against one is ticked by
// whoever drives and may use the transport without a lock.
//
// One thread drives at a time: the transport's own, named kvbm-<name>, with every signal blocked, or one that waits for
// something and drives meanwhile (help_until), which saves two changes of thread for each answer. Tasks run in the
// order posted, timers when due, listener's calls in Transport::progress(), all by the driver; it sleeps in ppoll(2)
// while there is nothing to do. While somebody helps, and for up to kAsideNs after the last one, the transport's own
// thread stands aside.
//
// The destructor runs what was posted before it, closes the transport (so every listener's call is made), runs what
// these calls posted, drops timers that are not due, and joins; nobody may be helping, and it may not run inside a
// task. Lock: mutex_, a leaf; no task, listener's call or `done` runs under it. Invariant: driving_ is true while a
// thread is in turn(), and only that thread touches transport_, transport_ready_ and looked_ns_. Budget: post()
// takes 100 ns while the driver is awake, a write to an eventfd more when it sleeps; nothing is allocated for callables
// of up to 48 bytes in a steady load.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <string_view>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/task_queue.h"
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
  // The same as post(), and waits until it has run. Never on this thread, or while driving it.
  void post_and_wait(Task task);
  [[nodiscard]] const Clock& clock() const noexcept override { return clock_; }

  // Drives until `done()` or the deadline; gives the last value of `done()`. It is asked before anything else and
  // whenever something may have happened. Where another thread is driving this one waits its turn, asking now and then.
  // Thread: any that is not driving: not inside a task or a listener's call.
  bool help_until(UniqueFunction<bool()> done, uint64_t deadline_ns = kNever);
  // The same after running `first` as the driver: what a post() before it would do, without waking anybody. `first` is
  // dropped when the turn does not come before the deadline; `done` is false until it has run.
  bool help_until(Task first, UniqueFunction<bool()> done, uint64_t deadline_ns = kNever);

  // One round without sleeping, unless another thread drives.
  void help_once();
  // Helpers ask their `done` again, soon. Thread: any.
  void nudge();

  // While it lives, what this thread posts wakes nobody: the thread is about to help, and finds it then. What it has
  // not found at the end is left to the others.
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
  // How long the own thread stands aside after a helper has gone, at first and at most: the next one usually comes
  // sooner. It is how late what a peer sends unasked may be noticed then.
  static constexpr uint64_t kFirstAsideNs = 100'000;
  static constexpr uint64_t kAsideNs = 400'000;
  // A help that lasted so long when it was looked at calls the own thread back.
  static constexpr uint64_t kLongHelpNs = 3'200'000;

  // How long a helper looks for an answer before it sleeps: at most, at least before it gives that up, and for how many
  // sleeps it does.
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
  // True: write to event_ after the lock is released.
  bool take_sleep() KVBM_REQUIRES(mutex_);
  void tell_waiting() KVBM_REQUIRES(mutex_);
  void call_back() KVBM_REQUIRES(mutex_);
  void wake_for_posted();
  void wake() const noexcept;

  SystemClock clock_;
  std::unique_ptr<Transport> transport_;
  bool transport_ready_ = true;  // progress() has something to do, or may have
  uint64_t looked_ns_ = 0;       // when somebody looked last whether it has
  uint64_t spin_ns_ = kSpinNs;
  uint32_t unspun_ = 0;  // sleeps since spinning was given up
  int event_ = -1;       // wakes the driver
  pthread_t thread_{};
  bool started_ = false;
  Mutex mutex_;
  std::condition_variable turn_;  // for helpers that wait
  std::condition_variable back_;  // for the own thread, aside
  TaskRing ready_ KVBM_GUARDED_BY(mutex_);
  TimerHeap timers_ KVBM_GUARDED_BY(mutex_);
  bool driving_ KVBM_GUARDED_BY(mutex_) = false;
  bool aside_ KVBM_GUARDED_BY(mutex_) = false;     // the own thread
  bool called_ KVBM_GUARDED_BY(mutex_) = false;    // it comes back only when it is called
  uint64_t aside_ns_ KVBM_GUARDED_BY(mutex_) = 0;  // how long it looks away, this time
  uint64_t helps_ KVBM_GUARDED_BY(mutex_) = 0;     // turns that helpers took
  uint64_t seen_ KVBM_GUARDED_BY(mutex_) = 0;      // of which the own thread knows
  uint32_t waiting_ KVBM_GUARDED_BY(mutex_) = 0;   // helpers whose turn has not come
  uint64_t told_ KVBM_GUARDED_BY(mutex_) = 0;      // how often these were told to ask again
  bool nudged_ KVBM_GUARDED_BY(mutex_) = false;    // the driver is to ask again before it sleeps
  // Whoever drives, or drove last, sleeps, and nobody has taken it upon himself to wake him.
  bool asleep_ KVBM_GUARDED_BY(mutex_) = false;
  bool stopping_ KVBM_GUARDED_BY(mutex_) = false;
};

}  // namespace kvbm::copy
