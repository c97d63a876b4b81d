// The eviction policy: decides which resident block is evicted when space is needed.
//
// A policy orders slots; it owns no bytes and takes no locks (its caller serialises every call). A divisible policy
// judges the slots of a large table in parts, each part serialised on its own; state shared by the parts has its own
// lock.
//
// Its facts live in one FactTable that the block table shares with it. The hit path only writes facts (a use count and
// a tick, relaxed). So a hit costs no policy call unless the policy asks for hits (`hears_uses`). Everything else is
// lazy: a policy keeps a queue of candidates and checks the facts again when a candidate comes up.
//
// Leaves are evicted before their parents whatever the policy: a slot with resident children, or held, pinned or
// retained, is not evictable. A policy that meets such a slot may drop it from its queue; `available` notifies it when
// the slot is evictable (again). If a policy has no candidate, the block table may evict a slot with children if a tier
// below has its block: the policy is notified by `erased`.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace kvbm::policy {

// Facts about a resident block, 24 bytes, one per slot. Readers on any thread write `last_use` and `uses` (relaxed; a
// lost increment is harmless); the rest is written only under the caller's lock.
struct Facts {
  std::atomic<uint32_t> last_use{0};  // tick of the latest use; ticks count requests (lookups, stores)
  std::atomic<uint16_t> uses{0};      // hits since it became resident, saturating
  uint8_t priority = 0;               // caller's hint: 0 normal, 1 one-shot, 2 continue, 3 keep (hints.h)
  uint8_t queue = 0;                  // policy's own: 0 = in no queue of the policy
  uint32_t next = kNoSlot;            // policy's own links and scratch
  uint32_t prev = kNoSlot;
  uint32_t aux = 0;
  std::atomic<uint32_t> depth{0};  // blocks from the root of its prefix; relaxed: other parts read it
};
static_assert(sizeof(Facts) == 24);

// Queries that the policy may make to the block table. Called only from inside policy calls.
class Residents {
 public:
  virtual ~Residents() = default;
  // True if nothing holds the slot, no child of it is resident and no pin or retention keeps it.
  [[nodiscard]] virtual bool evictable(SlotId slot) const noexcept = 0;
  // A uniform 64-bit name of the slot's block, equal whenever the block returns (for the history).
  [[nodiscard]] virtual uint64_t name(SlotId slot) const noexcept = 0;
};

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  // If true, `used` is called for every hit, in order; otherwise hits only change the facts.
  [[nodiscard]] virtual bool hears_uses() const noexcept { return false; }

  // If true, the policy itself handles the priority in the facts, and `hinted` is called; otherwise the layer of
  // hinted.h wraps it.
  [[nodiscard]] virtual bool hears_hints() const noexcept { return false; }

  // Slots became resident, in the order of their prefix (a parent before its children). Facts are already set: last_use
  // = tick, uses = 0.
  virtual void inserted(std::span<const SlotId> slots, uint32_t tick) = 0;
  // A hit, if hears_uses().
  virtual void used(std::span<const SlotId> slots, uint32_t tick) { (void)slots, (void)tick; }
  // The priority of a resident slot has changed, if hears_hints().
  virtual void hinted(SlotId slot, uint32_t tick) { (void)slot, (void)tick; }
  // The slot is evictable again after the end of a hold, pin or child. Called only while facts.queue == 0; a policy
  // that keeps such slots queued never needs it.
  virtual void available(SlotId slot, uint32_t tick) = 0;
  // Chooses, forgets and returns an evictable slot; kNoSlot when there is none.
  virtual SlotId evict(uint32_t tick) = 0;
  // `slot` would become available because its child was evicted. True: evict() would choose it next; it is now chosen
  // and forgotten. False: nothing has changed for it.
  [[nodiscard]] virtual bool evicts_next(SlotId slot, uint32_t tick) {
    (void)slot, (void)tick;
    return false;
  }
  // The slot stops being resident for another reason (invalidated, dropped by the caller).
  virtual void erased(SlotId slot) = 0;

  // Makes policies like this one (which must not know any slot yet), one for each part. They share the history of
  // evicted blocks, so that a block is recognised in whatever part it returns. Empty: it cannot be divided. Slots are
  // numbered from 0 in each part. `facts` and `residents` outlive the policies.
  struct Part {
    std::span<Facts> facts;
    const Residents* residents = nullptr;
  };
  [[nodiscard]] virtual std::vector<std::unique_ptr<EvictionPolicy>> divide(std::span<const Part> parts) {
    (void)parts;
    return {};
  }

  // Number of unusable choices: only for a caller's policy.
  [[nodiscard]] virtual uint64_t refused() const noexcept { return 0; }
  // Bytes of memory beyond the facts: queues, ghosts, sketches. Bounded by construction:
  // history is at most max(65,536, 4 x capacity) entries of at most 16 bytes.
  [[nodiscard]] virtual size_t bytes() const noexcept = 0;
};

// "prefix" (the default), "lru", "fifo", "lfu", "tinylfu".
inline constexpr std::string_view kDefaultPolicy = "prefix";
[[nodiscard]] std::span<const std::string_view> eviction_policy_names() noexcept;
// Returns null for an unknown name. `facts` has one entry per slot and outlives the policy, as does `residents`.
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_eviction_policy(std::string_view name, std::span<Facts> facts,
                                                                   const Residents& residents);
// Makes a table's policies: make_eviction_policy(), or a function of the caller.
using MakePolicy = std::function<std::unique_ptr<EvictionPolicy>(std::string_view name, std::span<Facts> facts,
                                                                 const Residents& residents)>;

}  // namespace kvbm::policy
