// Construction, lookups, references. Budget: per block no lock, no allocation, no system call.
#include "block/block_table.h"

#include <algorithm>

#include "base/prefetch.h"

namespace kvbm::block {
namespace {

// Large enough that blocks stay nearly as long as in an undivided table, and that the policies' memory (82 KiB) is
// small for each pool.
constexpr uint32_t kSlotsPerPool = 65536;

}  // namespace

Result<std::unique_ptr<BlockTable>> BlockTable::create(const Options& options) {
  if (options.slots == 0) return Status(Code::bad_config, "a block table needs at least one slot");
  if (options.slots == kNoSlot) return Status(Code::bad_config, "a block table has at most 2^32 - 2 slots");
  if (!options.marks.empty() && options.marks.size() < options.slots) {
    return Status(Code::invalid_argument, "a block table needs a mark for each slot, or none");
  }
  if (options.make == nullptr) return Status(Code::bad_config, "a block table needs a policy factory");
  std::unique_ptr<BlockTable> table(new BlockTable(options));
  auto policies = table->new_policies();
  if (policies.empty() && table->pools_.size() > 1) {
    table->make_pools(1);
    policies = table->new_policies();
  }
  if (policies.empty()) return Status(Code::bad_config, "no eviction policy has this name", options.policy);
  table->hears_uses_.store(policies[0]->hears_uses(), std::memory_order_relaxed);
  for (size_t i = 0; i < policies.size(); ++i) table->pools_[i]->start(std::move(policies[i]));
  return table;
}

BlockTable::BlockTable(const Options& options)
    : slot_count_(options.slots),
      parents_(options.slots),
      policy_name_(options.policy),
      make_policy_(options.make),
      table_(std::make_unique<Slot[]>(options.slots)),
      meta_(std::make_unique<SlotMeta[]>(options.slots)),
      facts_(std::make_unique<policy::Facts[]>(options.slots)),
      index_(options.slots),
      marks_(options.marks) {
  const uint32_t wanted = options.pools != 0 ? options.pools : slot_count_ / kSlotsPerPool;
  make_pools(std::clamp(wanted, 1U, std::min(kMaxPools, slot_count_)));
}

BlockTable::~BlockTable() = default;

void BlockTable::prepare(FamilyId family, std::span<const Key> keys, Search* out, Intent intent) const noexcept {
  for (size_t i = 0; i < keys.size(); ++i) {
    out[i].low = keys[i].low();
    out[i].high = keys[i].high();
    out[i].place = index_.place(out[i].low, family);
    if (intent == Intent::write) {
      index_.prefetch_for_write(out[i].place);
    } else {
      index_.prefetch(out[i].place);
    }
  }
}

bool BlockTable::take(SlotId slot, const Search& key, FamilyId family) noexcept {
  Slot& at = table_[slot];
  uint64_t bits = at.word.load(std::memory_order_relaxed);
  if (!at.is(key.low, key.high, family)) return false;
  do {
    const SlotWord now(bits);
    if (!now.findable() || now.references() >= SlotWord::kMaxReferences) return false;
  } while (!at.word.compare_exchange_weak(bits, bits + SlotWord::kOneReference, std::memory_order_acquire,
                                          std::memory_order_relaxed));
  // The comparison may have seen an earlier block of the slot; with the reference the block stays.
  if (at.is(key.low, key.high, family)) return true;
  drop({&slot, 1}, SlotWord::kOneReference, 0);
  return false;
}

SlotId BlockTable::find_and_take(const Search& key, FamilyId family) noexcept {
  SlotId found = kNoSlot;
  index_.search(key.place, [&](SlotId slot) {
    if (!take(slot, key, family)) return false;
    found = slot;
    return true;
  });
  return found;
}

void BlockTable::note_use(SlotId slot, uint32_t tick) noexcept {
  if (tick == kNoUse) return;
  policy::Facts& facts = facts_[slot];
  facts.last_use.store(tick, std::memory_order_relaxed);
  const uint16_t uses = facts.uses.load(std::memory_order_relaxed);
  if (uses != UINT16_MAX) facts.uses.store(static_cast<uint16_t>(uses + 1), std::memory_order_relaxed);
}

template <bool kStopAtMiss>
size_t BlockTable::acquire(FamilyId family, std::span<const Key> keys, std::span<SlotId> out, uint32_t tick) noexcept {
  Search search[kBatch];
  SlotId hint[kBatch];
  size_t hits = 0;
  // A prefix often ends at once: look at a few before fetching many.
  size_t width = kStopAtMiss ? kBatch / 8 : kBatch;
  for (size_t begin = 0; begin < keys.size();) {
    const size_t n = std::min(width, keys.size() - begin);
    prepare(family, keys.subspan(begin, n), search);
    for (size_t i = 0; i < n; ++i) {
      hint[i] = kNoSlot;
      index_.search(search[i].place, [&](SlotId slot) {
        prefetch_for_write(&table_[slot]);
        prefetch_for_write(&facts_[slot]);
        hint[i] = slot;
        return true;
      });
    }
    for (size_t i = 0; i < n; ++i) {
      SlotId slot = hint[i];
      if (slot != kNoSlot && !take(slot, search[i], family)) slot = find_and_take(search[i], family);
      out[begin + i] = slot;
      if (slot == kNoSlot) {
        if constexpr (kStopAtMiss) return hits;
        continue;
      }
      ++hits;
      note_use(slot, tick);
    }
    begin += n;
    width = kBatch;
  }
  return hits;
}

size_t BlockTable::acquire_prefix(FamilyId family, std::span<const Key> keys, std::span<SlotId> out,
                                  uint32_t tick) noexcept {
  const size_t hits = acquire<true>(family, keys, out, tick);
  if (tick != kNoUse && hears_uses_.load(std::memory_order_relaxed)) tell_used(out.first(hits), tick);
  return hits;
}

size_t BlockTable::acquire_each(FamilyId family, std::span<const Key> keys, std::span<SlotId> out,
                                uint32_t tick) noexcept {
  const size_t hits = acquire<false>(family, keys, out, tick);
  if (tick != kNoUse && hears_uses_.load(std::memory_order_relaxed)) tell_used(out.first(keys.size()), tick);
  return hits;
}

void BlockTable::probe(FamilyId family, std::span<const Key> keys, std::span<uint8_t> present) const noexcept {
  Search search[kBatch];
  for (size_t begin = 0; begin < keys.size(); begin += kBatch) {
    const size_t n = std::min(kBatch, keys.size() - begin);
    prepare(family, keys.subspan(begin, n), search);
    for (size_t i = 0; i < n; ++i) {
      const Search& key = search[i];
      present[begin + i] = index_.search(
          key.place, [&](SlotId slot) { return word(slot).findable() && table_[slot].is(key.low, key.high, family); });
    }
  }
}

bool BlockTable::acquire_weak(SlotId slot, uint32_t generation) noexcept {
  if (slot >= slot_count_ || this->generation(slot) != generation) return false;
  Slot& at = table_[slot];
  uint64_t bits = at.word.load(std::memory_order_relaxed);
  do {
    const SlotWord now(bits);
    if (!now.findable() || now.references() >= SlotWord::kMaxReferences) return false;
  } while (!at.word.compare_exchange_weak(bits, bits + SlotWord::kOneReference, std::memory_order_acquire,
                                          std::memory_order_relaxed));
  if (this->generation(slot) == generation) return true;
  drop({&slot, 1}, SlotWord::kOneReference, 0);
  return false;
}

uint32_t BlockTable::generation(SlotId slot) const noexcept {
  return meta_[slot].generation.load(std::memory_order_relaxed);
}

void BlockTable::retain(std::span<const SlotId> slots) noexcept {
  for (const SlotId slot : slots) table_[slot].word.fetch_add(SlotWord::kOneReference, std::memory_order_relaxed);
}

bool BlockTable::try_retain(std::span<const SlotId> slots) noexcept {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (word(slots[i]).references() >= SlotWord::kMaxReferences) [[unlikely]] {
      release(slots.first(i));  // no reference is the last one
      return false;
    }
    retain({&slots[i], 1});
  }
  return true;
}

