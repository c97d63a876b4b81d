#include "manager/stack/tier_stack.h"

#include <algorithm>
#include <new>

#include "base/thread/memory_wait.h"
#include "codec/record/record.h"
#include "manager/host/duplicate_resolver.h"
#include "manager/host/host_record.h"
#include "manager/lower/coded_tiers.h"
#include "manager/lower/offload.h"

namespace kvbm::manager {

TierStack::TierStack(HostTier& host, LowerTiers& lower)
    : host_(host), lower_(lower), background_decoder_(host, lower, [this](const Identity& id, Delivery& record) {
        return register_landed(id, record);
      }) {}

// ---- Slots ----

Code TierStack::allocate(block::AccountId account, std::span<SlotId> out, std::vector<block::Evicted>* evicted,
                         bool evicting) {
  std::vector<block::Evicted> mine;
  std::vector<block::Evicted>& gone = evicted != nullptr ? *evicted : mine;
  const size_t before = gone.size();
  uint64_t releases = host_.received().releases();
  Code code = host_.table().allocate(account, out, &gone, host_.tick(), evicting);
  while (code == Code::no_room && evicting && host_.received().release_some(releases, host_.tick())) {
    releases = host_.received().releases();
    code = host_.table().allocate(account, out, &gone, host_.tick());
  }
  if (code == Code::ok && host_.recovered().any()) {
    for (const SlotId slot : out) host_.recovered().remove(slot);
  }
  const MemoryWait reported;  // the evictions have happened, so reporting them must not fail
  if (gone.size() != before) report_displaced(std::span(gone).subspan(before));
  for (const auto& offloader : lower_.offloaders()) offloader->relieve();
  return code;
}

size_t TierStack::slots_to_land_in(size_t n) {
  if (!lower_.host_has_last_copies() || host_.table().counters().free >= n) return n;
  const MemoryWait reported;
  for (const auto& offloader : lower_.offloaders()) offloader->relieve();
  return std::min<size_t>(n, host_.table().counters().free);
}

size_t TierStack::slots_to_store_in(block::AccountId account, size_t n, Code& why) {
  if (!lower_.host_has_last_copies()) return n;
  const auto room = [&] {
    size_t most = std::min<size_t>(n, host_.table().counters().free);
    why = Code::no_room;
    const block::AccountUse use = host_.table().account_use(account);
    const uint32_t left = use.limit > use.used ? use.limit - use.used : 0;
    if (account == block::kSharedAccount || use.mode == block::OverQuota::reject || left >= most) return most;
    why = Code::over_quota;
    return size_t{left};
  };
  if (const size_t most = room(); most == n) return n;
  const MemoryWait reported;
  const block::AccountId whose = why == Code::over_quota ? account : block::kSharedAccount;
  uint64_t releases = host_.received().releases();
  for (const auto& offloader : lower_.offloaders()) offloader->relieve(n, whose);
  // Received blocks are in no account, so releasing them makes no room for one that is at its limit.
  while (room() == 0 && why == Code::no_room && lower_.offloading_blocks() == 0 &&
         host_.received().release_some(releases, host_.tick())) {
    releases = host_.received().releases();
    for (const auto& offloader : lower_.offloaders()) offloader->relieve(n, whose);
  }
  return room();
}

Code TierStack::allocate_leading(block::AccountId account, std::span<SlotId> out, size_t& got, bool evicting) {
  got = 0;
  for (size_t want = out.size(); got < out.size();) {
    want = std::min(want, out.size() - got);
    Code code = Code::no_memory;
    try {
      code = allocate(account, out.subspan(got, want), nullptr, evicting);
    } catch (const std::bad_alloc&) {
      if (got == 0) throw;
      return Code::ok;  // slots taken so far belong to the caller
    }
    if (code == Code::ok) {
      got += want;
    } else if (want > 1) {
      want = (want + 1) / 2;
    } else {
      return got != 0 ? Code::ok : code;
    }
  }
  return Code::ok;
}

void TierStack::report_displaced(std::span<const block::Evicted> gone) {
  for (const auto& offloader : lower_.offloaders()) offloader->evicted(gone);
  host_.report_evicted(gone);
}

// ---- Blocks ----

Code TierStack::publish(std::span<SlotId> inout, const block::Publication& what, std::span<const Key> parents_of_events,
                        std::span<Code> codes, const Bringer& bringer, const DuplicateResolver* resolver) {
  const Code all = host_.table().publish(inout, what, codes);
  const MemoryWait reported;  // the blocks are findable from here on, so the rest must not fail
  // The family's epoch ended so long ago that its id was recycled: no lookup asks for these blocks.
  const bool ended = !host_.families().has(what.family);
  if (ended) [[unlikely]]
    host_.table().erase(what.family, what.keys);
  uint64_t came_in = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < inout.size(); ++i) {
    if (codes[i] != Code::ok) continue;
    ++came_in;
    bytes += host_.table().payload_bytes(inout[i]);
  }
  add(host_.counters().tiers[0].stores, came_in);
  add(host_.counters().tiers[0].store_bytes, bytes);
  if (resolver != nullptr) erase_replaced(what, *resolver, codes);
  if (host_.events().wanted() && !ended) {
    std::vector<Key> keys;
    std::vector<Key> parents;
    for (size_t i = 0; i < inout.size(); ++i) {
      if (codes[i] != Code::ok) continue;
      keys.push_back(what.keys[i]);
      parents.push_back(i < parents_of_events.size() ? parents_of_events[i] : Key{});
    }
    host_.events().publish(copy::EventKind::stored, 0, what.family, keys, parents);
  }
  if (lower_.count() == 0) return all;
  std::vector<SlotId> fresh;
  fresh.reserve(inout.size());
  for (size_t i = 0; i < inout.size(); ++i) {
    if (codes[i] == Code::ok) fresh.push_back(inout[i]);
  }
  for (TierIndex i = 1; i <= lower_.count(); ++i) {
    if (!fresh.empty() && i != bringer.apart) lower_.offloader(i).stored(fresh, bringer.waits);
  }
  return all;
}

