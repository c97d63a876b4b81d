#include "manager/lower/lower_tiers.h"

#include <algorithm>
#include <utility>

#include "base/thread/memory_wait.h"
#include "cluster/tier/peer_tier.h"
#include "manager/lower/coded_tiers.h"
#include "manager/lower/coding_terms.h"
#include "manager/lower/offload.h"
#include "manager/lower/open_disk.h"

namespace kvbm::manager {

namespace {

// Initial cost of a source before it is measured: about a third of what docs/benchmarks.md measured on a small
// machine. A wrong guess costs little: the first batches correct it.
copy::Expectation seed_of(std::string_view kind) noexcept {
  if (kind == "disk") return {200'000, 1.0};      // 0.2 ms, 1 GB/s
  if (kind == "plugin") return {1'000'000, 5.0};  // 1 ms, 0.2 GB/s
  if (kind == "store") return {5'000'000, 2.0};   // 5 ms, 0.5 GB/s
  return {500'000, 1.0};                          // nodes, the owner: 0.5 ms, 1 GB/s
}
constexpr copy::Expectation kHostSeed{20'000, 0.15};  // 20 us, 6.7 GB/s

}  // namespace

LowerTiers::LowerTiers(HostTier& host, std::shared_ptr<CodingTerms> coding_terms, EpochListener epochs)
    : host_(host),
      options_(host.options()),
      coding_terms_(std::move(coding_terms)),
      epochs_(std::move(epochs)),
      order_(options_.tiers) {}

LowerTiers::~LowerTiers() = default;

Status LowerTiers::open() {
  const Environment& env = host_.env();
  uint8_t own_tiers = 0;
  costs_[0].seed(kHostSeed);
  for (size_t i = 0; i < options_.tiers.size(); ++i) {
    const TierOptions& options = options_.tiers[i];
    const auto index = static_cast<TierIndex>(i + 1);
    auto made = options.make ? options.make(index, host_.families(), this)
                             : open_disk(options, env, host_.families(), this, index);
    if (!made.ok()) return made.status();
    std::unique_ptr<tier::Tier> opened = std::move(made).value();
    const uint64_t cap_bytes_per_s = opened->kind() == "disk" ? options.read_bytes_per_s : 0;
    costs_[index].seed(seed_of(opened->kind()), cap_bytes_per_s);
    link_costs_[index].seed(seed_of(opened->kind()), cap_bytes_per_s);
    const CodedTierParts parts{env, options_.seal_keys, coding_terms_, host_.arena().block_bytes(), link_costs_[index]};
    order_.append(code_tier(parts, options, std::move(opened)));
    offloaders_.push_back(std::make_unique<Offloader>(host_, order_, index, options));
    hears_uses_ = hears_uses_ || offloaders_.back()->admits_on_use();
    if (tier(index).kind() != cluster::PeerTier::kKind) own_tiers |= on_tier_flag(index);
  }
  host_.set_own_tiers(own_tiers);
  note_tiers_in_use();
  opened_.store(true, std::memory_order_release);  // read by wanted()
  return {};
}

void LowerTiers::stand_by(TierIndex index, bool yes) noexcept {
  order_.set_standing_by(index, yes);
  note_tiers_in_use();
}

// Repeats the update if another thread has changed the tiers meanwhile.
void LowerTiers::note_tiers_in_use() noexcept {
  const auto in_use = [this] {
    uint8_t flags = 0;
    for (size_t i = 1; i <= options_.tiers.size(); ++i) {
      if (!out_of_use(static_cast<TierIndex>(i))) flags |= on_tier_flag(static_cast<TierIndex>(i));
    }
    // A block received from a node is flagged as being on the peer tier, but may exist here alone.
    return static_cast<uint8_t>(host_.received().any_given() ? flags & host_.own_tiers() : flags);
  };
  uint8_t flags = 0;
  do {
    flags = in_use();
    host_.table().set_below_flags(flags);
  } while (flags != in_use());
}

void LowerTiers::shutdown(UniqueFunction<void()> done) {
  const MemoryWait until_closed;
  closed_ = std::move(done);
  closing_parts_ = offloaders_.size() + 1;
  for (size_t i = 0; i < offloaders_.size(); ++i) {
    if (!order_.closes_after_above(i)) close_tier(i);
  }
  part_closed();
}

void LowerTiers::close_tier(size_t i) {
  offloaders_[i]->when_idle([self = keep(), i] {
    self->all()[i]->shutdown([self, i] {
      if (self->order_.closes_after_above(i + 1)) self->close_tier(i + 1);
      self->part_closed();
    });
  });
}

void LowerTiers::part_closed() {
  if (closing_parts_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  UniqueFunction<void()> call = std::move(closed_);
  call();
}

// ---- Writing host blocks ----

void LowerTiers::write_back(SlotId slot) {
  const MemoryWait sent;
  for (TierIndex i = 1; i <= count(); ++i) {
    if (options_.tiers[i - 1U].admission != AdmissionKind::on_eviction || out_of_use(i) || order_.is_fed(i)) continue;
    host_.table().retain({&slot, 1});
    offloader(i).request({slot}, nullptr);
  }
}

// `forgotten`: flags that are no longer valid.
void LowerTiers::offer(TierIndex index, uint8_t forgotten) {
  constexpr size_t kPage = 256;
  std::vector<block::SlotInfo> page;
  for (SlotId next = 0; next < host_.table().slots();) {
    page.clear();
    next = host_.table().scan(next, page, kPage);
    std::vector<SlotId> held;
    for (const block::SlotInfo& info : page) {
      if (info.state != block::SlotState::registered || info.withdrawn) continue;
      if ((info.flags & ~forgotten & on_tier_flag(index)) != 0) continue;
      if (host_.table().acquire_weak(info.slot, info.generation)) held.push_back(info.slot);
    }
    for (const SlotId slot : held) host_.table().clear_flags(slot, forgotten);
    if (!held.empty()) offloaders_[index - 1U]->stored(held);
    host_.release(held);
  }
}

void LowerTiers::used(std::span<const SlotId> slots) {
  for (auto& offloader : offloaders_) offloader->used(slots);
}

void LowerTiers::yield_offloads(size_t blocks) {
  const MemoryWait dropped;
  for (auto& offloader : offloaders_) {
    if (blocks == 0) return;
    blocks -= std::min(blocks, offloader->yield(blocks));
  }
}

uint64_t LowerTiers::offloading_blocks() const {
  uint64_t bytes = 0;
  for (const auto& offloader : offloaders_) bytes += offloader->held_bytes();
  return bytes / host_.arena().slot_bytes();
}

void LowerTiers::reject(TierIndex index, const Identity& id, uint64_t location) {
  add(host_.counters().tiers[index].errors, 1);
  tier(index).reject(id, location);
  host_.env().log->write(LogLevel::error, "manager",
                         "a block read from a lower tier failed verification and was dropped");
}

// ---- Implements tier::TierListener ----

void LowerTiers::epoch_raised(TierIndex /*tier*/, const NamespaceEpoch& row) { epochs_(row); }

void LowerTiers::removed(TierIndex tier, std::span<const Identity> ids, bool damaged) {
  TierCounters& counters = host_.counters().tiers[tier];
  if (damaged) {
    add(counters.damaged, ids.size());
  } else {
    add(counters.evictions, ids.size());
  }
  // The record below is gone, so the host's copy may be offloaded again. No block is flagged until all tiers are
  // open.
  if (opened_.load(std::memory_order_acquire)) offloaders_[tier - 1U]->left(ids);
  host_.events().publish(copy::EventKind::removed, tier, ids);
}

// A flush reports them as not taken, and offers those again that are still in the host.
void LowerTiers::not_durable(TierIndex tier, uint64_t records) {
  if (opened_.load(std::memory_order_acquire)) offloaders_[tier - 1U]->note_lost(records);
}

void LowerTiers::disabled(TierIndex tier, const Status& why) {
  order_.set_disabled(tier);
  note_tiers_in_use();
  host_.env().log->write(LogLevel::error, "tier", why.message());
  host_.events().disabled(tier);
}

void LowerTiers::warns(TierIndex /*tier*/, const Status& why) {
  if (host_.env().log != nullptr) host_.env().log->write(LogLevel::warning, "tier", why.message());
}

void LowerTiers::wanted(TierIndex tier, std::vector<Identity>& ids) {
  // A disk may evict before the tiers below it are open.
  const TierIndex to = opened_.load(std::memory_order_acquire) ? order_.next_below(tier) : kNoTier;
  if (to == kNoTier) return ids.clear();
  offloader(to).choose_wanted(ids);
}

void LowerTiers::take_over(TierIndex tier, std::unique_ptr<tier::PutBatch> batch) {
  const TierIndex to = order_.next_below(tier);
  if (to != kNoTier) return offloader(to).take_over(tier, std::move(batch));
  batch->status.assign(batch->items.size(), Code::tier_disabled);
  batch->done(*batch);
}

}  // namespace kvbm::manager