void BlockTable::release(std::span<const SlotId> slots, uint32_t tick) noexcept {
  drop(slots, SlotWord::kOneReference, tick);
}

Code BlockTable::pin(SlotId slot) noexcept {
  if (slot >= slot_count_) return Code::invalid_argument;
  std::atomic<uint64_t>& at = table_[slot].word;
  uint64_t bits = at.load(std::memory_order_relaxed);
  do {
    const SlotWord now(bits);
    if (now.state() != SlotState::registered) return Code::wrong_state;
    if (now.pins() == SlotWord::kMaxPins) return Code::at_limit;
  } while (!at.compare_exchange_weak(bits, bits + SlotWord::kOnePin, std::memory_order_relaxed));
  return Code::ok;
}

void BlockTable::unpin(std::span<const SlotId> slots, uint32_t tick) noexcept { drop(slots, SlotWord::kOnePin, tick); }

// Release pairs with the acquire of the thread that evicts or frees the slot next: reads of its bytes are over.
void BlockTable::drop(std::span<const SlotId> slots, uint64_t what, uint32_t tick) noexcept {
  constexpr uint64_t kPlain = SlotWord::kStateMask | SlotWord::kWithdrawn | SlotWord::kNotify;
  const uint64_t field = what == SlotWord::kOnePin ? SlotWord::kPinMask : SlotWord::kReferenceMask;
  DeferredWork deferred;
  for (const SlotId slot : slots) {
    const uint64_t before = table_[slot].word.fetch_sub(what, std::memory_order_acq_rel);
    if ((before & field) == 0) [[unlikely]] {
      give_back(slot, what, deferred);
      if (deferred.full()) settle(deferred, tick);
      continue;
    }
    const SlotWord now(before - what);
    if ((now.bits() & kPlain) == SlotWord::kRegistered) [[likely]]
      continue;
    if (now.evictable()) {
      deferred.available[deferred.n_available++] = slot;
    } else if (now.reapable()) {
      if (try_reap(table_[slot])) deferred.freed[deferred.n_freed++] = slot;
    } else if (now.bits() == static_cast<uint64_t>(SlotState::partial) ||
               now.bits() == static_cast<uint64_t>(SlotState::complete)) {
      deferred.freed[deferred.n_freed++] = slot;
    } else if (now.only_followed()) {
      pools_[pool_index(slot)]->stir();
    }
    if (deferred.full()) settle(deferred, tick);
  }
  if (!deferred.empty()) settle(deferred, tick);
}

// Undoes the end of a reference or pin that did not exist. Meanwhile the count was at its maximum, so no thread evicted
// or took the slot; a policy that looked just then must be notified. A slot that was being freed is freed by that
// thread.
void BlockTable::give_back(SlotId slot, uint64_t what, DeferredWork& deferred) noexcept {
  const SlotWord now(table_[slot].word.fetch_add(what, std::memory_order_acq_rel) + what);
  underflows_.fetch_add(1, std::memory_order_relaxed);
  if (now.evictable()) {
    deferred.available[deferred.n_available++] = slot;
  } else if (now.reapable() && try_reap(table_[slot])) {
    deferred.freed[deferred.n_freed++] = slot;
  }
}

}  // namespace kvbm::block
