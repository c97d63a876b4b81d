// The policies of this folder, one file each; callers make them by name (eviction.h).
#pragma once

#include <memory>
#include <span>

#include "policy/eviction.h"

namespace kvbm::policy {

// Least recently used first; of one request's blocks the deepest is the least recent.
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_lru(std::span<Facts> facts, const Residents& residents);
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_fifo(std::span<Facts> facts, const Residents& residents);
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_lfu(std::span<Facts> facts, const Residents& residents);
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_tinylfu(std::span<Facts> facts, const Residents& residents);
// The default policy of kvbm: learns when blocks return (prefix.cc).
[[nodiscard]] std::unique_ptr<EvictionPolicy> make_prefix(std::span<Facts> facts, const Residents& residents);

}  // namespace kvbm::policy
