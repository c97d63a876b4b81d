// Replays a trace through the library itself, like an engine: look up, load the hits, verify every byte of them,
// compute (here: fill) and store the misses.
//
// The content of a block depends only on its place in the trace's prefix trees, so a run can check bytes that another
// run stored. Only the C interface is used.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "kvbm.h"
#include "replay/policy_replay.h"

namespace kvbm::replay {

// Counts while a replay runs.
struct StoreProgress {
  uint64_t requests = 0;
  uint64_t block_refs = 0;
  uint64_t hits = 0;
  uint64_t tokens = 0;
  uint64_t tokens_saved = 0;
  uint64_t verified_blocks = 0;
  uint64_t wrong_blocks = 0;
};

struct StoreOptions {
  uint64_t host_bytes = 256ULL << 20;
  std::vector<uint64_t> disks;       // bytes of each disk tier, in order
  std::string disk_path;             // of the first; the second one is in disk_path-2, and so on
  std::vector<uint32_t> admissions;  // KVBM_ADMIT_* of the tiers below the host; missing ones are KVBM_ADMIT_ALL
  std::string codec = "off";         // of the disk tier
  uint64_t block_bytes = 64ULL << 10;
  std::string policy;               // empty: the default
  std::vector<std::string> stores;  // URLs of stores, below the disks
  std::string plugin;               // a shared library with `kvbm_plugin_table`; empty: none
  std::string peers;  // addresses of nodes, with commas: blocks are offered to them, and theirs are looked up too
  bool verify = true;
  uint32_t threads = 1;         // engines at a time
  uint32_t load_blocks = 0;     // blocks of one load; 0: all that a lookup found
  bool settle = false;          // after each request, wait until its stored blocks have reached the tiers below
  uint64_t first = 0;           // requests to skip
  uint64_t limit = UINT64_MAX;  // requests to replay
  // Called after each request, by one engine thread at a time.
  std::function<void(const StoreProgress&)> progress;
  // Called with the manager once its tiers are open, and with null before its release, on the replaying thread.
  // Between these calls another thread may use it.
  std::function<void(kvbm_manager_t*)> opened;
  // Once true, no engine begins another request, and requests in progress end as usual. Null: never.
  const std::atomic<bool>* stop = nullptr;
};

struct StoreResult {
  uint64_t requests = 0;
  uint64_t block_bytes = 0;
  uint64_t block_refs = 0;
  uint64_t hits = 0;  // references to blocks that were loaded with the right bytes
  uint64_t verified_blocks = 0;
  uint64_t wrong_blocks = 0;                      // reported as good with wrong bytes; must be 0
  uint64_t failed_blocks = 0;                     // matched, then reported as not loaded
  std::map<kvbm_status_t, uint64_t> failed_as{};  // by status; blocks after the first failed one count under its status
  uint64_t found_again = 0;                       // hits on blocks that this run had not stored
  uint64_t stored_blocks = 0;
  uint64_t tokens_saved = 0;  // of the trace, by its input lengths
  uint64_t tokens = 0;
  double seconds = 0;
  double load_seconds = 0;   // inside load calls, all threads
  double store_seconds = 0;  // inside store calls
  kvbm_manager_stats_t stats{};
  std::vector<std::string> warnings{};  // the library's first few warnings, each once
  [[nodiscard]] double hit_rate() const {
    return block_refs == 0 ? 0 : 100.0 * static_cast<double>(hits) / static_cast<double>(block_refs);
  }
};

Result<StoreResult> replay_store(const trace::Trace& trace, const PathTrace& paths, const StoreOptions& options);

// Fill a block's bytes, and return whether they are right.
void fill_block(uint64_t node, std::byte* out, size_t bytes);
bool check_block(uint64_t node, const std::byte* bytes, size_t n);

}  // namespace kvbm::replay
