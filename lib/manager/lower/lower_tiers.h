// The tiers below the host (tier_order.h), what reading them costs, and the offloaders that write host blocks into
// them.
//
// It is the listener of its tiers. Thread: any, after open(). Lock order: lib/README.md.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "copy/cost.h"
#include "manager/common/slot_flags.h"
#include "manager/host/host_tier.h"
#include "manager/lower/tier_order.h"
#include "tier/tier.h"

namespace kvbm::manager {

class CodingTerms;
class Offloader;

class LowerTiers final : public tier::TierListener {
 public:
  // Receives epochs that a tier reports.
  using EpochListener = std::function<void(const NamespaceEpoch& row)>;

  LowerTiers(HostTier& host, std::shared_ptr<CodingTerms> coding_terms, EpochListener epochs);
  ~LowerTiers() override;

  // Opens the tiers of the options, from above.
  Status open();
  // Closes the tiers when the offloaders are idle; `done` runs once. Allocates nothing: its caller could not handle a
  // refused allocation.
  void shutdown(UniqueFunction<void()> done);

  [[nodiscard]] HostTier& host() noexcept { return host_; }
  [[nodiscard]] size_t count() const noexcept { return order_.count(); }
  [[nodiscard]] tier::Tier& tier(TierIndex index) noexcept { return order_.tier(index); }
  [[nodiscard]] std::span<const std::unique_ptr<tier::Tier>> all() const noexcept { return order_.all(); }
  [[nodiscard]] Offloader& offloader(TierIndex index) noexcept { return *offloaders_[index - 1U]; }
  [[nodiscard]] std::span<const std::unique_ptr<Offloader>> offloaders() const noexcept { return offloaders_; }
  // Cost of reading blocks from a tier; 0: of copying out of the host.
  [[nodiscard]] copy::SourceCost& cost(TierIndex index) noexcept { return costs_[index]; }
  // Cost of reading a tier without decoding.
  [[nodiscard]] copy::SourceCost& link_cost(TierIndex index) noexcept { return link_costs_[index]; }
  // Returns an owner of this object and of the whole manager.
  [[nodiscard]] std::shared_ptr<LowerTiers> keep() noexcept { return host_.lifetime().keep(*this); }

  // ---- Tiers in use ----
  [[nodiscard]] bool disabled(TierIndex index) const noexcept { return order_.disabled(index); }
  [[nodiscard]] bool stands_by(TierIndex index) const noexcept { return order_.stands_by(index); }
  [[nodiscard]] bool out_of_use(TierIndex index) const noexcept { return order_.out_of_use(index); }
  [[nodiscard]] bool host_has_last_copies() const noexcept { return order_.host_has_last_copies(); }
  void stand_by(TierIndex index, bool yes) noexcept;
  // Recomputes which tiers count as holding a copy: blocks in one of them may be evicted before the blocks that
  // follow.
  void note_tiers_in_use() noexcept;
  // The tier that must have a store's blocks before the store completes; kNoTier: the host is enough.
  [[nodiscard]] TierIndex required_tier() const noexcept { return required_tier_.load(std::memory_order_acquire); }
  void require_tier(TierIndex index) noexcept { required_tier_.store(index, std::memory_order_release); }

  // ---- Writing host blocks ----
  // Sends a held block to the tiers that would get it at its eviction.
  void write_back(SlotId slot);
  // Offers all host blocks to a tier that came into use, or that returned with unknown contents.
  void offer_all(TierIndex index) { offer(index, on_tier_flag(index)); }
  // Offers the host blocks that the tier is not known to have.
  void offer_missing(TierIndex index) { offer(index, 0); }
  // Reports hits that offloaders may act on.
  void used(std::span<const SlotId> slots);
  [[nodiscard]] bool hears_uses() const noexcept { return hears_uses_; }
  // Returns the number of blocks that offloads hold in the host.
  [[nodiscard]] uint64_t offloading_blocks() const;
  // Drops queued offloads to free slots for `blocks` that are read up: a block that is only queued need not stay.
  void yield_offloads(size_t blocks);
  // Rejects a record from `location` that failed verification: the tier drops it.
  void reject(TierIndex tier, const Identity& id, uint64_t location);

  // ---- Flush (flush.cc) ----
  // `done` runs when no offload is queued or in flight.
  void flush(UniqueFunction<void()> done);
  // Flushes, after it has offered blocks again that disks and plug-ins did not take. partial: some were not taken
  // since the last flush that reported so. Every flush in progress at that time reports it, or else the next one.
  // `done` returns whether the caller received the code. With `durable` the codes of sync_tiers() are possible too:
  // unsupported, or partial.
  void flush_and_report(bool durable, UniqueFunction<bool(Code)> done);
  // Makes the records of tiers that store them durable. `done` runs once: ok; unsupported if one tier cannot promise
  // durability, or no tier stores records; partial if some records could not be made durable. Those have left their
  // tier, and the next flush offers them again.
  void sync_tiers(UniqueFunction<void(Code)> done);

  // ---- Implements tier::TierListener ----
  void epoch_raised(TierIndex tier, const NamespaceEpoch& row) override;
  void removed(TierIndex tier, std::span<const Identity> ids, bool damaged) override;
  void not_durable(TierIndex tier, uint64_t records) override;
  void disabled(TierIndex tier, const Status& why) override;
  void warns(TierIndex tier, const Status& why) override;
  void wanted(TierIndex tier, std::vector<Identity>& ids) override;
  void take_over(TierIndex tier, std::unique_ptr<tier::PutBatch> batch) override;

 private:
  void close_tier(size_t i);
  void part_closed();
  void offer(TierIndex index, uint8_t forgotten);
  [[nodiscard]] uint64_t not_taken();

  HostTier& host_;
  const Options& options_;
  const std::shared_ptr<CodingTerms> coding_terms_;
  const EpochListener epochs_;
  TierOrder order_;
  std::vector<std::unique_ptr<Offloader>> offloaders_;
  std::array<copy::SourceCost, kMaxTiersBelow + 1> costs_;
  std::array<copy::SourceCost, kMaxTiersBelow + 1> link_costs_;
  bool hears_uses_ = false;
  std::atomic<TierIndex> required_tier_{kNoTier};
  std::atomic<bool> opened_{false};              // order_ and offloaders_ are complete
  std::atomic<bool> sync_failed_{false};         // true until blocks have been offered again
  std::atomic<uint64_t> not_taken_reported_{0};  // the part of not_taken() that flushes have reported
  // State of shutdown(): the parts that it still waits for, and its callback.
  std::atomic<size_t> closing_parts_{0};
  UniqueFunction<void()> closed_;
};

}  // namespace kvbm::manager
