// complete -> registered, and the other way: names given to blocks and taken from them.
#include <algorithm>

#include "block/batch_lock.h"
#include "block/block_table.h"

namespace kvbm::block {
namespace {

constexpr uint64_t kComplete = static_cast<uint64_t>(SlotState::complete);
constexpr uint64_t kToRegistered = SlotWord::kRegistered - kComplete;
static_assert(SlotWord::kRegistered > kComplete);
// Far enough from the end of the field for every thread that looked before it added.
constexpr uint32_t kMaxChildren = 0xFFFFFF - 0xFFFF;

}  // namespace

// What one batch of a publication leaves to do after the index.
struct BlockTable::Fresh {
  SlotId slots[kBatch];  // registered and listed
  size_t n = 0;
  SlotId freed[kBatch];  // the caller's slots of rejected duplicates
  size_t n_freed = 0;
  size_t duplicates = 0;
  SlotId previous = kNoSlot;  // parent of the next key of a chain
  bool borrowed = false;      // a reference to `previous` is ours
};

Code BlockTable::complete(std::span<const SlotId> slots) noexcept {
  constexpr uint64_t kStep = kComplete - static_cast<uint64_t>(SlotState::partial);
  for (const SlotId slot : slots) {
    if (slot >= slot_count_) return Code::invalid_argument;
    if (SlotWord(table_[slot].word.load(std::memory_order_relaxed)).state() != SlotState::partial)
      return Code::wrong_state;
  }
  for (const SlotId slot : slots) table_[slot].word.fetch_add(kStep, std::memory_order_release);
  return Code::ok;
}

// The parent is held by the caller or by this call, so it cannot go before its count is raised.
void BlockTable::join_parent(SlotId slot, SlotId parent) noexcept {
  table_[slot].parent.store(parent, std::memory_order_relaxed);
  if (parent != kNoSlot) table_[parent].word.fetch_add(SlotWord::kOneChild, std::memory_order_relaxed);
}

Code BlockTable::publish_one(SlotId& inout, const Search& key, SlotId parent, const Publication& what,
                             Fresh& fresh) noexcept {
  const SlotId slot = inout;
  if (slot >= slot_count_) return Code::invalid_argument;
  Slot& at = table_[slot];
  if (SlotWord(at.word.load(std::memory_order_relaxed)).state() != SlotState::complete) return Code::wrong_state;
  if (parent != kNoSlot) {
    if (parent >= slot_count_ || parent == slot || word(parent).state() != SlotState::registered)
      return Code::invalid_argument;
    if (word(parent).children() >= kMaxChildren) parent = kNoSlot;
  }
  SlotId existing = kNoSlot;
  {
    MutexLock lock(index_.lock_of(key.place));
    existing = find_and_take(key, what.family);
    if (existing == kNoSlot && !index_.insert(key.place, slot)) return Code::no_room;
    at.key_low.store(key.low, std::memory_order_relaxed);
    at.key_high.store(key.high, std::memory_order_relaxed);
    at.family.store(what.family, std::memory_order_relaxed);
    if (existing == kNoSlot) {
      join_parent(slot, parent);
      at.word.fetch_add(kToRegistered, std::memory_order_release);
      fresh.slots[fresh.n++] = slot;
      return Code::ok;
    }
  }
  ++fresh.duplicates;
  if (what.duplicates == DuplicateMode::reject) {
    fresh.freed[fresh.n_freed++] = slot;
    inout = existing;
  } else {
    at.word.fetch_add(kToRegistered | SlotWord::kWithdrawn, std::memory_order_release);
    fresh.previous = existing;
    fresh.borrowed = true;
  }
  return Code::exists;
}

Code BlockTable::publish(std::span<SlotId> inout, const Publication& what, std::span<Code> codes) {
  if (inout.size() != what.keys.size() || (!codes.empty() && codes.size() < inout.size()) ||
      (what.lineage == Lineage::given && what.parents.size() != inout.size())) {
    return Code::invalid_argument;
  }
  Search search[kBatch];
  Fresh fresh;
  if (what.lineage == Lineage::chain) fresh.previous = what.first_parent;
  bool all = true;
  for (size_t begin = 0; begin < inout.size(); begin += kBatch) {
    const size_t n = std::min(kBatch, inout.size() - begin);
    prepare(what.family, what.keys.subspan(begin, n), search);
    fresh.n = fresh.n_freed = fresh.duplicates = 0;
    for (size_t i = 0; i < n; ++i) {
      SlotId& slot = inout[begin + i];
      SlotId parent = kNoSlot;
      if (what.lineage == Lineage::chain) parent = fresh.previous;
      if (what.lineage == Lineage::given) parent = what.parents[begin + i];
      const bool borrowed = std::exchange(fresh.borrowed, false);
      const SlotId before = std::exchange(fresh.previous, kNoSlot);
      const Code code = publish_one(slot, search[i], parent, what, fresh);
      if (borrowed) release({&before, 1}, what.tick);
      // What is now found under the key is the parent of the next.
      if (!fresh.borrowed && (code == Code::ok || code == Code::exists)) fresh.previous = slot;
      if (!codes.empty()) codes[begin + i] = code;
      all = all && (code == Code::ok || code == Code::exists);
    }
    enter_policy(what, fresh);
    release({fresh.freed, fresh.n_freed}, what.tick);
  }
  if (fresh.borrowed) release({&fresh.previous, 1}, what.tick);
  return all ? Code::ok : Code::partial;
}

// The slots are held by the publisher, so none of them can be evicted before its policy knows it.
void BlockTable::enter_policy(const Publication& what, Fresh& fresh) {
  BatchLock lock(pool_);
  counters_.duplicates += fresh.duplicates;
  size_t n = 0;
  for (size_t i = 0; i < fresh.n; ++i) {
    const SlotId slot = fresh.slots[i];
    if (!word(slot).findable()) continue;  // withdrawn meanwhile
    policy::Facts& facts = facts_[slot];
    const SlotId parent = table_[slot].parent.load(std::memory_order_relaxed);
    facts.last_use.store(what.tick, std::memory_order_relaxed);
    facts.uses.store(0, std::memory_order_relaxed);
    facts.priority = what.priority;
    facts.queue = 0;
    facts.next = facts.prev = kNoSlot;
    facts.aux = 0;
    facts.depth = parent == kNoSlot ? 0 : facts_[parent].depth + 1;
    meta_[slot].in_policy = 1;
    fresh.slots[n++] = slot;
  }
  counters_.published += n;
  counters_.registered += static_cast<uint32_t>(n);
  for (size_t begin = 0; begin < n;) {
    policy::EvictionPolicy& policy = policy_of(fresh.slots[begin]);
    size_t end = begin + 1;
    while (end < n && &policy_of(fresh.slots[end]) == &policy) ++end;
    policy.inserted({fresh.slots + begin, end - begin}, what.tick);
    for (; begin < end; ++begin) {
      const SlotId slot = fresh.slots[begin];
      if (facts_[slot].queue == 0) table_[slot].word.fetch_or(SlotWord::kNotify, std::memory_order_relaxed);
    }
  }
}

void BlockTable::tell_used(std::span<const SlotId> slots, uint32_t tick) noexcept {
  BatchLock lock(pool_);
  for (const SlotId slot : slots) {
    if (slot != kNoSlot && meta_[slot].in_policy != 0) policy_of(slot).used({&slot, 1}, tick);
  }
}

// ---- erasing ----

// True for the one who withdrew it. The caller holds a reference.
bool BlockTable::withdraw(SlotId slot) noexcept {
  const SlotWord old(table_[slot].word.fetch_or(SlotWord::kWithdrawn, std::memory_order_acq_rel));
  if (old.withdrawn()) return false;
  unlist(slot);
  return true;
}

void BlockTable::count_erased(size_t n) {
  if (n == 0) return;
  MutexLock lock(pool_);
  counters_.erased += n;
}

size_t BlockTable::erase(FamilyId family, std::span<const Key> keys) {
  Search search[kBatch];
  size_t count = 0;
  for (size_t begin = 0; begin < keys.size(); begin += kBatch) {
    const size_t n = std::min(kBatch, keys.size() - begin);
    prepare(family, keys.subspan(begin, n), search);
    SlotId held[kBatch];
    size_t n_held = 0;
    for (size_t i = 0; i < n; ++i) {
      const SlotId slot = find_and_take(search[i], family);
      if (slot == kNoSlot) continue;
      count += withdraw(slot) ? 1 : 0;
      held[n_held++] = slot;
    }
    release({held, n_held});
  }
  count_erased(count);
  return count;
}

template <class Match>
size_t BlockTable::erase_where(Match&& match) {
  size_t count = 0;
  for (SlotId slot = 0; slot < slot_count_; ++slot) {
    std::atomic<uint64_t>& at = table_[slot].word;
    uint64_t bits = at.load(std::memory_order_relaxed);
    bool held = false;
    while (!held && SlotWord(bits).findable()) {
      held = at.compare_exchange_weak(bits, bits + SlotWord::kOneReference, std::memory_order_acquire,
                                      std::memory_order_relaxed);
    }
    if (!held) continue;
    if (match(table_[slot].family.load(std::memory_order_relaxed)) && withdraw(slot)) ++count;
    release({&slot, 1});
  }
  count_erased(count);
  return count;
}

size_t BlockTable::erase_family(FamilyId family) {
  return erase_where([family](FamilyId of) { return of == family; });
}

size_t BlockTable::erase_all() {
  return erase_where([](FamilyId) { return true; });
}

}  // namespace kvbm::block
