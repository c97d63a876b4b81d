// Where stores and prefetches stand that found no room in the host while some is on its way: offloads, loads and other
// stores give back what they hold. Who waits is told when something was given back, and looks again every kLookNs
// besides, for what tells nobody (quotas, blocks that are dropped).
//
// Prefetches before stores, each in order of submission: what is to be read goes before what is to be written. Nobody
// takes room before one that stands before it and waits for the same, which is the whole host, or what the quota of its
// namespace leaves. Allocations of managed blocks and what loads bring up do not stand in line: a load reads past the
// host what finds no slot (landing_room.h). One waits until its deadline, as long as room goes to somebody in line, and
// for Options::room_wait_ns while none does. It is refused at once when nothing is on its way: nothing is being
// offloaded, and every operation that is under way stands here itself. Of such, the youngest that holds anything
// ends, so that the others go on. At most as many stand here as are under way: what submits bounds them (a queue's
// depth, threads that call).
//
// Why nobody waits here for ever, deadline or not: whoever stands here has nothing of its own on its way (a prefetch
// waits for its own landings first, and stands here behind them), and holds what it held when it came: the block before
// (a store), blocks of its match (a prefetch). If all that are under way stand here, the youngest that holds any ends,
// and so on until one gets room or nobody holds anything; then what is left is refused. If somebody is under way that
// does not stand here, it is a load, an offload, or work that takes no slots: these end without room of anybody else's.
// And where such an end does not come, room_wait_ns does.
// Lock: `mutex_`, a leaf; nobody is woken under it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "block/quotas.h"

namespace kvbm::manager {

class Manager;
// Whoever may stand in line.
class RoomSeeker {
 public:
  virtual ~RoomSeeker() = default;
  // There may be room that it waits for. Thread: any.
  virtual void room_may_be() = 0;
};

class RoomLine {
 public:
  static constexpr uint64_t kLookNs = 10'000'000;

  explicit RoomLine(Manager& manager) : manager_(manager) {}

  // A place in line; asked for when an operation is submitted.
  [[nodiscard]] uint64_t place_of_store() noexcept { return kStores | place_of_prefetch(); }
  [[nodiscard]] uint64_t place_of_prefetch() noexcept { return places_.fetch_add(1, std::memory_order_relaxed); }

  enum class Turn : uint8_t {
    try_it,  // nobody is before this one
    wait,    // it stands in line and will be woken
    refused  // nothing will come free for it: it leaves
  };
  // Whether one may try to take slots. Behind others it stands in line. `holds`: it keeps blocks while it waits.
  [[nodiscard]] Turn ask(const std::shared_ptr<RoomSeeker>& seeker, uint64_t place, block::AccountId account,
                         bool holds);
  // It tried, and was refused for want of room (no_room), or at its quota (over_quota). Where it has not stood in line
  // until now it does, and must try once more: what was given back in between has told nobody.
  [[nodiscard]] Turn refused(const std::shared_ptr<RoomSeeker>& seeker, uint64_t place, block::AccountId account,
                             bool holds, Code code);
  // Whether that is because of what is held, not because of what the namespace may have.
  [[nodiscard]] bool may_wait_after(Code code, block::AccountId account) const;
  // It has got some, or ends. Whoever is next is woken. Nothing if it does not stand here.
  void leave(uint64_t place, bool got_some) noexcept;

  // Something was given back. Thread: any.
  void room_came() noexcept {
    // Who waits counts itself first and tries then; this gives back first and looks then.
    if (waiting_.load(std::memory_order_seq_cst) != 0) look_soon();
  }
  [[nodiscard]] uint64_t waiting() const noexcept { return waiting_.load(std::memory_order_relaxed); }
  // Of these, prefetches.
  [[nodiscard]] uint64_t waiting_prefetches() const noexcept { return prefetches_.load(std::memory_order_relaxed); }
  // Says in the log, now and then, what holds the host's blocks. `who`: "a store". `waited_ns`: 0 for one that did not
  // wait.
  void say_refused(std::string_view who, Code code, uint64_t waited_ns) noexcept;

 private:
  static constexpr uint64_t kStores = uint64_t{1} << 63;  // in a place: behind all prefetches
  struct Stands {
    std::shared_ptr<RoomSeeker> seeker;
    block::AccountId account = block::kSharedAccount;
    bool whole_host = false;  // what it waits for; else what its account may have
    bool holds = false;       // blocks, while it waits
    bool ends = false;        // it was chosen to be refused
    uint64_t since_ns = 0;
  };
  using Line = std::map<uint64_t, Stands>;

  [[nodiscard]] bool has_before(uint64_t place, block::AccountId account) const KVBM_REQUIRES(mutex_);
  Stands& stand(const std::shared_ptr<RoomSeeker>& seeker, uint64_t place, block::AccountId account)
      KVBM_REQUIRES(mutex_);
  // Whether anything is under way that does not stand here.
  [[nodiscard]] bool something_moves(bool offloading) const KVBM_REQUIRES(mutex_);
  // Whether this one may expect room. Who is chosen to end for it comes out in *other.
  [[nodiscard]] bool may_expect(const Stands& one, bool offloading, std::shared_ptr<RoomSeeker>* other)
      KVBM_REQUIRES(mutex_);
  void look_soon() noexcept;
  void look() noexcept;
  void look_again() noexcept;
  void arm() noexcept;

  Manager& manager_;
  std::atomic<uint64_t> places_{0};
  std::atomic<uint64_t> waiting_{0};  // line_.size()
  std::atomic<uint64_t> prefetches_{0};
  std::atomic<bool> looks_soon_{false};
  std::atomic<uint64_t> said_ns_{0};
  mutable Mutex mutex_;
  Line line_ KVBM_GUARDED_BY(mutex_);
  uint64_t moved_ns_ KVBM_GUARDED_BY(mutex_) = 0;  // when one in line got room last
  bool armed_ KVBM_GUARDED_BY(mutex_) = false;
};

}  // namespace kvbm::manager
