// A part of a table's slots with everything that needs one lock: the free list, the policies and the counts.
//
// A large table has several pools (BlockTable::Options::pools), so that threads use different locks, and memory that
// stays in their processors' caches. A block is in the pool of its slot, wherever its parent is.
//
// Lock: the pool's, once per call and batch; never that of a second pool. Consequences for a parent in another pool are
// recorded in `elsewhere` and done afterwards (BlockTable::settle). Each call takes at most DeferredWork::kMost slots,
// so that they always fit.
// Slots are numbered from 0 within the pool for its policies, and as in the table everywhere else.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/thread/mutex.h"
#include "block/deferred_work.h"
#include "block/quotas.h"
#include "block/slot.h"
#include "block/slot_marks.h"
#include "policy/eviction.h"

namespace kvbm::block {

struct Counters {
  uint32_t slots = 0;
  uint32_t free = 0;           // reset
  uint32_t registered = 0;     // registered and known to a policy (private duplicates are not)
  uint64_t payload_bytes = 0;  // of registered blocks
  uint64_t allocated = 0;
  uint64_t published = 0;
  uint64_t duplicates = 0;
  uint64_t evicted = 0;
  uint64_t erased = 0;
  uint64_t policy_refused = 0;  // choices of a caller's policy that were not usable
};

class SlotPool final : private policy::Residents {
 public:
  // Arrays of the whole table; they outlive the pool.
  struct Arrays {
    Slot* slots;
    SlotMeta* meta;
    policy::Facts* facts;
    SlotMarks* marks;
    Quotas* quotas;
    std::atomic<uint64_t>* underflows;  // BlockTable::underflows()
    const std::atomic<uint8_t>* below;  // SlotMeta::flags; any of these says that a tier below has the block
    Parents parents;
  };
  SlotPool(const Arrays& arrays, SlotId first, uint32_t count);

  // Part of the table that the policies of this pool are made for.
  [[nodiscard]] policy::EvictionPolicy::Part part() const noexcept { return {{all_.facts + first_, count_}, this}; }
  void start(std::unique_ptr<policy::EvictionPolicy> shared) KVBM_EXCLUDES(mutex_);
  [[nodiscard]] bool has(SlotId slot) const noexcept { return slot - first_ < count_; }

