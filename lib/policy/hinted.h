// Applies hints (hints.h) to policies that do not handle them, a caller's own included.
//
// A one-shot block or one to keep is removed from the policy and waits in a list of this layer. The policy never
// chooses it and is not notified of it until the hint ends. Other blocks are the policy's. A block with kHintContinue
// is treated as evicted and returned when the policy first chooses it after the hint: it is inserted again, once.
//
// Cost: O(1) a hint. Beyond the policy's own work, an eviction checks at most kMostPutBack choices and kMostLooks kept
// blocks.
#pragma once

#include <memory>
#include <span>

#include "policy/eviction.h"

namespace kvbm::policy {

// Limits of one eviction: choices that are inserted again, and kept blocks that are skipped because they were used.
inline constexpr int kMostPutBack = 64;
inline constexpr int kMostLooks = 64;

// Returns the policy itself if it handles hints, or is null.
[[nodiscard]] std::unique_ptr<EvictionPolicy> with_hints(std::unique_ptr<EvictionPolicy> policy, std::span<Facts> facts,
                                                         const Residents& residents);

}  // namespace kvbm::policy
