// How one process of a shared tier set comes to own it, or to be a client of whoever does: while it is neither it tries
// the directory's lock and the owner's socket in turn, every kRetryNs. That there is one owner is the lock's doing
// alone; what is here sees to it that nobody stays without.
//
// Step-driven: all of it runs on `executor`, but for stop(). An owner stays it.
#pragma once

#include <atomic>
#include <string>

#include "base/executor.h"
#include "base/status.h"

namespace kvbm::manager {

class ShareElection {
 public:
  static constexpr uint64_t kRetryNs = 20'000'000;

  // What is tried, and what became of it; on the executor. Each may block on files.
  class Host {
   public:
    virtual ~Host() = default;
    [[nodiscard]] virtual bool is_owner() const = 0;
    // This process is a client, and its link to the owner is there.
    [[nodiscard]] virtual bool is_connected() const = 0;
    // ok: this process is the owner. in_use: another one is. Anything else: it could be, and something is wrong.
    virtual Status try_to_own() = 0;
    // Lets others find it; tried again until it is ok, and once more does nothing then.
    virtual Status listen() = 0;
    // One attempt to reach the owner; nothing while one is under way.
    virtual void dial() = 0;
    // Told once for every other reason.
    virtual void cannot_own(const Status& why) = 0;
  };

  ShareElection(Executor& executor, Host& host) : executor_(executor), host_(host) {}

  // There is no owner any more, or was none. Nothing where it is being sought already.
  void seek();
  // Nothing is tried after this but what is under way. Any thread.
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
