// What happens under the pool lock: free list, policies, accounts; allocation and eviction.
#include <algorithm>

#include "block/batch_lock.h"
#include "block/block_table.h"
#include "policy/hinted.h"
#include "policy/hints.h"

namespace kvbm::block {
namespace {

constexpr uint64_t kEvicting = static_cast<uint64_t>(SlotState::evicting);
constexpr uint64_t kPartial = static_cast<uint64_t>(SlotState::partial) | SlotWord::kOneReference;

// Grows before anything changes, so that running out of memory changes nothing.
void reserve_for(std::vector<Evicted>* evicted, size_t n) {
  if (evicted == nullptr || evicted->capacity() - evicted->size() >= n) return;
  evicted->reserve(std::max(evicted->size() + n, evicted->capacity() * 2));
}

}  // namespace

// ---- policy::Residents ----

// A slot that cannot go is marked, in the same step as it is judged, so that whoever makes it
// evictable tells the policy.
bool BlockTable::evictable(SlotId slot) const noexcept {
  std::atomic<uint64_t>& at = table_[slot].word;
  uint64_t bits = at.load(std::memory_order_relaxed);
  for (;;) {
    const SlotWord now(bits);
    if (now.evictable()) return true;
    if (!now.findable() || now.notify()) return false;
    if (at.compare_exchange_weak(bits, bits | SlotWord::kNotify, std::memory_order_relaxed)) return false;
  }
}

uint64_t BlockTable::name(SlotId slot) const noexcept { return table_[slot].identity().hash(); }

// ---- one slot ----

std::unique_ptr<policy::EvictionPolicy> BlockTable::new_policy() const {
  const std::span facts(facts_.get(), slot_count_);
  return policy::with_hints(make_policy_(policy_name_, facts, *this), facts, *this);
}

policy::EvictionPolicy& BlockTable::policy_of(SlotId slot) {
  Account& account = accounts_[meta_[slot].account.load(std::memory_order_relaxed)];
  return account.own != nullptr ? *account.own : *shared_;
}

void BlockTable::leave_policy(SlotId slot) {
  if (meta_[slot].in_policy == 0) return;
  meta_[slot].in_policy = 0;
  --counters_.registered;
  counters_.payload_bytes -= payload_bytes(slot);
  policy_of(slot).erased(slot);
  facts_[slot].queue = 0;
}

SlotId BlockTable::take_parent(SlotId slot) {
  const SlotId parent = table_[slot].parent.load(std::memory_order_relaxed);
  if (parent != kNoSlot) table_[slot].parent.store(kNoSlot, std::memory_order_relaxed);
  return parent;
}

// The slot stops being a child; a parent that this makes evictable is announced, one that was only
// waiting for it is freed.
void BlockTable::leave_parent(SlotId slot, uint32_t tick) {
  SlotId parent = take_parent(slot);
  while (parent != kNoSlot) {
    const SlotWord now(table_[parent].word.fetch_sub(SlotWord::kOneChild, std::memory_order_acq_rel) -
                       SlotWord::kOneChild);
    if (now.evictable()) {
      if (now.notify()) hear_available(parent, tick);
      return;
    }
    if (!now.reapable() || !try_reap(parent)) return;
    const SlotId grandparent = take_parent(parent);
    leave_policy(parent);
    push_free(parent);
    parent = grandparent;
  }
}

void BlockTable::hear_available(SlotId slot, uint32_t tick) {
  // The slot may have been taken, or freed and used again, since it woke: judge it as it is now.
  if (meta_[slot].in_policy == 0) return;
  table_[slot].word.fetch_and(~SlotWord::kNotify, std::memory_order_relaxed);
  if (facts_[slot].queue != 0 || !evictable(slot)) return;
  policy_of(slot).available(slot, tick);
  if (facts_[slot].queue == 0) table_[slot].word.fetch_or(SlotWord::kNotify, std::memory_order_relaxed);
}

void BlockTable::push_free(SlotId slot) {
  marks_.none(slot);
  SlotMeta& meta = meta_[slot];
  --accounts_[meta.account.load(std::memory_order_relaxed)].used;
  meta.generation.store(meta.generation.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  meta.flags.store(0, std::memory_order_relaxed);
  facts_[slot].next = free_head_;
  free_head_ = slot;
  ++counters_.free;
  table_[slot].word.store(static_cast<uint64_t>(SlotState::reset), std::memory_order_release);
}

// Thread: the one that withdrew the slot, which it holds.
void BlockTable::unlist(SlotId slot) noexcept {
  const Slot& at = table_[slot];
  const auto place =
      index_.place(at.key_low.load(std::memory_order_relaxed), at.family.load(std::memory_order_relaxed));
  BatchLock lock(index_.lock_of(place));
  (void)index_.remove(place, slot);
}

void BlockTable::report(SlotId slot, std::vector<Evicted>* evicted) const {
  if (evicted == nullptr) return;
  const SlotMeta& meta = meta_[slot];
  evicted->push_back({table_[slot].identity(), slot, meta.account.load(std::memory_order_relaxed),
                      meta.flags.load(std::memory_order_acquire), meta.generation.load(std::memory_order_relaxed)});
}

// ---- eviction ----

// Moves the policy's choice to the word `to`. A choice that is taken by a lookup in between has
// been marked by evictable(), and comes back through available().
SlotId BlockTable::evict_one(policy::EvictionPolicy& from, uint64_t to, uint32_t tick) {
  for (;;) {
    const SlotId slot = from.evict(tick);
    if (slot == kNoSlot) return kNoSlot;
    std::atomic<uint64_t>& at = table_[slot].word;
    do {
      uint64_t bits = at.load(std::memory_order_relaxed);
      while (SlotWord(bits).evictable()) {
        if (at.compare_exchange_weak(bits, to, std::memory_order_acq_rel, std::memory_order_relaxed)) return slot;
      }
    } while (evictable(slot));
  }
}

// From the policy with most slots in use, so that no account's blocks are safe only because they
// are counted apart; among equals the lowest account.
SlotId BlockTable::evict_any(uint64_t to, uint32_t tick) {
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

// The slot has just become `evicting`: it leaves its policy, its account and its parent.
void BlockTable::leave_evicted(SlotId slot, uint32_t tick) {
  marks_.none(slot);
  meta_[slot].in_policy = 0;
  facts_[slot].queue = 0;
  --counters_.registered;
  counters_.payload_bytes -= payload_bytes(slot);
  ++counters_.evicted;
  --accounts_[meta_[slot].account.load(std::memory_order_relaxed)].used;
  leave_parent(slot, tick);
}

// Takes evicting slots out of the index and reports them; they are blank afterwards.
void BlockTable::finish_evicted(std::span<const SlotId> slots, std::vector<Evicted>* evicted) noexcept {
  for (size_t begin = 0; begin < slots.size(); begin += kBatch) {
    const size_t n = std::min(kBatch, slots.size() - begin);
    PrefixIndex::Place places[kBatch];
    for (size_t i = 0; i < n; ++i) {
      const Slot& at = table_[slots[begin + i]];
      places[i] = index_.place(at.key_low.load(std::memory_order_relaxed), at.family.load(std::memory_order_relaxed));
      index_.prefetch(places[i]);
    }
    index_.by_partition(
        n, [&](size_t i) { return places[i]; }, [&](size_t i) { (void)index_.remove(places[i], slots[begin + i]); });
    for (size_t i = 0; i < n; ++i) {
      report(slots[begin + i], evicted);
      SlotMeta& meta = meta_[slots[begin + i]];
      meta.generation.store(meta.generation.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      meta.flags.store(0, std::memory_order_relaxed);
    }
  }
}

void BlockTable::free_evicted(std::span<const SlotId> slots, std::vector<Evicted>* evicted) {
  if (slots.empty()) return;
  finish_evicted(slots, evicted);
  BatchLock lock(pool_);
  for (const SlotId slot : slots) {
    ++accounts_[meta_[slot].account.load(std::memory_order_relaxed)].used;  // push_free takes it off again
    push_free(slot);
  }
}

// Fills out[*got..) from the account's own blocks where its limit asks for it, then from the free
// list, then by eviction. Evicted slots are in `evicting` and still listed in the index.
Code BlockTable::make_room(Account& account, std::span<SlotId> out, size_t* got, std::vector<SlotId>* surplus,
                           uint32_t tick) {
  const uint64_t wanted = static_cast<uint64_t>(account.used) + out.size();
  if (wanted > account.limit) {
    if (account.mode == OverQuota::reject || out.size() > account.limit) return Code::over_quota;
    if (account.used > account.limit) surplus->reserve(account.used - account.limit);
    while (static_cast<uint64_t>(account.used) + out.size() > account.limit) {
      const SlotId slot = evict_one(*account.own, kEvicting, tick);
      if (slot == kNoSlot) return Code::over_quota;
      if (account.used > account.limit) {
        surplus->push_back(slot);  // the limit has moved below the use
      } else {
        out[(*got)++] = slot;
      }
      leave_evicted(slot, tick);
    }
  }
  while (*got < out.size()) {
    SlotId slot = free_head_;
    if (slot != kNoSlot) {
      free_head_ = facts_[slot].next;
      --counters_.free;
      out[(*got)++] = slot;
      continue;
    }
    slot = evict_any(kEvicting, tick);
    if (slot == kNoSlot) return Code::no_room;
    out[(*got)++] = slot;
    leave_evicted(slot, tick);
  }
  return Code::ok;
}

Code BlockTable::allocate(AccountId account, std::span<SlotId> out, std::vector<Evicted>* evicted, uint32_t tick) {
  reserve_for(evicted, out.size());
  std::vector<SlotId> surplus;
  Code code = Code::ok;
  size_t got = 0;
  {
    BatchLock lock(pool_);
    if (account >= accounts_.size() || !accounts_[account].exists) return Code::invalid_argument;
    if (out.size() > slot_count_) return Code::no_room;
    code = make_room(accounts_[account], out, &got, &surplus, tick);
    accounts_[account].used += static_cast<uint32_t>(got);
    if (code == Code::ok) counters_.allocated += got;
  }
  free_evicted(surplus, evicted);
  // Slots off the free list are reset, the others are evicting: runs of the latter are finished together.
  for (size_t begin = 0; begin < got;) {
    size_t end = begin;
    while (end < got && word(out[end]).state() == SlotState::evicting) ++end;
    finish_evicted(out.subspan(begin, end - begin), evicted);
    begin = end + (end == begin ? 1 : 0);
  }
  for (const SlotId slot : out.first(got)) {
    meta_[slot].account.store(account, std::memory_order_relaxed);
    table_[slot].word.store(kPartial, std::memory_order_release);
  }
  if (code == Code::ok) return code;
  BatchLock lock(pool_);
  // Back in reverse, so that the free list is as it was.
  for (size_t i = got; i-- > 0;) push_free(out[i]);
  return code;
}

// ---- demotion ----

size_t BlockTable::select_cold(std::span<SlotId> out, uint32_t tick) {
  constexpr uint64_t kHeld = SlotWord::kRegistered | SlotWord::kNotify | SlotWord::kOneReference;
  size_t n = 0;
  BatchLock lock(pool_);
  while (n < out.size()) {
    SlotId slot = evict_any(kHeld, tick);
    if (slot == kNoSlot) break;
    facts_[slot].queue = 0;
    out[n++] = slot;
    // Its ancestors come next as long as nothing else keeps them and they are no warmer.
    while (n < out.size()) {
      const SlotId parent = table_[slot].parent.load(std::memory_order_relaxed);
      if (parent == kNoSlot || meta_[parent].in_policy == 0) break;
      if (facts_[parent].priority == policy::kHintKeep && facts_[slot].priority != policy::kHintKeep) break;
      if (facts_[parent].last_use.load(std::memory_order_relaxed) !=
          facts_[slot].last_use.load(std::memory_order_relaxed)) {
        break;
      }
      std::atomic<uint64_t>& at = table_[parent].word;
      uint64_t bits = at.load(std::memory_order_relaxed);
      if ((bits & ~SlotWord::kNotify) != (SlotWord::kRegistered | SlotWord::kOneChild)) break;
      if (!at.compare_exchange_strong(bits, bits + SlotWord::kOneReference, std::memory_order_acquire)) break;
      out[n++] = slot = parent;
    }
  }
  return n;
}

size_t BlockTable::evict_held(std::span<const SlotId> slots, std::vector<Evicted>* evicted, uint32_t tick) {
  constexpr uint64_t kOnlyMine = SlotWord::kRegistered | SlotWord::kOneReference;
  reserve_for(evicted, slots.size());
  size_t count = 0;
  for (size_t begin = 0; begin < slots.size(); begin += kBatch) {
    const auto batch = slots.subspan(begin, std::min(kBatch, slots.size() - begin));
    SlotId kept[kBatch];
    SlotId gone[kBatch];
    size_t n_kept = 0;
    size_t n_gone = 0;
    {
      BatchLock lock(pool_);
      for (const SlotId slot : batch) {
        std::atomic<uint64_t>& at = table_[slot].word;
        uint64_t bits = at.load(std::memory_order_relaxed);
        bool mine = false;
        while (!mine && (bits & ~SlotWord::kNotify) == kOnlyMine && meta_[slot].in_policy != 0) {
          mine = at.compare_exchange_weak(bits, kEvicting, std::memory_order_acq_rel, std::memory_order_relaxed);
        }
        if (!mine) {
          kept[n_kept++] = slot;
          continue;
        }
        policy_of(slot).erased(slot);
        leave_evicted(slot, tick);
        gone[n_gone++] = slot;
      }
    }
    free_evicted({gone, n_gone}, evicted);
    drop({kept, n_kept}, SlotWord::kOneReference, tick);
    count += n_gone;
  }
  return count;
}

// ---- accounts ----

Code BlockTable::set_limit(AccountId account, uint32_t slots, OverQuota mode, std::vector<Evicted>* evicted,
                           uint32_t tick) {
  if (account == kSharedAccount || account >= kMaxAccounts) return Code::invalid_argument;
  std::vector<SlotId> surplus;
  const Code code = move_limit(account, slots, mode, &surplus, tick);
  free_evicted(surplus, evicted);
  return code;
}

Code BlockTable::move_limit(AccountId account, uint32_t slots, OverQuota mode, std::vector<SlotId>* surplus,
                            uint32_t tick) {
  MutexLock lock(pool_);
  if (account >= accounts_.size()) accounts_.resize(static_cast<size_t>(account) + 1);
  Account& at = accounts_[account];
  if (slots != kNoLimit && at.own == nullptr) {
    auto own = new_policy();
    if (own == nullptr) return Code::no_memory;
    move_to_own(account, *own);
    at.own = std::move(own);
    ++own_policies_;
  }
  at.exists = true;
  at.limit = slots;
  at.mode = mode;
  while (at.used > at.limit) {
    const SlotId slot = evict_one(*at.own, kEvicting, tick);
    if (slot == kNoSlot) break;
    surplus->push_back(slot);
    leave_evicted(slot, tick);
  }
  return Code::ok;
}

// The account's resident blocks change from the shared policy to its own, coldest first and
// parents before children.
void BlockTable::move_to_own(AccountId account, policy::EvictionPolicy& own) {
  std::vector<SlotId> mine;
  for (SlotId slot = 0; slot < slot_count_; ++slot) {
    if (meta_[slot].in_policy != 0 && meta_[slot].account.load(std::memory_order_relaxed) == account) {
      mine.push_back(slot);
    }
  }
  std::sort(mine.begin(), mine.end(), [this](SlotId a, SlotId b) {
    const uint32_t used_a = facts_[a].last_use.load(std::memory_order_relaxed);
    const uint32_t used_b = facts_[b].last_use.load(std::memory_order_relaxed);
    if (used_a != used_b) return used_a < used_b;
    return facts_[a].depth != facts_[b].depth ? facts_[a].depth < facts_[b].depth : a < b;
  });
  for (const SlotId slot : mine) {
    shared_->erased(slot);
    facts_[slot].queue = 0;
    own.inserted({&slot, 1}, facts_[slot].last_use.load(std::memory_order_relaxed));
    if (facts_[slot].queue == 0) table_[slot].word.fetch_or(SlotWord::kNotify, std::memory_order_relaxed);
  }
}

AccountUse BlockTable::account_use(AccountId account) const {
  MutexLock lock(pool_);
  if (account >= accounts_.size()) return {};
  return {accounts_[account].used, accounts_[account].limit, accounts_[account].mode};
}

void BlockTable::set_priority(std::span<const SlotId> slots, uint8_t priority, uint32_t tick) {
  BatchLock lock(pool_);
  for (const SlotId slot : slots) {
    facts_[slot].priority = priority;
    if (meta_[slot].in_policy == 0) continue;
    policy_of(slot).hinted(slot, tick);
    if (facts_[slot].queue == 0) table_[slot].word.fetch_or(SlotWord::kNotify, std::memory_order_relaxed);
  }
}

void BlockTable::priorities(std::span<const SlotId> slots, std::span<uint8_t> out) const {
  MutexLock lock(pool_);
  for (size_t i = 0; i < slots.size(); ++i) out[i] = facts_[slots[i]].priority;
}

}  // namespace kvbm::block
