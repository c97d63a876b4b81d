// Requests to a store that may be slow, down or wrong. Their number is bounded, each ends at its deadline, is retried
// if that can help, and is refused at once while the store is in back-off.
//
// Back-off: after kFailuresToBackOff failures in a row, or one refusal of credentials or configuration, nothing is sent
// for a time that doubles from kFirstBackOff to kLongestBackOff. Then one request goes through as a probe; success ends
// the back-off. A request that is not answered in time is cancelled, and its caller notified. Its memory stays until
// the store returns it, and until then it counts as in flight.
//
// Lock: mutex_ is a leaf. No call of the store or of `done` is made under it. Thread: any.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/crypto/random.h"
#include "base/thread/executor.h"
#include "base/thread/mutex.h"
#include "tier/store/object_store.h"
#include "tier/tier.h"

namespace kvbm::tier::store {

class Requests : public std::enable_shared_from_this<Requests> {
 public:
  // Gets the request as it ended; null if the store has not returned it. On the executor.
  using Done = UniqueFunction<void(Code, std::unique_ptr<ObjectRequest>)>;
  static constexpr uint32_t kFailuresToBackOff = 5;
  static constexpr uint64_t kFirstBackOffNs = 1'000'000'000;
  static constexpr uint64_t kLongestBackOffNs = 30'000'000'000;
  static constexpr uint32_t kTries = 4;
  // A try that its caller abandoned after less time than this proves nothing about the store.
  static constexpr uint64_t kSlowNs = 1'000'000'000;

  Requests(ObjectStore& store, Executor& executor, Random& random, uint64_t try_timeout_ns);

  // `urgent`: goes before requests that are not. io_error at once during back-off.
  void submit(std::unique_ptr<ObjectRequest> request, uint64_t deadline_ns, bool urgent, Done done);
  // Runs a request on the caller's thread, without retries and also in back-off: ObjectStore::run(). Null if it did not
  // end in time, or after shutdown(). It counts as in flight until the store has ended it, and for the back-off.
  std::unique_ptr<ObjectRequest> run(std::unique_ptr<ObjectRequest> request);
  // True if the store is in back-off: requests are refused now.
  [[nodiscard]] bool backs_off() const noexcept;
  // True if no request waits to be sent, and half of those that the store takes at a time are not in use.
  [[nodiscard]] bool has_spare() const;
  // Reason of the back-off, for people; empty without one.
  [[nodiscard]] std::string trouble() const;
  // Sets a function that runs once when a back-off begins, with its reason, and once when it ends. Call before the
  // first request.
  void on_back_off(std::function<void(bool begins, const std::string& why)> hook) { on_back_off_ = std::move(hook); }
  [[nodiscard]] StoreStats stats() const;
  // Accepts no new requests, ends queued ones as closed and cancels those in flight. `done` runs on the executor: with
  // true when nothing is in flight any more, with false after kCloseNs if the store never returns some requests. Their
  // callers are notified, and later answers of the store are ignored: the executor may be gone. By then every caller's
  // `done` has returned.
  void shutdown(UniqueFunction<void(bool)> done);
  static constexpr uint64_t kCloseNs = 2'000'000'000;

 private:
  struct Call {
    std::unique_ptr<ObjectRequest> request;  // null while the store has it
    uint64_t id = 0;                         // of the try in flight; 0: none
    uint64_t deadline_ns = 0;
    uint64_t sent_ns = 0;  // of the try in flight
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
  // Returns 1 if a back-off began, -1 if one ended.
  int note(Code code, bool probe, const std::string& message, uint64_t now) KVBM_REQUIRES(mutex_);
  void tell(int change);
  // Ends a call of the store that was counted in calling_.
  void called();
  // Forgets a request of run() that the store has ended.
  void ran(uint64_t id);
  void end_if_idle();

  ObjectStore& store_;
  Executor& executor_;
  Random& random_;
  const uint64_t try_timeout_ns_;
  std::function<void(bool, const std::string&)> on_back_off_;

  mutable Mutex mutex_;
  std::deque<CallRef> urgent_ KVBM_GUARDED_BY(mutex_), others_ KVBM_GUARDED_BY(mutex_);
  std::map<uint64_t, CallRef> in_flight_ KVBM_GUARDED_BY(mutex_);  // the store has them; by the id of the try
  // Requests of run() that the store has, by id; true: its caller has given up.
  std::map<uint64_t, bool> running_ KVBM_GUARDED_BY(mutex_);
  uint64_t next_run_ KVBM_GUARDED_BY(mutex_) = uint64_t{1} << 63;  // ids of their own
  uint32_t waiting_ KVBM_GUARDED_BY(mutex_) = 0;                   // calls that wait for their next try
  // Threads that are calling the store: requests may end meanwhile, but the store must not be destroyed.
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
  uint32_t telling_ KVBM_GUARDED_BY(mutex_) = 0;  // calls with a `done` that has not returned yet
  bool leaves_ KVBM_GUARDED_BY(mutex_) = false;   // kCloseNs have passed: the store keeps its requests
  bool left_ KVBM_GUARDED_BY(mutex_) = false;     // the executor is not called any more
  std::atomic<bool> refuses_{false};              // backs_off_, for lookups
};

}  // namespace kvbm::tier::store
