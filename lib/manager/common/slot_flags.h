// Bits of a host slot's flags (BlockTable::flags), and numbers of tiers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"

namespace kvbm::manager {

enum SlotFlag : uint8_t {
  kHasHead = 1,     // the head in the arena describes the payload
  kMakingHead = 2,  // a thread is hashing the payload now
  kOnTier1 = 4,     // tier i has the record: kOnTier1 << (i - 1), i <= 6
};
inline constexpr size_t kMaxTiersBelow = 6;
// Used in place of a tier: the block does not exist as such, but can be re-sliced from records of another
// tensor-parallel size (MatchPart::others). No tier has this number.
inline constexpr TierIndex kOtherSize = 7;
constexpr uint8_t on_tier_flag(TierIndex tier) noexcept { return static_cast<uint8_t>(kOnTier1 << (tier - 1)); }

}  // namespace kvbm::manager
