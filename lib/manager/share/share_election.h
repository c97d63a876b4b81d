// Election in a shared tier set: how a process becomes its owner, or the client of its owner. While it is neither, it
// tries the directory's lock and the owner's socket in turn, every kRetryNs. The lock alone guarantees a single
// owner; this class ensures that no process stays without one.
//
// Step-driven: everything runs on `executor` except stop(). An owner stays the owner.
#pragma once

#include <atomic>
#include <string>

#include "base/status.h"
#include "base/thread/executor.h"

namespace kvbm::manager {

class ShareElection {
 public:
  static constexpr uint64_t kRetryNs = 20'000'000;

  // Actions of an election and its results; called on the executor. Each may block on files.
  class Host {
   public:
    virtual ~Host() = default;
    [[nodiscard]] virtual bool is_owner() const = 0;
    // Returns true if this process is a client with a link to the owner.
    [[nodiscard]] virtual bool is_connected() const = 0;
    // Tries to become the owner. ok: this process is the owner. in_use: another one is. Anything else: it could be
    // the owner, but an error prevents it.
    virtual Status try_to_own() = 0;
    // Makes the owner reachable; retried until it is ok, after which a further call does nothing.
    virtual Status listen() = 0;
    // Makes one attempt to reach the owner; no-op while one is in progress.
    virtual void dial() = 0;
    // Reports a new reason once.
    virtual void cannot_own(const Status& why) = 0;
  };

  ShareElection(Executor& executor, Host& host) : executor_(executor), host_(host) {}

  // Starts the search for an owner: there is none, or it was lost. No-op while a search is in progress.
  void seek();
  // Ends the search; only an attempt in progress continues. Any thread.
  void stop() noexcept { stopped_.store(true); }

 private:
  void try_once();
  void try_later();

  Executor& executor_;
  Host& host_;
  std::atomic<bool> stopped_{false};
  bool seeking_ = false;
  std::string complained_;
};

}  // namespace kvbm::manager
