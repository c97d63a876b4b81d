// Snapshot of a manager's counters, and the counters as Prometheus text.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "tier/tier.h"

namespace kvbm::manager {

class DeviceCaches;
class Namespaces;
class Pins;
class TierStack;
struct ShareState;

// Parts of a manager that statistics and metrics report on.
struct Observed {
  TierStack& stack;
  const Pins& pins;
  Namespaces& namespaces;
  const ShareState& share;
  DeviceCaches& devices;
};

struct TierSnapshot {
  uint64_t capacity_bytes = 0, used_bytes = 0, blocks = 0, payload_bytes = 0;
  uint64_t hits = 0, hit_bytes = 0, misses = 0;
  uint64_t stores = 0, store_bytes = 0;
  uint64_t loads = 0, load_bytes = 0;
  uint64_t evictions = 0, damaged = 0, errors = 0;
  uint64_t metadata_bytes = 0;
  uint64_t staging_bytes = 0;
  uint64_t disabled = 0;
  uint64_t moved_down = 0, moves_lost = 0;           // of records that it evicted and that the tier below asked for
  uint64_t full = 0;                                 // the disk's file system is full
  uint64_t faults = 0, second_answers = 0;           // of a plug-in
  uint64_t read_start_ns = 0, read_bytes_per_s = 0;  // expected
  tier::CodecStats codec;
  tier::StoreStats store;
};

struct Snapshot {
  uint32_t n_tiers = 0;
  uint64_t lookups = 0, keys_looked_up = 0, keys_hit = 0, partial_hits = 0;
  uint64_t keys_resliced = 0, shards_missing = 0;
  uint64_t holds = 0, pins = 0, matches = 0;
  uint64_t operations_in_flight = 0;
  uint64_t refused_room = 0, refused_quota = 0, deadline_missed = 0, position_mismatches = 0, verify_failures = 0;
  uint64_t policy_refused = 0;
  uint64_t underflows = 0;
  uint64_t offloads_skipped = 0, offloads_at_limit = 0, lossy_refused = 0;
  uint64_t given_lost = 0;  // ReceivedBlocks::lost()
  uint64_t loads_weighed = 0, load_predicted_ns = 0, load_actual_ns = 0, loads_not_started = 0, blocks_left = 0;
  uint64_t compute_saved_ns = 0, compute_lost_ns = 0;
  std::array<TierSnapshot, 8> tiers;
};

Snapshot snapshot(const Observed& observed);
// Leaves pins out.
Snapshot snapshot(TierStack& stack);
std::string metrics_text(const Observed& observed);

}  // namespace kvbm::manager
