// Requests to a store that may be slow, down or lying: bounded in number, each ended by its deadline, tried again where
// that can help, and refused at once while the store is in back-off.
//
// Back-off: after kFailuresToBackOff failures in a row, or one refusal of credentials or configuration, nothing is sent for
// a time that doubles from kFirstBackOff to kLongestBackOff. Then one request goes through as a probe; success ends the
// back-off. A request that is not answered in time is cancelled and its caller told; its memory stays until the store gives it
// back, and it counts as in flight until then.
//
// Lock: mutex_ is a leaf. No call of the store or of `done` is made under it. Thread: any.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/random.h"
#include "tier/store/object_store.h"
#include "tier/tier.h"

namespace kvbm::tier::store {

class Requests : public std::enable_shared_from_this<Requests> {
 public:
  // The request as it ended; null if the store has not given it back. On the executor.
  using Done = UniqueFunction<void(Code, std::unique_ptr<ObjectRequest>)>;
  static constexpr uint32_t kFailuresToBackOff = 5;
  static constexpr uint64_t kFirstBackOffNs = 1'000'000'000;
  static constexpr uint64_t kLongestBackOffNs = 30'000'000'000;
  static constexpr uint32_t kTries = 4;
  // A try that its caller gave up on after less time than this says nothing about the store.
  static constexpr uint64_t kSlowNs = 1'000'000'000;

  Requests(ObjectStore& store, Executor& executor, Random& random, uint64_t try_timeout_ns);

  // `urgent`: before those that are not. io_error at once during back-off.
  void submit(std::unique_ptr<ObjectRequest> request, uint64_t deadline_ns, bool urgent, Done done);
  // Whether the store is in back-off: what is asked of it now is refused.
  [[nodiscard]] bool backs_off() const noexcept;
  // Why it is, for people; empty if it is not.
  [[nodiscard]] std::string trouble() const;
  // Called once when a back-off begins, with its reason, and once when it ends. Before the first request.
  void on_back_off(std::function<void(bool begins, const std::string& why)> told) { told_ = std::move(told); }
  [[nodiscard]] StoreStats stats() const;
  // Nothing new is taken, what is queued ends as closed, what is in flight is cancelled. `done` on the executor, when
  // nothing is in flight any more (true), or after kCloseNs: a store that never gives some requests back (false). Their
  // callers are told, and what the store says later is not heard: the executor may be gone. Every caller's `done` has
  // returned by then.
  void shutdown(UniqueFunction<void(bool)> done);
  static constexpr uint64_t kCloseNs = 2'000'000'000;

 private:
  struct Call {
    std::unique_ptr<ObjectRequest> request;  // null while the store has it
    uint64_t id = 0;                         // of the try in flight; 0: none
    uint64_t deadline_ns = 0;
    uint64_t sent_ns = 0;  // the try in flight
    uint32_t tries = 0;
    bool urgent = false;
    bool probe = false;
    bool over = false;  // `done` was called or will be
    Done done;
  };
  using CallRef = std::shared_ptr<Call>;

  void pump();
  bool take_next(CallRef& call, uint64_t now) KVBM_REQUIRES(mutex_);
  void send(const CallRef& call);
  void finished(const CallRef& call, std::unique_ptr<ObjectRequest> request);
  void overdue(const CallRef& call, uint64_t id);
  void give_up(const CallRef& call);
  void end(const CallRef& call, Code code, std::unique_ptr<ObjectRequest> request);
  void answer(const CallRef& call, Code code, std::unique_ptr<ObjectRequest> request);
  void answered();
  // Whether a back-off began (1) or ended (-1).
  int note(Code code, bool probe, const std::string& message, uint64_t now) KVBM_REQUIRES(mutex_);
  void tell(int change);
  // The end of a call of the store that was counted in calling_.
  void called();
  void end_if_idle();

  ObjectStore& store_;
  Executor& executor_;
  Random& random_;
  const uint64_t try_timeout_ns_;
  std::function<void(bool, const std::string&)> told_;

  mutable Mutex mutex_;
  std::deque<CallRef> urgent_ KVBM_GUARDED_BY(mutex_), others_ KVBM_GUARDED_BY(mutex_);
  std::map<uint64_t, CallRef> in_flight_ KVBM_GUARDED_BY(mutex_);  // the store has them; by the id of the try
  uint32_t waiting_ KVBM_GUARDED_BY(mutex_) = 0;    // for their next try
  // Threads that are about to call the store, or in the middle of it: requests may end meanwhile, and the store must not.
  uint32_t calling_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t next_id_ KVBM_GUARDED_BY(mutex_) = 1;
  uint32_t failures_ KVBM_GUARDED_BY(mutex_) = 0;  // in a row
  uint64_t back_off_ns_ KVBM_GUARDED_BY(mutex_) = 0;
  uint64_t back_until_ KVBM_GUARDED_BY(mutex_) = 0;
  bool backs_off_ KVBM_GUARDED_BY(mutex_) = false;
  bool probing_ KVBM_GUARDED_BY(mutex_) = false;
  bool closed_ KVBM_GUARDED_BY(mutex_) = false;
  std::string trouble_ KVBM_GUARDED_BY(mutex_);
  StoreStats stats_ KVBM_GUARDED_BY(mutex_);
  UniqueFunction<void(bool)> idle_ KVBM_GUARDED_BY(mutex_);
  uint32_t telling_ KVBM_GUARDED_BY(mutex_) = 0;  // callers whose `done` has not returned yet
  bool leaves_ KVBM_GUARDED_BY(mutex_) = false;  // kCloseNs have passed: what the store still has is left to it
  bool left_ KVBM_GUARDED_BY(mutex_) = false;  // the executor is not called any more
  std::atomic<bool> refuses_{false};  // backs_off_, for lookups
};

}  // namespace kvbm::tier::store
