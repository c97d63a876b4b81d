// Takes and returns slots, over the pools: allocation, eviction, demotion, accounts.
#include <algorithm>

#include "base/thread/batch_lock.h"
#include "base/thread/thread_number.h"
#include "block/block_table.h"
#include "policy/hinted.h"

namespace kvbm::block {
namespace {

constexpr uint64_t kPartial = static_cast<uint64_t>(SlotState::partial) | SlotWord::kOneReference;
// A thread stays in its home pool until this pool is ahead of the pool with the fewest evictions by one kAhead-th of
// its slots. The thread chooses again after one kStint-th of the slots. So blocks stay about equally long in all pools.
constexpr uint64_t kAhead = 8;
constexpr uint64_t kStint = 32;

// Grows before anything changes, so that running out of memory changes nothing.
void reserve_for(std::vector<Evicted>* evicted, size_t n) {
  if (evicted == nullptr || evicted->capacity() - evicted->size() >= n) return;
  evicted->reserve(std::max(evicted->size() + n, evicted->capacity() * 2));
}

}  // namespace

// ---- pools ----

void BlockTable::make_pools(uint32_t n) {
  pools_.clear();
  pool_scale_ = (uint64_t{n} << 32) / slot_count_;
  const SlotPool::Arrays all{table_.get(), meta_.get(),  facts_.get(), &marks_,
                             &quotas_,     &underflows_, &below_,      parents_};
  for (SlotId first = 0; first < slot_count_;) {
    const size_t pool = pool_index(first);
    // The first slot of the next pool, consistent with pool_index().
    const auto end = static_cast<SlotId>(
        std::min<uint64_t>((((uint64_t{pool} + 1) << 32) + pool_scale_ - 1) / pool_scale_, slot_count_));
    pools_.push_back(std::make_unique<SlotPool>(all, first, end - first));
    first = end;
  }
}

std::vector<std::unique_ptr<policy::EvictionPolicy>> BlockTable::new_policies() const {
  std::vector<std::unique_ptr<policy::EvictionPolicy>> made;
  const std::span facts(facts_.get(), slot_count_);
  const policy::Residents& residents = *pools_[0]->part().residents;
  auto whole = policy::with_hints(make_policy_(policy_name_, facts, residents), facts, residents);
  if (whole == nullptr) return made;
  if (pools_.size() == 1) {
    made.push_back(std::move(whole));
    return made;
  }
  std::vector<policy::EvictionPolicy::Part> parts;
  for (const auto& pool : pools_) parts.push_back(pool->part());
  return whole->divide(parts);
}

// ---- deferred work ----

void BlockTable::settle(DeferredWork& deferred, uint32_t tick) noexcept {
  while (!deferred.empty()) {
    uint32_t members = 0;
    for (size_t i = 0; i < deferred.n_available; ++i) members |= 1U << pool_index(deferred.available[i]);
    for (size_t i = 0; i < deferred.n_freed; ++i) members |= 1U << pool_index(deferred.freed[i]);
    for (size_t i = 0; i < deferred.n_left; ++i) members |= 1U << pool_index(deferred.left[i].slot);
    DeferredWork next;
    for (; members != 0; members &= members - 1) {
      pools_[static_cast<size_t>(__builtin_ctz(members))]->settle(deferred, tick, next);
    }
    // The only work left to other pools now is for parents of freed slots.
    deferred.n_available = deferred.n_freed = 0;
    std::copy_n(next.left, next.n_left, deferred.left);
    deferred.n_left = next.n_left;
  }
}

// ---- which pool ----

BlockTable::Lane& BlockTable::lane() noexcept {
  const uint32_t number = thread_number();
  Lane& lane = lanes_[number % kLanes];
  uint32_t unknown = UINT32_MAX;
  (void)lane.home.compare_exchange_strong(unknown, number, std::memory_order_relaxed);
  return lane;
}

// Chooses the pool of a thread: its home as long as that is not far ahead of the other pools. So threads that allocate
// at the same rate stay apart, and a single one uses all pools in turn. Threads that keep contending move apart.
size_t BlockTable::first_pool(Lane& lane) noexcept {
  const size_t n = pools_.size();
  if (n == 1) return 0;
  if (lane.left.load(std::memory_order_relaxed) > 0) return lane.pool.load(std::memory_order_relaxed) % n;
  const uint64_t size = slot_count_ / n;
  const auto stint = static_cast<int32_t>(size / kStint);
  uint32_t home = lane.home.load(std::memory_order_relaxed);
  const bool was_home = lane.pool.load(std::memory_order_relaxed) % n == home % n;
  // A visitor leaves soon; from a thread that stays for many stints it is better to move away.
  const bool met = was_home && lane.waited.load(std::memory_order_relaxed) > stint / 4;
  if (lane.parts(met, thread_number())) lane.home.store(++home, std::memory_order_relaxed);
  uint64_t least = UINT64_MAX;
  for (const auto& each : pools_) least = std::min(least, each->turnover());
  // At home until it is ahead by the full limit, elsewhere until home is ahead by half of it.
  const uint64_t ahead = size / (was_home ? kAhead : kAhead * 2);
  size_t pool = home % n;
  for (size_t i = 1; i < n && pools_[pool]->turnover() > least + ahead; ++i) pool = (home + i) % n;
  lane.pool.store(static_cast<uint32_t>(pool), std::memory_order_relaxed);
  lane.left.store(stint, std::memory_order_relaxed);
  lane.waited.store(0, std::memory_order_relaxed);
  return pool;
}

// ---- allocation ----

// Takes evicting slots out of the index and reports them; they are blank afterwards.
void BlockTable::finish_evicted(std::span<const SlotId> slots, std::vector<Evicted>* evicted) noexcept {
  for (size_t begin = 0; begin < slots.size(); begin += kBatch) {
    const size_t n = std::min(kBatch, slots.size() - begin);
    PrefixIndex::Place places[kBatch];
    for (size_t i = 0; i < n; ++i) {
      const Slot& at = table_[slots[begin + i]];
      places[i] = index_.place(at.key_low.load(std::memory_order_relaxed), at.family.load(std::memory_order_relaxed));
      index_.prefetch_for_write(places[i]);
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
  finish_evicted(slots, evicted);
  each_run(slots, [this](size_t pool, auto run) { pools_[pool]->put_free(run, false); });
}

// Reserves n = out.size() slots of the account's quota, evicting its own blocks if its mode says so: those become the
// first *got slots of `out`.
Code BlockTable::reserve(AccountId account, Quota& quota, std::span<SlotId> out, size_t* got,
                         std::vector<Evicted>* evicted, uint32_t tick, bool evicting) {
  uint32_t used = quota.used.load(std::memory_order_relaxed);
  const uint32_t first_limit = quota.limit.load(std::memory_order_relaxed);
  // Most blocks that may be evicted, which is what `evicted` has room for.
  size_t most = 0;
  for (;;) {
    const uint32_t limit = quota.limit.load(std::memory_order_relaxed);
    const uint64_t wanted = static_cast<uint64_t>(used) + out.size();
    if (wanted <= limit) {
      if (quota.used.compare_exchange_weak(used, static_cast<uint32_t>(wanted), std::memory_order_relaxed))
        return Code::ok;
      continue;
    }
    const bool rejects = !evicting || quota.mode.load(std::memory_order_relaxed) == OverQuota::reject;
    if (rejects || out.size() > limit) return Code::over_quota;
    if (most == 0) {
      if (*got != 0) return Code::over_quota;  // other threads took the slots that were freed
      most = out.size() + (used > first_limit ? used - first_limit : 0);
      reserve_for(evicted, out.size() + most);
    }
    SlotId own[kBatch];
    const size_t n = evict_own(account, {own, std::min<uint64_t>({wanted - limit, kBatch, most})}, tick);
    if (n == 0) return Code::over_quota;
    most -= n;
    // Slots beyond a lowered limit, and those not needed, are freed.
    const size_t beyond = used > limit ? std::min<size_t>(used - limit, n) : 0;
    const size_t kept = std::min(n - beyond, out.size() - *got);
    std::copy_n(own + beyond, kept, out.begin() + static_cast<std::ptrdiff_t>(*got));
    *got += kept;
    free_evicted({own, beyond}, evicted);
    free_evicted({own + beyond + kept, n - beyond - kept}, evicted);
    used = quota.used.load(std::memory_order_relaxed);
  }
}

size_t BlockTable::evict_own(AccountId account, std::span<SlotId> out, uint32_t tick) {
  const size_t first = first_pool(lane());
  size_t got = 0;
  for (bool again = true; again && got < out.size();) {
    again = false;
    for (size_t i = 0; i < pools_.size() && got < out.size(); ++i) {
      DeferredWork deferred;
      got += pools_[(first + i) % pools_.size()]->evict_own(account, out.subspan(got), tick, deferred);
      again = again || !deferred.empty();  // a parent in another pool may be evictable now
      settle(deferred, tick);
    }
  }
  return got;
}

// Takes kBatch slots at most: free slots of any pool, then evicted ones.
size_t BlockTable::take_some(AccountId account, std::span<SlotId> out, uint32_t tick, bool evicting) {
  Lane& mine = lane();
  const size_t first = first_pool(mine);
  const size_t n = pools_.size();
  bool free_elsewhere = false;
  for (size_t i = 1; i < n; ++i) free_elsewhere = free_elsewhere || pools_[(first + i) % n]->free_now() != 0;
  size_t got = 0;
  for (size_t i = 0; (free_elsewhere || !evicting) && i < n && got < out.size(); ++i) {
    DeferredWork none;
    got += pools_[(first + i) % n]->take(account, out.subspan(got), false, tick, none, nullptr);
  }
  for (bool again = evicting; again && got < out.size();) {
    again = false;
    for (size_t i = 0; i < n && got < out.size(); ++i) {
      DeferredWork deferred;
      bool waited = false;
      const size_t taken = pools_[(first + i) % n]->take(account, out.subspan(got), true, tick, deferred, &waited);
      got += taken;
      if (n > 1) note_taken(mine, taken, waited);
      again = again || !deferred.empty();  // a parent in another pool may be evictable now
      settle(deferred, tick);
    }
  }
  return got;
}

// Threads with one number may run in between: then the counts are too low.
void BlockTable::note_taken(Lane& lane, size_t slots, bool waited) noexcept {
  const auto n = static_cast<int32_t>(slots);
  lane.left.store(lane.left.load(std::memory_order_relaxed) - n, std::memory_order_relaxed);
  if (waited) lane.waited.store(lane.waited.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

Code BlockTable::allocate(AccountId account, std::span<SlotId> out, std::vector<Evicted>* evicted, uint32_t tick,
                          bool evicting) {
  reserve_for(evicted, out.size());
  Quota* const quota = quotas_.find(account);
  if (account != kSharedAccount && quota == nullptr) return Code::invalid_argument;
  if (out.size() > slot_count_) return Code::no_room;
  size_t got = 0;
  Code code = quota == nullptr ? Code::ok : reserve(account, *quota, out, &got, evicted, tick, evicting);
  const bool reserved = quota != nullptr && code == Code::ok;
  const size_t own = got;
  while (code == Code::ok && got < out.size()) {
    const size_t n = take_some(account, out.subspan(got, std::min(kBatch, out.size() - got)), tick, evicting);
    if (n == 0) code = Code::no_room;
    got += n;
  }
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
  if (code == Code::ok) {
    if (own != 0)
      each_run(out.first(own), [this](size_t pool, auto run) { pools_[pool]->count_allocated(run.size()); });
    return code;
  }
  // Returned in reverse, so that the free lists are as before.
  std::reverse(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(got));
  each_run(out.first(got - own), [this](size_t pool, auto run) { pools_[pool]->put_free(run, true); });
  each_run(out.subspan(got - own, own), [this](size_t pool, auto run) { pools_[pool]->put_free(run, false); });
  if (reserved) quota->used.fetch_sub(static_cast<uint32_t>(out.size()), std::memory_order_relaxed);
  return code;
}

// ---- demotion ----

// Takes an equal share of each pool, then the rest from pools that have more.
size_t BlockTable::select_cold(std::span<SlotId> out, uint32_t tick, AccountId account, bool followed) {
  size_t n = 0;
  const size_t pools = pools_.size();
  for (size_t i = 0; i < pools; ++i) {
    const size_t share = (out.size() - n) / (pools - i);
    n += pools_[i]->select_cold(out.subspan(n, share), tick, account, followed);
  }
  for (size_t i = 0; i + 1 < pools && n < out.size(); ++i) {
    n += pools_[i]->select_cold(out.subspan(n), tick, account, followed);
  }
  return n;
}

size_t BlockTable::evict_held(std::span<const SlotId> slots, std::vector<Evicted>* evicted, uint32_t tick) {
  reserve_for(evicted, slots.size());
  size_t count = 0;
  for (size_t begin = 0; begin < slots.size(); begin += kBatch) {
    SlotId batch[kBatch];
    const size_t n = std::min(kBatch, slots.size() - begin);
    std::copy_n(slots.begin() + static_cast<std::ptrdiff_t>(begin), n, batch);
    each_run(std::span<SlotId>(batch, n), [&](size_t pool, auto run) {
      DeferredWork deferred;
      const size_t gone = pools_[pool]->evict_held(run, tick, deferred);
      settle(deferred, tick);
      free_evicted(run.first(gone), evicted);
      drop(run.subspan(gone), SlotWord::kOneReference, tick);
      count += gone;
    });
  }
  return count;
}

// ---- accounts ----

Code BlockTable::set_limit(AccountId account, uint32_t slots, OverQuota mode, std::vector<Evicted>* evicted,
                           uint32_t tick) {
  if (account == kSharedAccount || account >= kMaxAccounts) return Code::invalid_argument;
  Quota& quota = quotas_.make(account);
  std::vector<std::unique_ptr<policy::EvictionPolicy>> own(pools_.size());
  if (slots != kNoLimit && quota.limit.load(std::memory_order_relaxed) == kNoLimit && !quota.has_policy) {
    own = new_policies();
    if (own.empty()) return Code::no_memory;
    quota.has_policy = true;
  }
  for (size_t i = 0; i < pools_.size(); ++i) pools_[i]->open_account(account, std::move(own[i]));
  quota.mode.store(mode, std::memory_order_relaxed);
  quota.limit.store(slots, std::memory_order_relaxed);
  quota.exists.store(true, std::memory_order_release);
  for (uint32_t used = quota.used.load(std::memory_order_relaxed); used > slots;
       used = quota.used.load(std::memory_order_relaxed)) {
    SlotId surplus[kBatch];
    reserve_for(evicted, kBatch);
    const size_t n = evict_own(account, {surplus, std::min<size_t>(used - slots, kBatch)}, tick);
    if (n == 0) break;
    free_evicted({surplus, n}, evicted);
  }
  return Code::ok;
}

AccountUse BlockTable::account_use(AccountId account) const {
  if (const Quota* const quota = quotas_.find(account)) {
    return {quota->used.load(std::memory_order_relaxed), quota->limit.load(std::memory_order_relaxed),
            quota->mode.load(std::memory_order_relaxed)};
  }
  AccountUse use;
  if (account == kSharedAccount) {
    for (const auto& pool : pools_) use.used += pool->used(account);
  }
  return use;
}

void BlockTable::set_priority(std::span<const SlotId> slots, uint8_t priority, uint32_t tick) {
  for (const auto& pool : pools_) pool->set_priority(slots, priority, tick);
}

void BlockTable::priorities(std::span<const SlotId> slots, std::span<uint8_t> out) const {
  for (const auto& pool : pools_) pool->priorities(slots, out);
}

}  // namespace kvbm::block
