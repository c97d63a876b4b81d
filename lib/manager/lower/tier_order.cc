#include "manager/lower/tier_order.h"

#include "manager/common/slot_flags.h"
#include "manager/lower/coded_tiers.h"

namespace kvbm::manager {

void TierOrder::set_standing_by(TierIndex index, bool yes) noexcept {
  if (yes) {
    standing_by_.fetch_or(1U << index, std::memory_order_acq_rel);
  } else {
    standing_by_.fetch_and(~(1U << index), std::memory_order_acq_rel);
  }
}

bool TierOrder::takes_over(TierIndex index) const noexcept {
  return options_[index - 1U].admission != AdmissionKind::on_request && !out_of_use(index) &&
         is_storage(*tiers_[index - 1U]);
}

bool TierOrder::feeds(TierIndex index) const noexcept {
  return !out_of_use(index) && tiers_[index - 1U]->offers_what_it_lets_go();
}

TierIndex TierOrder::next_below(TierIndex from) const noexcept {
  for (size_t i = from + 1U; i <= tiers_.size(); ++i) {
    if (takes_over(static_cast<TierIndex>(i))) return static_cast<TierIndex>(i);
  }
  return kNoTier;
}

bool TierOrder::is_fed(TierIndex index) const noexcept {
  if (!takes_over(index)) return false;
  for (size_t i = 1; i < index; ++i) {
    const AdmissionKind admission = options_[i - 1].admission;
    const bool has_all = admission == AdmissionKind::all || admission == AdmissionKind::on_eviction;
    if (has_all && feeds(static_cast<TierIndex>(i))) return true;
  }
  return false;
}

uint8_t TierOrder::flags_of_feeders(TierIndex index) const noexcept {
  uint8_t flags = 0;
  for (size_t i = 1; takes_over(index) && i < index; ++i) {
    if (feeds(static_cast<TierIndex>(i))) flags |= on_tier_flag(static_cast<TierIndex>(i));
  }
  return flags;
}

uint8_t TierOrder::flags_of_fed(TierIndex index) const noexcept {
  uint8_t flags = 0;
  for (size_t i = index + 1U; feeds(index) && i <= tiers_.size(); ++i) {
    const bool write_back = options_[i - 1].admission == AdmissionKind::on_eviction;
    if (write_back && takes_over(static_cast<TierIndex>(i))) flags |= on_tier_flag(static_cast<TierIndex>(i));
  }
  return flags;
}

bool TierOrder::host_has_last_copies() const noexcept {
  bool last_copies = false;
  for (TierIndex i = 1; i <= tiers_.size(); ++i) {
    const bool write_back = options_[i - 1U].admission == AdmissionKind::on_eviction;
    last_copies = last_copies || (write_back && !out_of_use(i) && !is_fed(i));
  }
  return last_copies;
}

bool TierOrder::closes_after_above(size_t i) const noexcept {
  return i != 0 && i < tiers_.size() && tiers_[i - 1]->offers_what_it_lets_go() && is_storage(*tiers_[i]);
}

}  // namespace kvbm::manager
