// Counters of the manager. Relaxed atomics: each is exact, but a snapshot of several is not of one moment.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/status.h"
#include "base/telemetry/metrics.h"
#include "base/thread/thread_number.h"

namespace kvbm::manager {

using Count = std::atomic<uint64_t>;

inline void add(Count& counter, uint64_t n) noexcept { counter.fetch_add(n, std::memory_order_relaxed); }
[[nodiscard]] inline uint64_t get(const Count& counter) noexcept { return counter.load(std::memory_order_relaxed); }

// Counter that every lookup or allocation adds to. Each thread adds in one of kParts cache lines, so that threads do
// not contend for one line.
class SpreadCount {
 public:
  void add(uint64_t n) noexcept { parts_[thread_number() % kParts].n.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] uint64_t get() const noexcept {
    uint64_t sum = 0;
    for (const Part& part : parts_) sum += part.n.load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr size_t kParts = 8;
  struct alignas(64) Part {
    Count n{0};
  };
  std::array<Part, kParts> parts_;
};
inline void add(SpreadCount& counter, uint64_t n) noexcept { counter.add(n); }
[[nodiscard]] inline uint64_t get(const SpreadCount& counter) noexcept { return counter.get(); }

// Traffic of one tier as the manager sees it; tier 0 is the host.
struct TierCounters {
  SpreadCount hits, hit_bytes, misses;
  Count stores{0}, store_bytes{0};
  Count loads{0}, load_bytes{0};
  SpreadCount evictions;
  Count damaged{0}, errors{0};
};

// Reason why a load did not bring a block that the lookup had found.
enum class LoadFailure : uint8_t { miss, damaged, mismatch, deadline, no_room, no_memory, other };
inline constexpr size_t kLoadFailures = 7;
[[nodiscard]] LoadFailure load_failure_of(Code code) noexcept;

struct Counters {
  SpreadCount lookups, keys_looked_up, keys_hit;
  Count partial_hits{0};
  // Keys served by re-slicing records of another tensor-parallel size. Lookups that found some shards of a size but
  // no size whole.
  Count keys_resliced{0}, shards_missing{0};
  SpreadCount matches_made, matches_ended;
  // Reads the ended count first, so that it never exceeds the made count.
  [[nodiscard]] uint64_t matches() const noexcept {
    const uint64_t ended = matches_ended.get();
    return matches_made.get() - ended;
  }
  Count operations{0};  // in flight
  Count refused_room{0}, refused_quota{0}, deadline_missed{0}, position_mismatches{0}, verify_failures{0};
  Count lossy_refused{0};  // blocks in the host that a reader refused because they are lossy
  // Coded blocks that a device decoded for a load. decoded_late: then decoded into the host as well. left_below: not
  // put into the host, because time was short, so they are in their tier only.
  Count decoded_late{0}, left_below{0};
  Count offload_skipped{0};   // blocks that their tier or its queue did not take, or evicted before their turn
  Count offload_at_limit{0};  // part of offload_skipped: the receiver can know no more families
  // Loads given the time that computing takes (LoadRequest::compute_block_ns).
  Count loads_not_started{0}, blocks_left{0};
  Count compute_saved_ns{0}, compute_lost_ns{0};
  Histogram load_predicted, load_actual;  // nanoseconds; of loads that were started
  std::array<TierCounters, 8> tiers;
  // Latency in nanoseconds, by operation kind - 1: wait in the executor, and service.
  std::array<Histogram, 4> wait;
  std::array<Histogram, 4> service;
  Histogram room_wait;                             // of stores that waited for a host slot, each its whole wait
  Histogram prefetch_room_wait;                    // of prefetches that waited for a host slot, each its whole wait
  Count prefetch_refused{0};                       // blocks that were not brought up because no slot was free
  Count load_staged{0};                            // blocks read into memory beside the host, which had no free slot
  std::array<Count, kLoadFailures> load_failed{};  // found blocks that loads did not bring, by LoadFailure
};

}  // namespace kvbm::manager
