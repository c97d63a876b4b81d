// A trace over an eviction policy alone: a fixed number of blocks, no bytes, no locks. It answers
// how many block references of the trace an eviction policy would serve.
//
// Hit rule: a reference hits when its block and all earlier blocks of its request are resident.
// Missed blocks are then inserted, a partial last block included; the blocks of the request in
// hand are never evicted for it. Block names are interned as (parent, id), so a trace whose ids
// do not form trees is still replayed as one whose ids do.
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
  double hit_rate = 0;    // percent of block_refs
  double nanoseconds = 0;  // a block reference, of processor time; 0 where nothing was timed
};

// A trace with its prefix trees: node numbers are dense and a parent's is below its children's.
struct PathTrace {
  struct Path {
    uint64_t first = 0;
    uint32_t count = 0;
  };
  std::vector<Path> paths;       // one a request
  std::vector<uint32_t> nodes;   // of all paths
  std::vector<uint32_t> parent;  // by node; kNoSlot at a root
};

[[nodiscard]] PathTrace make_paths(const trace::Trace& trace);

// Fails with invalid_argument for an unknown policy or a capacity of 0.
[[nodiscard]] Result<PolicyResult> replay_policy(const PathTrace& trace, std::string_view policy, size_t capacity);
// The same over a policy of the caller's, made for exactly this many facts.
using PolicyMaker = std::unique_ptr<policy::EvictionPolicy> (*)(void* context, std::span<policy::Facts> facts,
                                                                const policy::Residents& residents);
[[nodiscard]] Result<PolicyResult> replay_policy(const PathTrace& trace, PolicyMaker maker, void* context,
                                                 size_t capacity);

// The exact offline bound: Belady's rule with deepest-first ties, which keeps the kept set closed
// under parents (a parent's next use is never later than its child's), and with bypass: a block
// whose next use is the latest of all is not kept.
[[nodiscard]] PolicyResult replay_optimal(const PathTrace& trace, size_t capacity);
// A cache that never evicts.
[[nodiscard]] PolicyResult replay_unlimited(const PathTrace& trace);

}  // namespace kvbm::replay
