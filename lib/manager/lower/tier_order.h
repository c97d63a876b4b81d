// The tiers below the host, in order: which of them are in use, and which of them feeds which. Index 1 is the first
// tier below the host.
//
// Thread: any, once all tiers are there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "manager/common/options.h"
#include "tier/tier.h"

namespace kvbm::manager {

class TierOrder {
 public:
  // `options`: one for each tier; outlives this object.
  explicit TierOrder(const std::vector<TierOptions>& options) noexcept : options_(options) {}

  void append(std::unique_ptr<tier::Tier> tier) { tiers_.push_back(std::move(tier)); }
  [[nodiscard]] size_t count() const noexcept { return tiers_.size(); }
  [[nodiscard]] tier::Tier& tier(TierIndex index) noexcept { return *tiers_[index - 1U]; }
  [[nodiscard]] std::span<const std::unique_ptr<tier::Tier>> all() const noexcept { return tiers_; }

  // ---- Tiers in use ----
  [[nodiscard]] bool disabled(TierIndex index) const noexcept {
    return (disabled_.load(std::memory_order_relaxed) >> index & 1U) != 0;
  }
  // A tier on standby is neither searched nor written to; an operation that names it can still use it.
  [[nodiscard]] bool stands_by(TierIndex index) const noexcept {
    return (standing_by_.load(std::memory_order_acquire) >> index & 1U) != 0;
  }
  [[nodiscard]] bool out_of_use(TierIndex index) const noexcept { return disabled(index) || stands_by(index); }
  void set_disabled(TierIndex index) noexcept { disabled_.fetch_or(1U << index, std::memory_order_relaxed); }
  void set_standing_by(TierIndex index, bool yes) noexcept;

  // ---- Relations between tiers ----
  // True if this tier gets all blocks that the host evicts through a tier above it, which has them first.
  [[nodiscard]] bool is_fed(TierIndex index) const noexcept;
  // Returns the on-tier flags of tiers above that pass their evicted records to this tier.
  [[nodiscard]] uint8_t flags_of_feeders(TierIndex index) const noexcept;
  // Returns the on-tier flags of tiers below that took over records from this tier.
  [[nodiscard]] uint8_t flags_of_fed(TierIndex index) const noexcept;
  // Returns true if a tier in use gets only blocks that the host evicts. A store that must lose nothing then
  // allocates without evicting.
  [[nodiscard]] bool host_has_last_copies() const noexcept;
  // Returns the tier that takes over records evicted from `from`; kNoTier.
  [[nodiscard]] TierIndex next_below(TierIndex from) const noexcept;
  // Returns true if the tier at all()[i] takes over records from the tier above, and so must be closed after that one.
  [[nodiscard]] bool closes_after_above(size_t i) const noexcept;

 private:
  // takes_over(): whether this tier accepts records that other tiers evict. feeds(): whether it passes its own on.
  [[nodiscard]] bool takes_over(TierIndex index) const noexcept;
  [[nodiscard]] bool feeds(TierIndex index) const noexcept;

  const std::vector<TierOptions>& options_;
  std::vector<std::unique_ptr<tier::Tier>> tiers_;
  std::atomic<uint32_t> disabled_{0};     // bit i: tier i is out of service
  std::atomic<uint32_t> standing_by_{0};  // bit i: tier i
};

}  // namespace kvbm::manager