// Erases from the tiers below the blocks that a caller's block has replaced. They must not be read up again, nor keep
// the new block from being offloaded. Also erases records that exist only below and may differ from the new block.
void TierStack::erase_replaced(const block::Publication& what, const DuplicateResolver& resolver,
                               std::span<const Code> codes) {
  std::vector<Identity> ids;
  for (const size_t i : resolver.replaced()) ids.push_back({what.keys[i], what.family});
  if (!ids.empty()) host_.events().publish(copy::EventKind::removed, 0, ids);
  if (!resolver.are_callers()) return;
  std::vector<Identity> doubtful;
  for (size_t i = 0; i < what.keys.size() && resolver.doubt_what_is_below(); ++i) {
    if (codes[i] == Code::ok) doubtful.push_back({what.keys[i], what.family});
  }
  std::vector<tier::Found> found(doubtful.size());
  for (const auto& tier : lower_.all()) {
    if (doubtful.empty()) break;
    std::fill(found.begin(), found.end(), tier::Found{});
    tier->find(doubtful, found, false);
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].present) ids.push_back(doubtful[i]);
    }
  }
  if (ids.empty()) return;
  const Invalidations::Scope invalidating(host_.invalidations(), what.family);
  for (const auto& offloader : lower_.offloaders()) offloader->erase(ids);
}

