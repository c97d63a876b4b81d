// Space queue: stores and prefetches wait here for host slots while offloads, loads and other stores are about to
// release some. Waiters are notified of releases. They also retry every kLookNs, because some changes notify no one
// (quotas, dropped blocks).
//
// Prefetches are before stores, each in order of submission: reads go before writes. An operation never takes a slot
// before an earlier waiter for the same space, which is the whole host, or the quota of its namespace. Allocations of
// managed blocks and loads do not queue: a load without a free slot reads past the host (landing_room.h). An
// operation waits until its deadline as long as some waiter gets a slot, and for Options::room_wait_ns while none
// does. It is refused at once when nothing can release a slot: nothing is being offloaded, and every operation in
// progress waits here itself. Of these, the youngest that holds anything ends, so that the others continue. The queue
// is no longer than the number of operations in progress, which their submitters bound (a queue's depth, calling
// threads).
//
// Why no operation waits here forever, with or without a deadline: a waiter has nothing in flight (a prefetch first
// waits for its own reads). It holds only what it held when it came: the previous block (a store), or the blocks of
// its match (a prefetch). If all operations in progress wait here, the youngest that holds any block ends. That
// repeats until one gets a slot or none holds anything; then the rest is refused. An operation in progress that does
// not wait here is a load, an offload, or work that takes no slots: these end without slots of others. If such an end
// does not happen, room_wait_ns limits the wait. Lock: `mutex_`, a leaf; no waiter is woken under it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "base/thread/mutex.h"
#include "block/quotas.h"

namespace kvbm::block {
class BlockTable;
}

namespace kvbm::manager {

class Lifetime;
struct Counters;
struct Environment;

// An operation that can wait in the space queue.
class SpaceWaiter {
 public:
  virtual ~SpaceWaiter() = default;
  // Notifies that a slot may be free. Thread: any.
  virtual void space_may_be_free() = 0;
};

class SpaceQueue {
 public:
  static constexpr uint64_t kLookNs = 10'000'000;

  // Everything that is passed outlives this object. `room_wait_ns`: Options::room_wait_ns.
  SpaceQueue(const Environment& environment, uint64_t room_wait_ns, const Counters& counters, const Lifetime& lifetime,
             block::BlockTable& table)
      : env_(environment), room_wait_ns_(room_wait_ns), counters_(counters), lifetime_(lifetime), table_(table) {}

  // Lets waiters end instead of waiting for slots.
  void close() noexcept;
  [[nodiscard]] bool closing() const noexcept { return closing_.load(std::memory_order_acquire); }

  // Returns a place in the queue; called when an operation is submitted.
  [[nodiscard]] uint64_t place_of_store() noexcept { return kStores | place_of_prefetch(); }
  [[nodiscard]] uint64_t place_of_prefetch() noexcept { return places_.fetch_add(1, std::memory_order_relaxed); }

  enum class Verdict : uint8_t {
    try_it,  // no waiter is before this one
    wait,    // queued; it will be woken
    refused  // nothing will be released for it: it leaves
  };
  // Decides whether the caller may try to take slots; queues it behind others if not. `holds`: it keeps blocks while
  // it waits.
  [[nodiscard]] Verdict ask(const std::shared_ptr<SpaceWaiter>& waiter, uint64_t place, block::AccountId account,
                            bool holds);
  // Reports a try that was refused because no slot is free (no_room), or the quota is used up (over_quota). Queues a
  // caller that was not queued yet. It must then try once more: a release in between has notified no one. `offloading`:
  // offloads held blocks before this call; an end in between is seen at the next look.
  [[nodiscard]] Verdict refused(const std::shared_ptr<SpaceWaiter>& waiter, uint64_t place, block::AccountId account,
                                bool holds, Code code, bool offloading);
  // Returns true if blocks in use cause the refusal, not the limit of the namespace.
  [[nodiscard]] bool may_wait_after(Code code, block::AccountId account) const;
  // Removes a waiter that has got slots, or ends, and wakes the next one. No-op if it is not queued.
  void leave(uint64_t place, bool got_some) noexcept;

  // Notifies of released slots. Thread: any.
  void space_released() noexcept {
    // A waiter counts itself first and then tries; this caller releases first and then reads the count.
    if (waiting_.load(std::memory_order_seq_cst) != 0) look_soon();
  }
  [[nodiscard]] uint64_t waiting() const noexcept { return waiting_.load(std::memory_order_relaxed); }
  // Returns how many of the waiters are prefetches.
  [[nodiscard]] uint64_t waiting_prefetches() const noexcept { return prefetches_.load(std::memory_order_relaxed); }
  // Logs, now and then, what holds the host's blocks. `refused`: the operation, "a store". `waited_ns`: 0 if
  // it did not wait. `offloading`: blocks that offloads hold.
  void log_refused(std::string_view refused, Code code, uint64_t waited_ns, uint64_t offloading) noexcept;

 private:
  static constexpr uint64_t kStores = uint64_t{1} << 63;  // bit in a place: behind all prefetches
  struct Entry {
    std::shared_ptr<SpaceWaiter> waiter;
    block::AccountId account = block::kSharedAccount;
    bool whole_host = false;  // waits for any slot; else for its account's share
    bool holds = false;       // holds blocks while it waits
    bool ends = false;        // chosen to be refused
    uint64_t since_ns = 0;
  };
  using Queue = std::map<uint64_t, Entry>;

  [[nodiscard]] bool has_before(uint64_t place, block::AccountId account) const KVBM_REQUIRES(mutex_);
  Entry& enqueue(const std::shared_ptr<SpaceWaiter>& waiter, uint64_t place, block::AccountId account)
      KVBM_REQUIRES(mutex_);
  // Returns true if anything in progress is not waiting here.
  [[nodiscard]] bool something_moves(bool offloading) const KVBM_REQUIRES(mutex_);
  // Returns true if this waiter may expect a slot. The waiter chosen to end for it is returned in *other.
  [[nodiscard]] bool may_expect(const Entry& one, bool offloading, std::shared_ptr<SpaceWaiter>* other)
      KVBM_REQUIRES(mutex_);
  void look_soon() noexcept;
  void look() noexcept;
  void look_again() noexcept;
  void arm() noexcept;

  const Environment& env_;
  const uint64_t room_wait_ns_;
  const Counters& counters_;
  const Lifetime& lifetime_;
  block::BlockTable& table_;
  std::atomic<bool> closing_{false};
  std::atomic<uint64_t> places_{0};
  std::atomic<uint64_t> waiting_{0};  // queue_.size()
  std::atomic<uint64_t> prefetches_{0};
  std::atomic<bool> looks_soon_{false};
  std::atomic<uint64_t> logged_ns_{0};
  mutable Mutex mutex_;
  Queue queue_ KVBM_GUARDED_BY(mutex_);
  uint64_t moved_ns_ KVBM_GUARDED_BY(mutex_) = 0;  // last time a waiter got a slot
  bool armed_ KVBM_GUARDED_BY(mutex_) = false;
};

}  // namespace kvbm::manager
