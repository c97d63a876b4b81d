// Replays a trace over an eviction policy alone: a fixed number of blocks, no bytes, no locks. It counts the block
// references of the trace that the policy would serve.
//
// Hit rule: a reference hits when its block and all earlier blocks of its request are resident. Missed blocks are
// then inserted, a partial last block included. The blocks of the current request are never evicted for it. Block
// names are interned as (parent, id), so a trace with ids that do not form trees is replayed as if they did.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "policy/eviction.h"
#include "trace/mooncake.h"

namespace kvbm::replay {

struct PolicyResult {
  std::string policy;
  uint64_t block_refs = 0;
  uint64_t hits = 0;
  double hit_rate = 0;     // percent of block_refs
  double nanoseconds = 0;  // per block reference, of processor time; 0 if nothing was timed
};

// A trace with its prefix trees: node numbers are dense and a parent's is below its children's.
struct PathTrace {
  struct Path {
    uint64_t first = 0;
    uint32_t count = 0;
  };
  std::vector<Path> paths;       // one per request
  std::vector<uint32_t> nodes;   // of all paths
  std::vector<uint32_t> parent;  // by node; kNoSlot at a root
};

[[nodiscard]] PathTrace make_paths(const trace::Trace& trace);

// Replays the trace over a named policy. Fails with invalid_argument for an unknown policy or a capacity of 0.
[[nodiscard]] Result<PolicyResult> replay_policy(const PathTrace& trace, std::string_view policy, size_t capacity);
// Replays the trace over a policy of the caller, made for exactly this many facts.
using PolicyMaker = std::unique_ptr<policy::EvictionPolicy> (*)(void* context, std::span<policy::Facts> facts,
                                                                const policy::Residents& residents);
[[nodiscard]] Result<PolicyResult> replay_policy(const PathTrace& trace, PolicyMaker maker, void* context,
                                                 size_t capacity);

// Computes the exact offline bound: Belady's rule with deepest-first ties and with bypass. The ties keep the resident
// set closed under parents, because a parent's next use is never later than its child's. Bypass means that a block
// with the latest next use of all is not inserted.
[[nodiscard]] PolicyResult replay_optimal(const PathTrace& trace, size_t capacity);
// Replays the trace over a cache that never evicts.
[[nodiscard]] PolicyResult replay_unlimited(const PathTrace& trace);

}  // namespace kvbm::replay
