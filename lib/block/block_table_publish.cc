// complete -> registered and back: gives names to blocks and takes them away.
#include <algorithm>

#include "base/thread/batch_lock.h"
#include "block/block_table.h"

namespace kvbm::block {
namespace {

constexpr uint64_t kComplete = static_cast<uint64_t>(SlotState::complete);
constexpr uint64_t kToRegistered = SlotWord::kRegistered - kComplete;
static_assert(SlotWord::kRegistered > kComplete);

// Adds to the word of a slot that is partial or complete and held by the caller. Only its holders may change such a
// word, so a single holder needs no atomic step.
void advance(std::atomic<uint64_t>& word, uint64_t step) noexcept {
  const uint64_t bits = word.load(std::memory_order_relaxed);
  if (SlotWord(bits).references() == 1) {
    word.store(bits + step, std::memory_order_release);
  } else {
    word.fetch_add(step, std::memory_order_release);
  }
}

// Names a slot before it is registered: a reader that compares it too early finds out when it takes the slot.
void name(Slot& at, uint64_t low, uint64_t high, FamilyId family) noexcept {
  at.key_low.store(low, std::memory_order_relaxed);
  at.key_high.store(high, std::memory_order_relaxed);
  at.family.store(family, std::memory_order_relaxed);
}

}  // namespace

// State of one batch of a publication.
struct BlockTable::Fresh {
  Code codes[kBatch];
  SlotId existing[kBatch];  // of duplicates, with a reference to be ended here
  SlotId slots[kBatch];     // registered and listed
  size_t n = 0;
  SlotId freed[kBatch];  // the caller's slots of rejected duplicates
  size_t n_freed = 0;
  SlotId ousted[kBatch];  // withdrawn in favour of a new block, with a reference to be ended here
  size_t n_ousted = 0;
  size_t duplicates = 0;
  SlotId previous = kNoSlot;  // parent of the next key of a chain
  bool borrowed = false;      // the reference that keeps `previous` must be ended here
};

Code BlockTable::complete(std::span<const SlotId> slots) noexcept {
  for (const SlotId slot : slots) {
    if (slot >= slot_count_) return Code::invalid_argument;
    if (SlotWord(table_[slot].word.load(std::memory_order_relaxed)).state() != SlotState::partial)
      return Code::wrong_state;
  }
  for (const SlotId slot : slots) advance(table_[slot].word, kComplete - static_cast<uint64_t>(SlotState::partial));
  return Code::ok;
}

// Looks the key up and makes the slot findable under it, in one step under the partition's lock. `i`: number in the
// publication. `child`: added to the word for a child that is expected to follow; counted in the same store.
inline Code BlockTable::list(SlotId slot, const Search& key, const Publication& what, size_t i, uint64_t child,
                             SlotId* existing, Fresh& fresh) noexcept {
  if (slot >= slot_count_) return Code::invalid_argument;
  Slot& at = table_[slot];
  if (SlotWord(at.word.load(std::memory_order_relaxed)).state() != SlotState::complete) return Code::wrong_state;
  if (!index_.insert_alone(key.place, slot)) [[unlikely]] {
    const Code code = list_among(slot, key, what, i, existing, fresh);
    if (code != Code::ok) return code;
  }
  name(at, key.low, key.high, what.family);
  advance(at.word, kToRegistered + child);
  return Code::ok;
}

// Part of list() for a key that may be registered. ok: it was not, and now belongs to the slot.
Code BlockTable::list_among(SlotId slot, const Search& key, const Publication& what, size_t i, SlotId* existing,
                            Fresh& fresh) noexcept {
  const auto taken = [&](SlotId there) {
    if (!take(there, key, what.family)) return false;
    *existing = there;
    return true;
  };
  auto listed = index_.find_or_insert(key.place, slot, taken);
  if (listed == PrefixIndex::Listed::there && what.precedence != nullptr && what.precedence->gives_way(*existing, i)) {
    // A withdrawn block gets no more references, so under this lock only this slot can be listed next. If another
    // thread is withdrawing it, that thread removes it from the index.
    marks_.ended(*existing);  // first, as in withdraw()
    const SlotWord old(table_[*existing].word.fetch_or(SlotWord::kWithdrawn, std::memory_order_acq_rel));
    if (!old.withdrawn()) (void)index_.remove(key.place, *existing);
    fresh.ousted[fresh.n_ousted++] = *existing;
    listed = index_.find_or_insert(key.place, slot, taken);
  }
  if (listed == PrefixIndex::Listed::full) return Code::no_room;
  if (listed == PrefixIndex::Listed::fresh) return Code::ok;
  Slot& at = table_[slot];
  name(at, key.low, key.high, what.family);
  if (what.duplicates == DuplicateMode::keep) advance(at.word, kToRegistered | SlotWord::kWithdrawn);
  return Code::exists;
}

// Second step, in the order of the keys: links parents and handles duplicates. Every slot of the batch and every parent
// is held, so no thread acts on a children count before it is right.
// `counted`: the parent's count has this child already.
void BlockTable::link(SlotId& inout, size_t i, SlotId parent, bool counted, const Publication& what,
                      Fresh& fresh) noexcept {
  const SlotId slot = inout;
  const Code code = fresh.codes[i];
  if (code == Code::ok) {
    if (parent != kNoSlot && !counted) {
      if (word(parent).children() < SlotWord::kMaxChildren) {
        table_[parent].word.fetch_add(SlotWord::kOneChild, std::memory_order_relaxed);
      } else {
        parent = kNoSlot;
      }
    }
    set_parent(slot, parent);
    fresh.slots[fresh.n++] = slot;
    fresh.previous = slot;
    return;
  }
  if (counted) table_[parent].word.fetch_sub(SlotWord::kOneChild, std::memory_order_relaxed);
  if (code != Code::exists) return;
  ++fresh.duplicates;
  fresh.previous = fresh.existing[i];
  if (what.duplicates == DuplicateMode::reject) {
    fresh.freed[fresh.n_freed++] = slot;
    inout = fresh.existing[i];
  } else {
    fresh.borrowed = true;
  }
}

// The caller holds both.
void BlockTable::set_parent(SlotId slot, SlotId parent) noexcept {
  table_[slot].parent.store(parent == kNoSlot ? kNoSlot : parents_.pack(parent, generation(parent)),
                            std::memory_order_relaxed);
}

// A block without a parent is the root of its chain, so it becomes its own ancestor only if the walk up from `parent`
// ends at it. The walk is needed because parents may be named by another node.
bool BlockTable::adopt(SlotId slot, SlotId parent) noexcept {
  constexpr size_t kDeepest = 4096;
  if (!may_be_parent(parent, slot) || parent == kNoSlot || word(slot).state() != SlotState::registered) return false;
  uint32_t none = table_[slot].parent.load(std::memory_order_relaxed);
  if (this->parent(slot) != kNoSlot) return false;
  SlotId first = parent;
  for (size_t steps = 0; first != kNoSlot; first = this->parent(first)) {
    if (first == slot || ++steps > kDeepest) return false;
  }
  if (word(parent).children() >= SlotWord::kMaxChildren) return false;
  table_[parent].word.fetch_add(SlotWord::kOneChild, std::memory_order_relaxed);
  if (table_[slot].parent.compare_exchange_strong(none, parents_.pack(parent, generation(parent)),
                                                  std::memory_order_relaxed)) {
    return true;
  }
  table_[parent].word.fetch_sub(SlotWord::kOneChild, std::memory_order_relaxed);
  return false;
}

bool BlockTable::may_be_parent(SlotId parent, SlotId child) const noexcept {
  return parent == kNoSlot ||
         (parent < slot_count_ && parent != child && word(parent).state() == SlotState::registered);
}

void BlockTable::publish_batch(std::span<SlotId> inout, const Search* search, size_t begin, const Publication& what,
                               Fresh& fresh) {
  const bool chain = what.lineage == Lineage::chain;
  const size_t n = inout.size();
  std::fill_n(fresh.codes, n, Code::ok);
  if (chain && !may_be_parent(fresh.previous, inout[0])) fresh.codes[0] = Code::invalid_argument;
  for (size_t i = 0; i < n && what.lineage == Lineage::given; ++i) {
    if (!may_be_parent(what.parents[begin + i], inout[i])) fresh.codes[i] = Code::invalid_argument;
  }
  index_.by_partition(
      n, [&](size_t i) { return search[i].place; },
      [&](size_t i) {
        if (fresh.codes[i] != Code::ok) return;
        // Sets the child's mark in the same step as the policy would: a block with a child is seldom the first victim.
        const uint64_t child = chain && i + 1 < n ? SlotWord::kOneChild | SlotWord::kNotify : 0;
        fresh.codes[i] = list(inout[i], search[i], what, begin + i, child, &fresh.existing[i], fresh);
      });
  // Nearly always all blocks of a batch are new: then only the first of a chain has a parent that must be checked.
  const bool all_new = chain && std::all_of(fresh.codes, fresh.codes + n, [](Code code) { return code == Code::ok; });
  for (size_t i = 0; i < (all_new ? 1 : n); ++i) {
    const bool borrowed = std::exchange(fresh.borrowed, false);
    const SlotId before = std::exchange(fresh.previous, kNoSlot);
    const bool counted = chain && i > 0 && fresh.codes[i - 1] == Code::ok;
    const SlotId parent = what.lineage == Lineage::given ? what.parents[begin + i] : before;
    link(inout[i], i, parent, counted, what, fresh);
    if (borrowed) release({&before, 1}, what.tick);
    if (!chain && std::exchange(fresh.borrowed, false)) release({&fresh.previous, 1}, what.tick);
    if (!chain) fresh.previous = kNoSlot;
  }
  for (size_t i = 1; all_new && i < n; ++i) {
    set_parent(inout[i], fresh.previous);
    fresh.previous = fresh.slots[fresh.n++] = inout[i];
  }
  enter_policy(what, fresh);
  release({fresh.freed, fresh.n_freed}, what.tick);
  if (fresh.n_ousted != 0) release({fresh.ousted, fresh.n_ousted}, what.tick);
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
    prepare(what.family, what.keys.subspan(begin, n), search, Intent::write);
    fresh.n = fresh.n_freed = fresh.n_ousted = fresh.duplicates = 0;
    publish_batch(inout.subspan(begin, n), search, begin, what, fresh);
    for (size_t i = 0; i < n; ++i) all = all && (fresh.codes[i] == Code::ok || fresh.codes[i] == Code::exists);
    if (!codes.empty()) std::copy_n(fresh.codes, n, codes.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  if (fresh.borrowed) release({&fresh.previous, 1}, what.tick);
  return all ? Code::ok : Code::partial;
}

// The publisher holds the slots, so none of them can be evicted before its policy knows it.
void BlockTable::enter_policy(const Publication& what, Fresh& fresh) {
  each_run(std::span<const SlotId>(fresh.slots, fresh.n),
           [&](size_t pool, auto run) { pools_[pool]->enter(run, what.priority, what.tick); });
  if (fresh.duplicates + fresh.n_ousted != 0) pools_[0]->count_published(fresh.duplicates, fresh.n_ousted);
}

void BlockTable::tell_used(std::span<const SlotId> slots, uint32_t tick) noexcept {
  for (const auto& pool : pools_) pool->tell_used(slots, tick);
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

// ---- erasing ----

// Returns true for the thread that withdrew it. The caller holds a reference.
bool BlockTable::withdraw(SlotId slot) noexcept {
  marks_.ended(slot);  // first: a thread that sees the block withdrawn may report it as forgotten for good
  const SlotWord old(table_[slot].word.fetch_or(SlotWord::kWithdrawn, std::memory_order_acq_rel));
  if (old.withdrawn()) return false;
  unlist(slot);
  return true;
}

// A block that was being evicted was not findable: after the locks were taken its mark is gone as well.
void BlockTable::count_erased(size_t n) {
  for (const auto& pool : pools_) pool->count_erased(std::exchange(n, 0));
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