  // Advice for choosing a pool: slots on the free list; slots that were evicted so far.
  [[nodiscard]] uint32_t free_now() const noexcept { return free_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t turnover() const noexcept { return turnover_.load(std::memory_order_relaxed); }

  // Takes slots for the account, from the free list and, if `evicting`, by eviction. Evicted ones are in the state
  // `evicting` and still listed in the index. The quota must be reserved. The policies' choices are evicted first; if
  // they have none, parents of resident blocks that a tier below has. Returns their number. `waited` may be null; it is
  // set if another thread had the lock.
  size_t take(AccountId account, std::span<SlotId> out, bool evicting, uint32_t tick, DeferredWork& elsewhere,
              bool* waited) KVBM_EXCLUDES(mutex_);
  // Evicts the account's own blocks: in the state `evicting` and still listed. None if it has no policy of its own. The
  // slots stay the account's, but its quota no longer counts them.
  size_t evict_own(AccountId account, std::span<SlotId> out, uint32_t tick, DeferredWork& elsewhere)
      KVBM_EXCLUDES(mutex_);
  // Puts slots without a listing or an owner on the free list, in this order. unused: take() gave them.
  void put_free(std::span<const SlotId> slots, bool unused) KVBM_EXCLUDES(mutex_);
  void count_allocated(size_t n) KVBM_EXCLUDES(mutex_);

  // Adds slots that were just registered to their policies, in the order of their prefix; skips those withdrawn
  // meanwhile.
  void enter(std::span<const SlotId> slots, uint8_t priority, uint32_t tick) KVBM_EXCLUDES(mutex_);
  void count_published(size_t duplicates, size_t ousted) KVBM_EXCLUDES(mutex_);
  // Handles slots that other calls woke; members of other pools are skipped.
  void settle(const DeferredWork& deferred, uint32_t tick, DeferredWork& elsewhere) KVBM_EXCLUDES(mutex_);
  void tell_used(std::span<const SlotId> slots, uint32_t tick) noexcept KVBM_EXCLUDES(mutex_);
  void set_priority(std::span<const SlotId> slots, uint8_t priority, uint32_t tick) KVBM_EXCLUDES(mutex_);
  void priorities(std::span<const SlotId> slots, std::span<uint8_t> out) const KVBM_EXCLUDES(mutex_);

  // Returns the blocks that would be evicted next, with a reference each; see BlockTable::select_cold.
  size_t select_cold(std::span<SlotId> out, uint32_t tick, AccountId account, bool followed) KVBM_EXCLUDES(mutex_);
  // Evicts blocks that only the caller's reference keeps, and parents of resident blocks if a tier below has them: in
  // the state `evicting`, still listed. They are moved to the front of `slots`, in their order; returns their number.
  size_t evict_held(std::span<SlotId> slots, uint32_t tick, DeferredWork& elsewhere) KVBM_EXCLUDES(mutex_);
  // Gives the account a policy of its own where `own` is not null, and moves its blocks over.
  void open_account(AccountId account, std::unique_ptr<policy::EvictionPolicy> own) KVBM_EXCLUDES(mutex_);
  [[nodiscard]] uint32_t used(AccountId account) const KVBM_EXCLUDES(mutex_);

  // Notes that a reference or pin of a block with children has ended.
  void stir() noexcept {
    if (!stirred_.load(std::memory_order_relaxed)) stirred_.store(true, std::memory_order_relaxed);
  }

  // Waits for the lock.
  void count_erased(size_t n) KVBM_EXCLUDES(mutex_);
  void add_to(Counters& sum) const KVBM_EXCLUDES(mutex_);
  [[nodiscard]] size_t bytes() const KVBM_EXCLUDES(mutex_);

 private:
  struct Account {
    uint32_t used = 0;                            // slots of this pool that are not reset
    std::unique_ptr<policy::EvictionPolicy> own;  // null: the shared policy
  };

  // policy::Residents, called by policies.
  [[nodiscard]] bool evictable(SlotId local) const noexcept override;
  [[nodiscard]] uint64_t name(SlotId local) const noexcept override;
  [[nodiscard]] bool evictable_slot(SlotId slot) const noexcept;

  [[nodiscard]] SlotId local(SlotId slot) const noexcept { return slot - first_; }
  [[nodiscard]] AccountId account_of(SlotId slot) const noexcept {
    return all_.meta[slot].account.load(std::memory_order_relaxed);
  }
  [[nodiscard]] uint32_t payload_of(SlotId slot) const noexcept {
    return all_.meta[slot].bytes.load(std::memory_order_relaxed);
  }
  [[nodiscard]] policy::EvictionPolicy& policy_of(SlotId slot) KVBM_REQUIRES(mutex_);
  [[nodiscard]] SlotId evict_one(policy::EvictionPolicy& from, uint64_t to, uint32_t tick) KVBM_REQUIRES(mutex_);
  [[nodiscard]] SlotId evict_any(uint64_t to, uint32_t tick) KVBM_REQUIRES(mutex_);
  [[nodiscard]] SlotId evict_parent(SlotId slot, uint32_t tick) KVBM_REQUIRES(mutex_);
  [[nodiscard]] SlotId evict_followed(AccountId account) KVBM_REQUIRES(mutex_);
  template <class Try>
  [[nodiscard]] SlotId choose_followed(AccountId account, uint32_t candidates, Try&& try_it) KVBM_REQUIRES(mutex_);
  [[nodiscard]] SlotId hold_followed(AccountId account, std::span<const SlotId> held) KVBM_REQUIRES(mutex_);
  [[nodiscard]] bool lies_below(SlotId slot) const noexcept {
    return (all_.meta[slot].flags.load(std::memory_order_acquire) & all_.below->load(std::memory_order_relaxed)) != 0;
  }
  void leave_evicted(SlotId slot) KVBM_REQUIRES(mutex_);
  void leave_policy(SlotId slot) KVBM_REQUIRES(mutex_);
  [[nodiscard]] Parent take_parent(SlotId slot) KVBM_REQUIRES(mutex_);
  [[nodiscard]] SlotId parent_here(SlotId slot) const KVBM_REQUIRES(mutex_);
  [[nodiscard]] Parent lose_child(const Parent& parent, uint32_t tick) KVBM_REQUIRES(mutex_);
  void leave_parent(SlotId slot, uint32_t tick, DeferredWork& elsewhere) KVBM_REQUIRES(mutex_);
  void hear_available(SlotId slot, uint32_t tick) KVBM_REQUIRES(mutex_);
  void offer(SlotId slot, uint32_t tick) KVBM_REQUIRES(mutex_);
  void blank(SlotId slot) KVBM_REQUIRES(mutex_);

  const Arrays all_;
  const SlotId first_;
  const uint32_t count_;

  alignas(64) mutable Mutex mutex_;
  std::unique_ptr<policy::EvictionPolicy> shared_ KVBM_GUARDED_BY(mutex_);
  std::vector<Account> accounts_ KVBM_GUARDED_BY(mutex_);
  uint32_t own_policies_ KVBM_GUARDED_BY(mutex_) = 0;
  SlotId free_head_ KVBM_GUARDED_BY(mutex_) = kNoSlot;  // linked through Facts::next
  uint32_t hand_ KVBM_GUARDED_BY(mutex_) = 0;           // position at which choose_followed() goes on
  Counters counters_ KVBM_GUARDED_BY(mutex_);
  std::atomic<uint64_t> turnover_{0};          // written under the lock
  alignas(64) std::atomic<uint32_t> free_{0};  // as counters_.free; readable without the lock
  // True if evict_followed() may find a block. Without it, a pool with all blocks held would be searched for every
  // block.
  mutable std::atomic<bool> stirred_{false};
};

// Returns true for the one thread that takes a withdrawn slot that nothing keeps; it is then in the state `evicting`.
[[nodiscard]] bool try_reap(Slot& slot) noexcept;

}  // namespace kvbm::block
