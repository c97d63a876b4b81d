#include "manager/share/owned_tier.h"

#include <algorithm>
#include <utility>

namespace kvbm::manager {

void OwnedTier::own(std::unique_ptr<tier::Tier> disk) {
  held_ = std::move(disk);
  disk_.store(held_.get(), std::memory_order_release);
}

std::string OwnedTier::describe() const {
  const tier::Tier* const d = disk();
  return d != nullptr ? d->describe() : path_ + ", which another process owns";
}

void OwnedTier::find(std::span<const Identity> ids, std::span<tier::Found> out, bool touch) noexcept {
  if (tier::Tier* const d = disk()) return d->find(ids, out, touch);
  std::fill(out.begin(), out.end(), tier::Found{});
}

bool OwnedTier::pin(const Identity& id) noexcept {
  tier::Tier* const d = disk();
  return d != nullptr && d->pin(id);
}

void OwnedTier::unpin(const Identity& id) noexcept {
  if (tier::Tier* const d = disk()) d->unpin(id);
}

void OwnedTier::put(std::unique_ptr<tier::PutBatch> batch) {
  if (tier::Tier* const d = disk()) return d->put(std::move(batch));
  batch->status.assign(batch->items.size(), Code::owner_gone);
  executor_.post([kept = std::shared_ptr<tier::PutBatch>(std::move(batch))] { kept->done(*kept); });
}

void OwnedTier::get(std::unique_ptr<tier::GetBatch> batch) {
  if (tier::Tier* const d = disk()) return d->get(std::move(batch));
  batch->status.assign(batch->items.size(), Code::miss);
  executor_.post([kept = std::shared_ptr<tier::GetBatch>(std::move(batch))] { kept->done(*kept); });
}

bool OwnedTier::reads_from_files() const noexcept {
  const tier::Tier* const d = disk();
  return d != nullptr && d->reads_from_files();
}

void OwnedTier::erase(std::span<const Identity> ids) {
  if (tier::Tier* const d = disk()) d->erase(ids);
}

void OwnedTier::hint(std::span<const Identity> ids, uint8_t priority) {
  if (tier::Tier* const d = disk()) d->hint(ids, priority);
}

void OwnedTier::reject(const Identity& id, uint64_t location) {
  if (tier::Tier* const d = disk()) d->reject(id, location);
}

Status OwnedTier::erase_family(FamilyId family) {
  tier::Tier* const d = disk();
  return d != nullptr ? d->erase_family(family) : Status{};
}

Status OwnedTier::erase_families(std::span<const FamilyId> families) {
  tier::Tier* const d = disk();
  return d != nullptr ? d->erase_families(families) : Status{};
}

void OwnedTier::families(FamilyTable::Named& named) {
  if (tier::Tier* const d = disk()) d->families(named);
}

void OwnedTier::forget_families(std::span<const FamilyId> gone) {
  if (tier::Tier* const d = disk()) d->forget_families(gone);
}

size_t OwnedTier::scan(uint64_t& cursor, std::span<tier::ScanRow> out) {
  if (tier::Tier* const d = disk()) return d->scan(cursor, out);
  cursor = 0;
  return 0;
}

tier::TierStats OwnedTier::stats() const {
  const tier::Tier* const d = disk();
  return d != nullptr ? d->stats() : tier::TierStats{};
}

Result<uint64_t> OwnedTier::epoch(const NamespaceId& base_id) {
  tier::Tier* const d = disk();
  return d != nullptr ? d->epoch(base_id) : uint64_t{0};
}

std::vector<tier::EpochRow> OwnedTier::epochs() {
  tier::Tier* const d = disk();
  return d != nullptr ? d->epochs() : std::vector<tier::EpochRow>();
}

std::vector<uint64_t> OwnedTier::epoch_floors() {
  tier::Tier* const d = disk();
  return d != nullptr ? d->epoch_floors() : std::vector<uint64_t>();
}

// No-op for a client: the owner writes its rows, and has all of them already.
Status OwnedTier::set_epochs(std::span<const tier::EpochRow> rows, std::span<const NamespaceId> forgotten,
                             std::span<const tier::EpochRow> floored) {
  tier::Tier* const d = disk();
  return d != nullptr ? d->set_epochs(rows, forgotten, floored) : Status{};
}

Status OwnedTier::set_epoch(const NamespaceId& base_id, uint64_t epoch) {
  tier::Tier* const d = disk();
  return d != nullptr ? d->set_epoch(base_id, epoch) : Status{};
}

void OwnedTier::sync(UniqueFunction<void(const Status&)> done) {
  if (tier::Tier* const d = disk()) return d->sync(std::move(done));
  done(Status(Code::unsupported, "another process has this disk", path_));
}

void OwnedTier::shutdown(UniqueFunction<void()> done) {
  if (tier::Tier* const d = disk()) return d->shutdown(std::move(done));
  executor_.post(std::move(done));
}

}  // namespace kvbm::manager