Code TierStack::register_landed(const Identity& id, Delivery& one, bool waits) {
  if (host_.invalidations().since(id.family, one.mark)) return Code::ok;
  const MemoryWait registered;  // nothing may fail from here on: references must be released, and a findable block
                                // marked for restarts
  const auto view = codec::HeadView::parse(host_.arena().head(one.slot));
  if (!view.ok()) return Code::damaged;
  const Key parent = view.value().header().parent;
  DuplicateResolver resolver(host_, (view.value().header().flags & codec::kLossy) != 0);
  const std::vector<Key> units = unit_keys(view.value());
  const SlotId parent_slot = parent == Key{} ? kNoSlot : host_.acquire_one(id.family, parent);
  block::Publication what;
  what.family = id.family;
  what.keys = {&id.key, 1};
  what.lineage = block::Lineage::chain;
  what.first_parent = parent_slot;
  what.precedence = &resolver;
  what.tick = host_.tick();
  Code code = Code::ok;
  [[maybe_unused]] const Code all =
      publish({&one.slot, 1}, what, {&parent, 1}, {&code, 1}, {kNoTier, waits}, &resolver);
  host_.release(parent_slot);
  if (code == Code::ok) host_.unit_index().add(id.family, id.key, units);
  if (code == Code::ok && host_.invalidations().since(id.family, one.mark)) {
    host_.table().erase(id.family, {&id.key, 1});
    host_.events().publish(copy::EventKind::removed, 0, {&id, 1});
  } else if (code == Code::ok) {
    host_.keep_over_restart(one.slot);
    // The source tier may have evicted the record before there was a block to unmark.
    for (TierIndex i = 1; i <= lower_.count(); ++i) {
      if ((host_.table().flags(one.slot) & on_tier_flag(i)) != 0) lower_.offloader(i).confirm({&one.slot, 1});
    }
  }
  return code == Code::exists ? Code::ok : code;
}

void TierStack::keep_received(std::span<const SlotId> slots) {
  if (host_.received().any_given()) lower_.note_tiers_in_use();
  host_.keep_received(slots);
}

// Searches from the host down: a block that moves down is in the lower tier before it leaves the upper one.
bool TierStack::is_nowhere(const Identity& id) {
  const SlotId slot = host_.acquire_one(id.family, id.key);
  host_.release(slot);
  if (slot != kNoSlot) return false;
  for (TierIndex i = 1; i <= lower_.count(); ++i) {
    if (lower_.out_of_use(i)) continue;
    tier::Found found;
    if (!is_storage(lower_.tier(i))) return false;
    lower_.tier(i).find({&id, 1}, {&found, 1}, false);
    if (found.present) return false;
  }
  return true;
}

size_t TierStack::drop(FamilyId family, std::span<const Key> keys) {
  const Invalidations::Scope invalidating(host_.invalidations(), family);
  const size_t n = host_.table().erase(family, keys);
  std::vector<Identity> ids;
  ids.reserve(keys.size());
  for (const Key& key : keys) ids.push_back({key, family});
  unflushed_.forget(ids);
  for (const auto& offloader : lower_.offloaders()) offloader->erase(ids);
  host_.events().publish(copy::EventKind::removed, 0, ids);
  return n;
}

void TierStack::hint(FamilyId family, std::span<const Key> keys, uint8_t priority) {
  std::vector<SlotId> slots(keys.size(), kNoSlot);
  host_.table().acquire_each(family, keys, slots, block::kNoUse);
  slots.erase(std::remove(slots.begin(), slots.end(), kNoSlot), slots.end());
  host_.table().set_priority(slots, priority, host_.tick());
  host_.release(slots);
  std::vector<Identity> ids;
  ids.reserve(keys.size());
  for (const Key& key : keys) ids.push_back({key, family});
  for (const auto& tier : lower_.all()) tier->hint(ids, priority);
}

Status TierStack::erase_family(FamilyId family) {
  Status first;
  const Invalidations::Scope invalidating(host_.invalidations(), family);
  host_.table().erase_family(family);
  unflushed_.forget(family);
  host_.received().let_go_of(family, host_.tick());
  for (const auto& offloader : lower_.offloaders()) {
    Status erased = offloader->erase_families({&family, 1});
    if (!erased.ok() && first.ok()) first = std::move(erased);
  }
  return first;
}

Status TierStack::erase_all() {
  Status first;
  const Invalidations::Scope invalidating(host_.invalidations());
  host_.table().erase_all();
  unflushed_.forget_all();
  host_.received().release_all(host_.tick());
  const std::vector<FamilyId> all = host_.families().all();
  for (const auto& offloader : lower_.offloaders()) {
    Status erased = offloader->erase_families(all);
    if (!erased.ok() && first.ok()) first = std::move(erased);
  }
  host_.events().cleared({});
  return first.ok() ? host_.arena().sync() : first;
}

void TierStack::add_stored(FamilyTable::Named& named) {
  host_.table().each_family([&](FamilyId family) { named.add(family); });
  for (const auto& tier : lower_.all()) tier->families(named);
}

}  // namespace kvbm::manager
