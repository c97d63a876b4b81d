// Tier to tier: when a disk evicts a record, the next tier below that takes such records gets it, as it is stored,
// past the host. The disk keeps it until the other tier has it (tier/disk/demote.cc), so its key stays findable.
#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "codec/record/record.h"
#include "manager/host/host_tier.h"
#include "manager/lower/offload.h"
#include "manager/lower/tier_order.h"

namespace kvbm::manager {

void Offloader::choose_wanted(std::vector<Identity>& ids) {
  const MemoryWait no_error_path;
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
    order_.tier(tier_).find(part, std::span(found).first(part.size()), false);
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
  std::vector<uint64_t> marks;  // Invalidations::mark, from before `gone` was read
  std::vector<bool> gone;       // no longer in `from`: invalidated, or found damaged
  uint64_t erased = 0;          // erased_ before this tier had them
};

void Offloader::take_over(TierIndex from, std::unique_ptr<tier::PutBatch> batch) {
  const MemoryWait no_error_path;
  auto moving = std::make_shared<Moving>();
  moving->from = from;
  moving->erased = erased_.load();
  for (const tier::PutItem& item : batch->items) {
    moving->bytes += item.payload.size();
    moving->ids.push_back(item.id);
    moving->marks.push_back(host_.invalidations().mark(item.id.family));
  }
  std::vector<tier::Found> found(moving->ids.size());
  order_.tier(from).find(moving->ids, found, false);
  for (const tier::Found& one : found) moving->gone.push_back(!one.present);
  {
    MutexLock lock(mutex_);
    taking_over_ += moving->bytes;
  }
  batch->done = [this, keep = host_.lifetime().keep(*this), moving,
                 then = std::move(batch->done)](tier::PutBatch& done) mutable {
    took_over(*moving, done);
    then(done);
  };
  order_.tier(tier_).put(std::move(batch));
  erase_forgotten(*moving);
}

// Erases records that were invalidated while they were moved. Invalidation erases a record in the tier above first,
// then here. If that was before this tier had the put, or, with a plug-in, before it was stored, it is erased once
// more.
void Offloader::erase_forgotten(const Moving& moving) {
  std::vector<Identity> forgotten;
  std::vector<Identity> maybe;
  for (size_t i = 0; i < moving.ids.size(); ++i) {
    if (moving.gone[i])
      forgotten.push_back(moving.ids[i]);
    else if (host_.invalidations().since(moving.ids[i].family, moving.marks[i]))
      maybe.push_back(moving.ids[i]);
  }
  std::vector<tier::Found> found(maybe.size());
  if (!maybe.empty()) order_.tier(moving.from).find(maybe, found, false);
  for (size_t i = 0; i < maybe.size(); ++i) {
    if (!found[i].present) forgotten.push_back(maybe[i]);
  }
  if (!forgotten.empty()) erase(forgotten);
}

void Offloader::took_over(const Moving& moving, const tier::PutBatch& batch) {
  const MemoryWait no_error_path;
  erase_forgotten(moving);
  TierCounters& counters = host_.counters().tiers[tier_];
  std::vector<Identity> stored;
  for (size_t i = 0; i < batch.items.size(); ++i) {
    if (batch.status[i] != Code::ok) {
      const bool full = batch.status[i] == Code::no_room;
      manager::add(full ? host_.counters().offload_skipped : counters.errors, 1);
      continue;
    }
    const auto head = codec::HeadView::parse(batch.items[i].head);
    manager::add(counters.stores, 1);
    manager::add(counters.store_bytes, head.ok() ? head.value().header().raw_bytes : batch.items[i].payload.size());
    stored.push_back(batch.items[i].id);
    const SlotId slot = host_.acquire_one(stored.back().family, stored.back().key);
    if (slot == kNoSlot) continue;
    host_.table().set_flags(slot, on_tier_flag(tier_));
    // A thread that saw the flag in between relies on it.
    const bool again = !confirm({&slot, 1}).empty() && erasing_.load() != moving.erased;
    if (again) send_again({slot});
    if (!again) host_.release({&slot, 1});
  }
  host_.events().publish(copy::EventKind::stored, tier_, stored);
  {
    MutexLock lock(mutex_);
    taking_over_ -= moving.bytes;
  }
  pump();
}

}  // namespace kvbm::manager
