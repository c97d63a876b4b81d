#include "block/slot_pool.h"

#include <algorithm>
#include <utility>

#include "base/thread/batch_lock.h"
#include "policy/hints.h"

namespace kvbm::block {
namespace {

constexpr uint64_t kEvicting = static_cast<uint64_t>(SlotState::evicting);

}  // namespace

bool try_reap(Slot& slot) noexcept {
  uint64_t bits = slot.word.load(std::memory_order_relaxed);
  while (SlotWord(bits).reapable()) {
    if (slot.word.compare_exchange_weak(bits, kEvicting, std::memory_order_acq_rel)) return true;
  }
  return false;
}

SlotPool::SlotPool(const Arrays& arrays, SlotId first, uint32_t count) : all_(arrays), first_(first), count_(count) {
  MutexLock lock(mutex_);
  accounts_.resize(1);
  for (SlotId slot = first + count; slot-- > first;) {
    all_.facts[slot].next = free_head_;
    free_head_ = slot;
  }
  counters_.slots = counters_.free = count;
  free_.store(count, std::memory_order_relaxed);
}

void SlotPool::start(std::unique_ptr<policy::EvictionPolicy> shared) {
  MutexLock lock(mutex_);
  shared_ = std::move(shared);
}

// ---- Implements policy::Residents ----

// A slot that cannot be evicted is marked in the same step, so that the thread that makes it evictable notifies the
// policy.
bool SlotPool::evictable_slot(SlotId slot) const noexcept {
  std::atomic<uint64_t>& at = all_.slots[slot].word;
  uint64_t bits = at.load(std::memory_order_relaxed);
  for (;;) {
    const SlotWord now(bits);
    if (now.evictable()) return true;
    if (now.only_followed()) stirred_.store(true, std::memory_order_relaxed);
    if (!now.findable() || now.notify()) return false;
    if (at.compare_exchange_weak(bits, bits | SlotWord::kNotify, std::memory_order_relaxed)) return false;
  }
}

bool SlotPool::evictable(SlotId local) const noexcept { return evictable_slot(first_ + local); }

uint64_t SlotPool::name(SlotId local) const noexcept { return all_.slots[first_ + local].identity().hash(); }

// ---- one slot ----

policy::EvictionPolicy& SlotPool::policy_of(SlotId slot) {
  Account& account = accounts_[account_of(slot)];
  return account.own != nullptr ? *account.own : *shared_;
}

void SlotPool::leave_policy(SlotId slot) {
  if (all_.meta[slot].in_policy == 0) return;
  all_.meta[slot].in_policy = 0;
  --counters_.registered;
  counters_.payload_bytes -= payload_of(slot);
  policy_of(slot).erased(local(slot));
  all_.facts[slot].queue = 0;
}

Parent SlotPool::take_parent(SlotId slot) {
  std::atomic<uint32_t>& at = all_.slots[slot].parent;
  const uint32_t parent = at.load(std::memory_order_relaxed);
  if (parent != kNoSlot) at.store(kNoSlot, std::memory_order_relaxed);
  return all_.parents.unpack(parent);
}

// Returns the parent of a slot if it is in this pool, is known to its policies, and is not gone.
SlotId SlotPool::parent_here(SlotId slot) const {
  const Parent parent = all_.parents.unpack(all_.slots[slot].parent.load(std::memory_order_relaxed));
  if (!has(parent.slot) || all_.meta[parent.slot].in_policy == 0) return kNoSlot;
  const uint32_t generation = all_.meta[parent.slot].generation.load(std::memory_order_relaxed);
  return all_.parents.is_there(parent, generation) ? parent.slot : kNoSlot;
}

// Ends the slot's link to its parent.
void SlotPool::leave_parent(SlotId slot, uint32_t tick, DeferredWork& elsewhere) {
  for (Parent parent = take_parent(slot); parent.slot != kNoSlot; parent = lose_child(parent, tick)) {
    if (has(parent.slot)) continue;
    elsewhere.left[elsewhere.n_left++] = parent;
    return;
  }
}

// Takes a child off a parent. A parent that becomes evictable is announced. One that was withdrawn and only kept by the
// child is freed, and its own parent returned. A parent that is gone no longer counts its children.
Parent SlotPool::lose_child(const Parent& parent, uint32_t tick) {
  std::atomic<uint64_t>& word = all_.slots[parent.slot].word;
  uint64_t bits = word.load(std::memory_order_acquire);
  // A parent that will be announced loses its mark in the same step.
  const auto after = [&] {
    const SlotWord left(bits - SlotWord::kOneChild);
    return left.evictable() && all_.meta[parent.slot].in_policy != 0 ? left.bits() & ~SlotWord::kNotify : left.bits();
  };
  do {
    // In this order: the generation is raised before the slot is registered anew.
    if (SlotWord(bits).state() != SlotState::registered) return {};
    if (!all_.parents.is_there(parent, all_.meta[parent.slot].generation.load(std::memory_order_relaxed))) return {};
    if (SlotWord(bits).children() == 0) [[unlikely]] {
      all_.underflows->fetch_add(1, std::memory_order_relaxed);
      return {};
    }
  } while (!word.compare_exchange_weak(bits, after(), std::memory_order_acq_rel, std::memory_order_acquire));
  const SlotWord now(bits - SlotWord::kOneChild);
  if (now.evictable()) {
    if (now.notify()) offer(parent.slot, tick);
    return {};
  }
  if (!now.reapable() || !try_reap(all_.slots[parent.slot])) return {};
  const Parent grandparent = take_parent(parent.slot);
  leave_policy(parent.slot);
  if (Quota* const quota = all_.quotas->find(account_of(parent.slot)))
    quota->used.fetch_sub(1, std::memory_order_relaxed);
  blank(parent.slot);
  return grandparent;
}

void SlotPool::hear_available(SlotId slot, uint32_t tick) {
  if (all_.meta[slot].in_policy == 0) return;
  all_.slots[slot].word.fetch_and(~SlotWord::kNotify, std::memory_order_relaxed);
  offer(slot, tick);
}

// The slot may have been taken, or freed and reused, since it woke: judged by its present state.
void SlotPool::offer(SlotId slot, uint32_t tick) {
  policy::Facts& facts = all_.facts[slot];
  if (all_.meta[slot].in_policy == 0 || facts.queue != 0 || !evictable_slot(slot)) return;
  policy_of(slot).available(local(slot), tick);
  if (facts.queue == 0) all_.slots[slot].word.fetch_or(SlotWord::kNotify, std::memory_order_relaxed);
}

// Puts the slot on the free list. Its quota has been released.
void SlotPool::blank(SlotId slot) {
  all_.marks->none(slot);
  SlotMeta& meta = all_.meta[slot];
  --accounts_[account_of(slot)].used;
  meta.generation.store(meta.generation.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  meta.flags.store(0, std::memory_order_relaxed);
  all_.facts[slot].next = free_head_;
  free_head_ = slot;
  free_.store(++counters_.free, std::memory_order_relaxed);
  all_.slots[slot].word.store(static_cast<uint64_t>(SlotState::reset), std::memory_order_release);
}

// ---- eviction ----

// Evicts the policy's choice by setting its word to `to`. A choice that a lookup takes in between has been marked by
// evictable(), and returns through available().
SlotId SlotPool::evict_one(policy::EvictionPolicy& from, uint64_t to, uint32_t tick) {
  for (;;) {
    const SlotId chosen = from.evict(tick);
    if (chosen == kNoSlot) return kNoSlot;
    const SlotId slot = first_ + chosen;
    std::atomic<uint64_t>& at = all_.slots[slot].word;
    do {
      uint64_t bits = at.load(std::memory_order_relaxed);
      while (SlotWord(bits).evictable()) {
        if (at.compare_exchange_weak(bits, to, std::memory_order_acq_rel, std::memory_order_relaxed)) return slot;
      }
    } while (evictable_slot(slot));
  }
}

// Evicts from the policy with most slots in use, so that no account's blocks are protected only because they are
// counted separately; among equals the lowest account.
SlotId SlotPool::evict_any(uint64_t to, uint32_t tick) {
  if (own_policies_ == 0) return evict_one(*shared_, to, tick);
  uint32_t shared_used = 0;
  for (const Account& account : accounts_) shared_used += account.own == nullptr ? account.used : 0;
  // Walks (use, account) downwards: each round takes the largest below the last one tried.
  uint64_t below = UINT64_MAX;
  for (;;) {
    uint64_t best = 0;
    for (size_t id = 0; id < accounts_.size(); ++id) {
      if (id != kSharedAccount && accounts_[id].own == nullptr) continue;
      const uint32_t used = id == kSharedAccount ? shared_used : accounts_[id].used;
      const uint64_t rank = (static_cast<uint64_t>(used) << 16 | (UINT16_MAX - id)) + 1;
      if (rank < below) best = std::max(best, rank);
    }
    if (best == 0) return kNoSlot;
    below = best;
    const size_t id = UINT16_MAX - ((best - 1) & UINT16_MAX);
    const SlotId slot = evict_one(id == kSharedAccount ? *shared_ : *accounts_[id].own, to, tick);
    if (slot != kNoSlot) return slot;
  }
}

// Evicts the parent of a slot that was just evicted, if only this child keeps it and the policy would evict it next: in
// the same step as the child leaves it. Most evictions are of chains, from their ends.
SlotId SlotPool::evict_parent(SlotId slot, uint32_t tick) {
  const SlotId parent = parent_here(slot);
  if (parent == kNoSlot || own_policies_ != 0) return kNoSlot;
  std::atomic<uint64_t>& at = all_.slots[parent].word;
  constexpr uint64_t kOnlyThis = SlotWord::kRegistered | SlotWord::kOneChild;
  uint64_t bits = at.load(std::memory_order_relaxed);
  if ((bits & ~SlotWord::kNotify) != kOnlyThis || !shared_->evicts_next(local(parent), tick)) return kNoSlot;
  do {
    if (at.compare_exchange_weak(bits, kEvicting, std::memory_order_acq_rel, std::memory_order_relaxed)) {
      all_.slots[slot].parent.store(kNoSlot, std::memory_order_relaxed);
      return parent;
    }
  } while ((bits & ~SlotWord::kNotify) == kOnlyThis);
  (void)evictable_slot(parent);  // a lookup took it in between, as in evict_one()
  return kNoSlot;
}

// Chooses a block that only its children keep. The children stay, and are found as long as some tier has the parent. Of
// a few candidates the deepest is chosen: blocks that more prompts begin with are to stay longer. `account`: as in
// BlockTable::select_cold().
template <class Try>
SlotId SlotPool::choose_followed(AccountId account, uint32_t candidates, Try&& try_it) {
  for (uint32_t looked = 0; looked < count_;) {
    SlotId best = kNoSlot;
    for (uint32_t seen = 0; seen < candidates && looked < count_; ++looked) {
      const SlotId slot = first_ + hand_;
      hand_ = hand_ + 1 == count_ ? 0 : hand_ + 1;
      if (!SlotWord(all_.slots[slot].word.load(std::memory_order_relaxed)).only_followed()) continue;
      if (all_.meta[slot].in_policy == 0 || (account != kSharedAccount && account_of(slot) != account)) continue;
      if (!try_it(slot, false)) continue;
      ++seen;
      const auto depth = [&](SlotId of) { return all_.facts[of].depth.load(std::memory_order_relaxed); };
      if (best == kNoSlot || depth(slot) > depth(best)) best = slot;
    }
    if (best != kNoSlot && try_it(best, true)) return best;
  }
  return kNoSlot;
}

SlotId SlotPool::evict_followed(AccountId account) {
  if (!stirred_.load(std::memory_order_relaxed) || all_.below->load(std::memory_order_relaxed) == 0) return kNoSlot;
  if (account == kSharedAccount) stirred_.store(false, std::memory_order_relaxed);  // before it looks
  constexpr uint32_t kCandidates = 16;
  const SlotId slot = choose_followed(account, kCandidates, [this](SlotId at, bool now) {
    if (!lies_below(at)) return false;
    std::atomic<uint64_t>& word = all_.slots[at].word;
    uint64_t bits = word.load(std::memory_order_relaxed);
    while (now && SlotWord(bits).only_followed()) {
      if (word.compare_exchange_weak(bits, kEvicting, std::memory_order_acq_rel, std::memory_order_relaxed))
        return true;
    }
    return !now;
  });
  if (slot == kNoSlot) return kNoSlot;
  stirred_.store(true, std::memory_order_relaxed);  // there may be more
  policy_of(slot).erased(local(slot));
  return slot;
}

// Removes a slot that has just become `evicting` from its policy and its quota.
void SlotPool::leave_evicted(SlotId slot) {
  all_.marks->none(slot);
  all_.meta[slot].in_policy = 0;
  all_.facts[slot].queue = 0;
  --counters_.registered;
  counters_.payload_bytes -= payload_of(slot);
  turnover_.store(++counters_.evicted, std::memory_order_relaxed);
  if (const AccountId account = account_of(slot); account != kSharedAccount) {
    all_.quotas->find(account)->used.fetch_sub(1, std::memory_order_relaxed);
  }
}

size_t SlotPool::take(AccountId account, std::span<SlotId> out, bool evicting, uint32_t tick, DeferredWork& elsewhere,
                      bool* waited) {
  size_t got = 0;
  const BatchLock lock(mutex_);
  while (got < out.size() && free_head_ != kNoSlot) {
    out[got++] = free_head_;
    free_head_ = all_.facts[free_head_].next;
  }
  if (got != 0) free_.store(counters_.free -= static_cast<uint32_t>(got), std::memory_order_relaxed);
  while (evicting && got < out.size()) {
    SlotId slot = evict_any(kEvicting, tick);
    if (slot == kNoSlot) slot = evict_followed(kSharedAccount);
    if (slot == kNoSlot) break;
    for (SlotId parent = kNoSlot;; slot = parent) {
      --accounts_[account_of(slot)].used;
      leave_evicted(slot);
      out[got++] = slot;
      parent = got < out.size() ? evict_parent(slot, tick) : kNoSlot;
      if (parent == kNoSlot) break;
    }
    leave_parent(slot, tick, elsewhere);
  }
  accounts_[account].used += static_cast<uint32_t>(got);
  counters_.allocated += got;
  if (waited != nullptr) *waited = lock.waited();
  return got;
}

size_t SlotPool::evict_own(AccountId account, std::span<SlotId> out, uint32_t tick, DeferredWork& elsewhere) {
  BatchLock lock(mutex_);
  if (account >= accounts_.size() || accounts_[account].own == nullptr) return 0;
  size_t got = 0;
  while (got < out.size()) {
    SlotId slot = evict_one(*accounts_[account].own, kEvicting, tick);
    if (slot == kNoSlot) slot = evict_followed(account);
    if (slot == kNoSlot) break;
    leave_evicted(slot);
    leave_parent(slot, tick, elsewhere);
    out[got++] = slot;
  }
  return got;
}

void SlotPool::put_free(std::span<const SlotId> slots, bool unused) {
  BatchLock lock(mutex_);
  for (const SlotId slot : slots) blank(slot);
  if (unused) counters_.allocated -= slots.size();
}

void SlotPool::count_allocated(size_t n) {
  BatchLock lock(mutex_);
  counters_.allocated += n;
}

// ---- demotion ----

size_t SlotPool::select_cold(std::span<SlotId> out, uint32_t tick, AccountId account, bool followed) {
  constexpr uint64_t kHeld = SlotWord::kRegistered | SlotWord::kNotify | SlotWord::kOneReference;
  size_t n = 0;
  BatchLock lock(mutex_);
  policy::EvictionPolicy* own = nullptr;
  if (account != kSharedAccount) {
    if (account < accounts_.size()) own = accounts_[account].own.get();
    if (own == nullptr) return 0;
  }
  while (n < out.size()) {
    SlotId slot = own != nullptr ? evict_one(*own, kHeld, tick) : evict_any(kHeld, tick);
    if (slot == kNoSlot) break;
    all_.facts[slot].queue = 0;
    out[n++] = slot;
    // Its ancestors are next as long as nothing else keeps them and they are no warmer.
    while (n < out.size()) {
      const SlotId parent = parent_here(slot);
      if (parent == kNoSlot) break;
      if (own != nullptr && account_of(parent) != account) break;
      const policy::Facts& theirs = all_.facts[parent];
      const policy::Facts& mine = all_.facts[slot];
      if (theirs.priority == policy::kHintKeep && mine.priority != policy::kHintKeep) break;
      if (theirs.last_use.load(std::memory_order_relaxed) != mine.last_use.load(std::memory_order_relaxed)) break;
      std::atomic<uint64_t>& at = all_.slots[parent].word;
      uint64_t bits = at.load(std::memory_order_relaxed);
      if ((bits & ~SlotWord::kNotify) != (SlotWord::kRegistered | SlotWord::kOneChild)) break;
      if (!at.compare_exchange_strong(bits, bits + SlotWord::kOneReference, std::memory_order_acquire)) break;
      out[n++] = slot = parent;
    }
  }
  while (followed && n < out.size()) {
    const SlotId slot = hold_followed(account, out.first(n));
    if (slot == kNoSlot) break;
    out[n++] = slot;
  }
  return n;
}

// Holds one more block that is to be written below and then evicted. A tier is to get parents before their children, so
// its own parent must be there, or among the blocks already held for this.
SlotId SlotPool::hold_followed(AccountId account, std::span<const SlotId> held) {
  return choose_followed(account, 1, [&](SlotId at, bool now) KVBM_NO_TSA {
    const SlotId parent = parent_here(at);
    const bool comes_first = parent == kNoSlot || lies_below(at) || lies_below(parent) ||
                             std::find(held.rbegin(), held.rend(), parent) != held.rend();
    if (!now) return comes_first;
    std::atomic<uint64_t>& word = all_.slots[at].word;
    uint64_t bits = word.load(std::memory_order_relaxed);
    while (SlotWord(bits).only_followed()) {
      if (word.compare_exchange_weak(bits, bits + SlotWord::kOneReference, std::memory_order_acquire)) return true;
    }
    return false;
  });
}

size_t SlotPool::evict_held(std::span<SlotId> slots, uint32_t tick, DeferredWork& elsewhere) {
  const auto is_only_mine = [this](uint64_t bits, SlotId slot) {
    const SlotWord rest(bits - SlotWord::kOneReference);
    return rest.evictable() || (rest.only_followed() && lies_below(slot));
  };
  SlotId kept[DeferredWork::kMost];
  size_t n_kept = 0;
  size_t gone = 0;
  BatchLock lock(mutex_);
  for (const SlotId slot : slots) {
    std::atomic<uint64_t>& at = all_.slots[slot].word;
    uint64_t bits = at.load(std::memory_order_relaxed);
    bool mine = false;
    while (!mine && SlotWord(bits).references() == 1 && is_only_mine(bits, slot) && all_.meta[slot].in_policy != 0) {
      mine = at.compare_exchange_weak(bits, kEvicting, std::memory_order_acq_rel, std::memory_order_relaxed);
    }
    if (!mine) {
      kept[n_kept++] = slot;
      continue;
    }
    policy_of(slot).erased(local(slot));
    leave_evicted(slot);
    leave_parent(slot, tick, elsewhere);
    slots[gone++] = slot;
  }
  std::copy_n(kept, n_kept, slots.begin() + static_cast<std::ptrdiff_t>(gone));
  return gone;
}

// ---- notifying policies ----

void SlotPool::enter(std::span<const SlotId> slots, uint8_t priority, uint32_t tick) {
  SlotId mine[DeferredWork::kMost];
  size_t n = 0;
  BatchLock lock(mutex_);
  for (const SlotId slot : slots) {
    if (!SlotWord(all_.slots[slot].word.load(std::memory_order_acquire)).findable()) continue;  // withdrawn meanwhile
    policy::Facts& facts = all_.facts[slot];
    const SlotId parent = all_.parents.unpack(all_.slots[slot].parent.load(std::memory_order_relaxed)).slot;
    facts.last_use.store(tick, std::memory_order_relaxed);
    facts.uses.store(0, std::memory_order_relaxed);
    facts.priority = priority;
    facts.queue = 0;
    facts.next = facts.prev = kNoSlot;
    facts.aux = 0;
    facts.depth.store(parent == kNoSlot ? 0 : all_.facts[parent].depth.load(std::memory_order_relaxed) + 1,
                      std::memory_order_relaxed);
    all_.meta[slot].in_policy = 1;
    counters_.payload_bytes += payload_of(slot);
    mine[n++] = slot;
  }
  counters_.published += n;
  counters_.registered += static_cast<uint32_t>(n);
  SlotId numbers[DeferredWork::kMost];
  for (size_t i = 0; i < n; ++i) numbers[i] = local(mine[i]);
  for (size_t begin = 0; begin < n;) {
    policy::EvictionPolicy& policy = policy_of(mine[begin]);
    size_t end = own_policies_ == 0 ? n : begin + 1;
    while (end < n && &policy_of(mine[end]) == &policy) ++end;
    policy.inserted({numbers + begin, end - begin}, tick);
    for (; begin < end; ++begin) {
      const SlotId slot = mine[begin];
      if (all_.facts[slot].queue == 0) all_.slots[slot].word.fetch_or(SlotWord::kNotify, std::memory_order_relaxed);
    }
  }
}

void SlotPool::count_published(size_t duplicates, size_t ousted) {
  BatchLock lock(mutex_);
  counters_.duplicates += duplicates;
  counters_.erased += ousted;
}

void SlotPool::settle(const DeferredWork& deferred, uint32_t tick, DeferredWork& elsewhere) {
  BatchLock lock(mutex_);
  for (size_t i = 0; i < deferred.n_available; ++i) {
    if (has(deferred.available[i])) hear_available(deferred.available[i], tick);
  }
  for (size_t i = 0; i < deferred.n_freed; ++i) {
    const SlotId slot = deferred.freed[i];
    if (!has(slot)) continue;
    leave_policy(slot);
    leave_parent(slot, tick, elsewhere);
    if (Quota* const quota = all_.quotas->find(account_of(slot))) quota->used.fetch_sub(1, std::memory_order_relaxed);
    blank(slot);
  }
  for (size_t i = 0; i < deferred.n_left; ++i) {
    Parent parent = deferred.left[i];
    if (!has(parent.slot)) continue;
    while (has(parent.slot)) parent = lose_child(parent, tick);
    if (parent.slot != kNoSlot) elsewhere.left[elsewhere.n_left++] = parent;
  }
}

void SlotPool::tell_used(std::span<const SlotId> slots, uint32_t tick) noexcept {
  BatchLock lock(mutex_);
  for (const SlotId slot : slots) {
    if (slot == kNoSlot || !has(slot) || all_.meta[slot].in_policy == 0) continue;
    const SlotId number = local(slot);
    policy_of(slot).used({&number, 1}, tick);
  }
}

void SlotPool::set_priority(std::span<const SlotId> slots, uint8_t priority, uint32_t tick) {
  BatchLock lock(mutex_);
  for (const SlotId slot : slots) {
    if (!has(slot)) continue;
    all_.facts[slot].priority = priority;
    if (all_.meta[slot].in_policy == 0) continue;
    policy_of(slot).hinted(local(slot), tick);
    if (all_.facts[slot].queue == 0) all_.slots[slot].word.fetch_or(SlotWord::kNotify, std::memory_order_relaxed);
  }
}

void SlotPool::priorities(std::span<const SlotId> slots, std::span<uint8_t> out) const {
  MutexLock lock(mutex_);
  for (size_t i = 0; i < slots.size(); ++i) {
    if (has(slots[i])) out[i] = all_.facts[slots[i]].priority;
  }
}

// ---- accounts and counts ----

// Moves the account's resident blocks from the shared policy to its own, coldest first and parents before children.
void SlotPool::open_account(AccountId account, std::unique_ptr<policy::EvictionPolicy> own) {
  MutexLock lock(mutex_);
  if (account >= accounts_.size()) accounts_.resize(static_cast<size_t>(account) + 1);
  if (own == nullptr || accounts_[account].own != nullptr) return;
  std::vector<SlotId> mine;
  for (SlotId slot = first_; slot < first_ + count_; ++slot) {
    if (all_.meta[slot].in_policy != 0 && account_of(slot) == account) mine.push_back(slot);
  }
  const policy::Facts* const facts = all_.facts;
  std::sort(mine.begin(), mine.end(), [facts](SlotId a, SlotId b) {
    const uint32_t used_a = facts[a].last_use.load(std::memory_order_relaxed);
    const uint32_t used_b = facts[b].last_use.load(std::memory_order_relaxed);
    if (used_a != used_b) return used_a < used_b;
    const uint32_t depth_a = facts[a].depth.load(std::memory_order_relaxed);
    const uint32_t depth_b = facts[b].depth.load(std::memory_order_relaxed);
    return depth_a != depth_b ? depth_a < depth_b : a < b;
  });
  for (const SlotId slot : mine) {
    const SlotId number = local(slot);
    shared_->erased(number);
    all_.facts[slot].queue = 0;
    own->inserted({&number, 1}, all_.facts[slot].last_use.load(std::memory_order_relaxed));
    if (all_.facts[slot].queue == 0) all_.slots[slot].word.fetch_or(SlotWord::kNotify, std::memory_order_relaxed);
  }
  accounts_[account].own = std::move(own);
  ++own_policies_;
}

uint32_t SlotPool::used(AccountId account) const {
  MutexLock lock(mutex_);
  return account < accounts_.size() ? accounts_[account].used : 0;
}

void SlotPool::count_erased(size_t n) {
  MutexLock lock(mutex_);
  counters_.erased += n;
}

void SlotPool::add_to(Counters& sum) const {
  MutexLock lock(mutex_);
  sum.slots += counters_.slots;
  sum.free += counters_.free;
  sum.registered += counters_.registered;
  sum.payload_bytes += counters_.payload_bytes;
  sum.allocated += counters_.allocated;
  sum.published += counters_.published;
  sum.duplicates += counters_.duplicates;
  sum.evicted += counters_.evicted;
  sum.erased += counters_.erased;
  sum.policy_refused += shared_->refused();
  for (const Account& account : accounts_) sum.policy_refused += account.own != nullptr ? account.own->refused() : 0;
}

size_t SlotPool::bytes() const {
  MutexLock lock(mutex_);
  size_t total = sizeof *this + shared_->bytes() + accounts_.capacity() * sizeof(Account);
  for (const Account& account : accounts_) total += account.own != nullptr ? account.own->bytes() : 0;
  return total;
}

}  // namespace kvbm::block
