// Tier to tier: when a disk evicts a record, the next tier below that takes such records gets it, as it is stored,
// past the host. The disk keeps it until the other tier has it (tier/disk/let_go.cc), so its key stays findable.
#include <algorithm>
#include <utility>

#include "base/memory_wait.h"
#include "codec/record.h"
#include "manager/coded_tiers.h"
#include "manager/manager.h"
#include "manager/offload.h"

namespace kvbm::manager {

namespace {
}  // namespace

// ---- Relations between tiers ----

bool Manager::takes_over(TierIndex index) const noexcept {
  return options_.tiers[index - 1U].admission != AdmissionKind::on_request && !out_of_use(index) &&
         is_storage(*tiers_[index - 1U]);
}

bool Manager::feeds(TierIndex index) const noexcept {
  return !out_of_use(index) && tiers_[index - 1U]->offers_what_it_lets_go();
}

TierIndex Manager::next_below(TierIndex from) const noexcept {
  for (size_t i = from + 1U; i <= tiers_.size(); ++i) {
    if (takes_over(static_cast<TierIndex>(i))) return static_cast<TierIndex>(i);
  }
  return kNoTier;
}

bool Manager::is_fed(TierIndex index) const noexcept {
  if (!takes_over(index)) return false;
  for (size_t i = 1; i < index; ++i) {
    const AdmissionKind admission = options_.tiers[i - 1].admission;
    const bool has_all = admission == AdmissionKind::all || admission == AdmissionKind::on_eviction;
    if (has_all && feeds(static_cast<TierIndex>(i))) return true;
  }
  return false;
}

uint8_t Manager::flags_of_feeders(TierIndex index) const noexcept {
  uint8_t flags = 0;
  for (size_t i = 1; takes_over(index) && i < index; ++i) {
    if (feeds(static_cast<TierIndex>(i))) flags |= on_tier_flag(static_cast<TierIndex>(i));
  }
  return flags;
}

uint8_t Manager::flags_of_fed(TierIndex index) const noexcept {
  uint8_t flags = 0;
  for (size_t i = index + 1U; feeds(index) && i <= tiers_.size(); ++i) {
    const bool write_back = options_.tiers[i - 1].admission == AdmissionKind::on_eviction;
    if (write_back && takes_over(static_cast<TierIndex>(i))) flags |= on_tier_flag(static_cast<TierIndex>(i));
  }
  return flags;
}

// ---- tier::TierListener ----

void Manager::wanted(TierIndex tier, std::vector<Identity>& ids) {
  // A disk may evict before the tiers below it are open.
  const TierIndex to = opened_.load(std::memory_order_acquire) ? next_below(tier) : kNoTier;
  if (to == kNoTier) return ids.clear();
  offloader(to).choose_wanted(ids);
}

void Manager::take_over(TierIndex tier, std::unique_ptr<tier::PutBatch> batch) {
  const TierIndex to = next_below(tier);
  if (to != kNoTier) return offloader(to).take_over(tier, std::move(batch));
  batch->status.assign(batch->items.size(), Code::tier_disabled);
  batch->done(*batch);
}

// ---- Taking over into one tier ----

void Offloader::choose_wanted(std::vector<Identity>& ids) {
  const MemoryWait nobody_to_tell;
  std::vector<Identity> admitted;
  {
    MutexLock lock(mutex_);
    for (const Identity& id : ids) {
      if (options_.admission == AdmissionKind::on_eviction || admission_->admits(id.hash())) admitted.push_back(id);
    }
  }
  ids.clear();
  std::vector<tier::Found> found(std::min(admitted.size(), tier::kFoundAtOnce));
  for (size_t first = 0; first < admitted.size(); first += tier::kFoundAtOnce) {
    const size_t n = std::min(tier::kFoundAtOnce, admitted.size() - first);
    const auto part = std::span<const Identity>(admitted).subspan(first, n);
    manager_.tier_below(tier_).find(part, std::span(found).first(part.size()), false);
    for (size_t i = 0; i < part.size(); ++i) {
      if (!found[i].present) ids.push_back(part[i]);
    }
  }
}

// Records being moved between two tiers, which may be invalidated meanwhile.
struct Offloader::Moving {
  TierIndex from = kNoTier;
  uint64_t bytes = 0;
  std::vector<Identity> ids;
  std::vector<uint64_t> marks;  // Manager::forget_mark, from before `gone` was read
  std::vector<bool> gone;       // no longer in `from`: invalidated, or found damaged
  uint64_t erased = 0;          // erased_ before this tier had them
};

void Offloader::take_over(TierIndex from, std::unique_ptr<tier::PutBatch> batch) {
  const MemoryWait nobody_to_tell;
  auto moving = std::make_shared<Moving>();
  moving->from = from;
  moving->erased = erased_.load();
  for (const tier::PutItem& item : batch->items) {
    moving->bytes += item.payload.size();
    moving->ids.push_back(item.id);
    moving->marks.push_back(manager_.forget_mark(item.id.family));
  }
  std::vector<tier::Found> found(moving->ids.size());
  manager_.tier_below(from).find(moving->ids, found, false);
  for (const tier::Found& one : found) moving->gone.push_back(!one.present);
  {
    MutexLock lock(mutex_);
    taking_over_ += moving->bytes;
  }
  batch->done = [this, keep = manager_.shared_from_this(), moving,
                 then = std::move(batch->done)](tier::PutBatch& done) mutable {
    took_over(*moving, done);
    then(done);
  };
  manager_.tier_below(tier_).put(std::move(batch));
  erase_forgotten(*moving);
}

// Erases records that were invalidated while they were moved. Invalidation erases a record in the tier above first,
// then here. If that was before this tier had the put, or, with a plug-in, before it was stored, it is erased once
// more.
void Offloader::erase_forgotten(const Moving& moving) {
  std::vector<Identity> forgotten;
  std::vector<Identity> maybe;
  for (size_t i = 0; i < moving.ids.size(); ++i) {
    if (moving.gone[i]) forgotten.push_back(moving.ids[i]);
    else if (manager_.forgotten_since(moving.ids[i].family, moving.marks[i])) maybe.push_back(moving.ids[i]);
  }
  std::vector<tier::Found> found(maybe.size());
  if (!maybe.empty()) manager_.tier_below(moving.from).find(maybe, found, false);
  for (size_t i = 0; i < maybe.size(); ++i) {
    if (!found[i].present) forgotten.push_back(maybe[i]);
  }
  if (!forgotten.empty()) erase(forgotten);
}

void Offloader::took_over(const Moving& moving, const tier::PutBatch& batch) {
  const MemoryWait nobody_to_tell;
  erase_forgotten(moving);
  TierCounters& counters = manager_.counters().tiers[tier_];
  std::vector<Identity> stored;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    if (batch.status[i] != Code::ok) {
      const bool full = batch.status[i] == Code::no_room;
      manager::add(full ? manager_.counters().offload_skipped : counters.errors, 1);
      continue;
    }
    const auto head = codec::HeadView::parse(batch.items[i].head);
    manager::add(counters.stores, 1);
    manager::add(counters.store_bytes, head.ok() ? head.value().header().raw_bytes : batch.items[i].payload.size());
    stored.push_back(batch.items[i].id);
    const SlotId slot = manager_.acquire_one(stored.back().family, stored.back().key);
    if (slot == kNoSlot) continue;
    manager_.table().set_flags(slot, on_tier_flag(tier_));
    // A thread that saw the flag in between relies on it.
    const bool again = !confirm({&slot, 1}).empty() && erasing_.load() != moving.erased;
    if (again) send_again({slot});
    if (!again) manager_.release({&slot, 1});
  }
  manager_.events().publish(copy::EventKind::stored, tier_, stored);
  {
    MutexLock lock(mutex_);
    taking_over_ -= moving.bytes;
  }
  pump();
}

}  // namespace kvbm::manager
