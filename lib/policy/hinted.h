// Hints (hints.h) over a policy that does not look at them: one layer for all of those, the caller's own included.
//
// A one-shot block or one to keep leaves the policy and waits in a list of this layer; the policy never chooses it and
// does not hear of it until the hint is taken back. The other blocks are the policy's. A block of a conversation that
// goes on is taken as evicted and come back when the policy first chooses it after the hint: it is put back, once.
// Cost: O(1) a hint; an eviction looks at kMostPutBack choices and kMostLooks kept blocks at most, beyond what the
// policy itself does.
#pragma once

#include <memory>
#include <span>

#include "policy/eviction.h"

namespace kvbm::policy {

// Choices that one eviction puts back at most, and kept blocks that it passes over because they were used.
inline constexpr int kMostPutBack = 64;
inline constexpr int kMostLooks = 64;

// The policy itself where it hears hints, or is null.
[[nodiscard]] std::unique_ptr<EvictionPolicy> with_hints(std::unique_ptr<EvictionPolicy> policy, std::span<Facts> facts,
                                                         const Residents& residents);

}  // namespace kvbm::policy
