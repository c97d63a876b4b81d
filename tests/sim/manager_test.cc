// The whole of blocks, tiers and manager on one thread from a seed, with faults, kills and power cuts.
//
// Invariants:
// - A block that a load reports as loaded has exactly the bytes stored under its key, namespace, epoch and shard.
// - No other byte of the engine's memory is written.
// - Every operation completes exactly once, also through a shutdown.
// - At idle nothing is held.
// - A seed run twice gives the same log.
// KVBMTEST_SIM_SEEDS is the number of seeds (default 150), KVBMTEST_SIM_FIRST the first, KVBMTEST_LONG=1 runs 5,000.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "support/counts.h"
#include "support/manager_world.h"
#include "support/simulated_kills.h"

namespace kvbm::test::manager_test {
namespace {

const SimulatedKills kills(__FILE__);

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

void add(Seen& all, const Seen& one) {
  all.submitted += one.submitted, all.loaded += one.loaded, all.restarts += one.restarts;
  all.shutdowns += one.shutdowns, all.reclaimed += one.reclaimed, all.disabled += one.disabled;
  all.over_quota += one.over_quota, all.registered += one.registered, all.partial_loads += one.partial_loads;
  all.coded += one.coded, all.decoded += one.decoded, all.sealed += one.sealed;
  all.moved_down += one.moved_down, all.moves_lost += one.moves_lost;
  all.repeats += one.repeats, all.lost += one.lost;
  all.recovered += one.recovered, all.forgotten += one.forgotten;
  all.waited += one.waited, all.refused += one.refused;
  all.resliced += one.resliced, all.shards_missing += one.shards_missing;
  all.past_host += one.past_host, all.prefetches_waited += one.prefetches_waited;
}

void print(uint64_t seeds, const Seen& all) {
  const auto line = [](const char* what, uint64_t n) {
    std::printf("  %-28s %llu\n", what, static_cast<unsigned long long>(n));
  };
  counted(seeds, "seeds"), counted(all.submitted, "simulated operations"), counted(all.restarts, "simulated kills");
  line("seeds", seeds), line("operations", all.submitted), line("units loaded and compared", all.loaded);
  line("kills and power cuts", all.restarts), line("shutdowns", all.shutdowns), line("directories given up", all.lost);
  line("records reclaimed", all.reclaimed), line("of these moved down", all.moved_down);
  line("of these not taken over", all.moves_lost);
  line("tiers disabled", all.disabled), line("over quota", all.over_quota);
  line("managed blocks registered", all.registered), line("loads of part of a block", all.partial_loads);
  line("scattered stores", all.repeats), line("records coded", all.coded), line("records sealed", all.sealed);
  line("blocks in a host file again", all.recovered), line("starts after a reset", all.forgotten);
  line("records decoded", all.decoded), line("stores that waited for room", all.waited);
  line("blocks without room", all.refused), line("blocks loaded past the host", all.past_host);
  line("keys of other ranks' records", all.resliced), line("lookups that lacked some", all.shards_missing);
  line("prefetches that waited", all.prefetches_waited);
}

TEST(ManagerSim, never_gives_a_wrong_block_and_completes_every_operation) {
  Seen all;
  const uint64_t n = number("KVBMTEST_SIM_SEEDS", std::getenv("KVBMTEST_LONG") != nullptr ? 5000 : 150);
  const uint64_t first = number("KVBMTEST_SIM_FIRST", 1);
  for (uint64_t seed = first; seed < first + n && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, seed % 3 != 0);
    if (::testing::Test::HasFatalFailure()) return;
    world.run(250);
    add(all, world.seen);
  }
  print(n, all);
  EXPECT_GT(all.loaded, n * 10);
  if (n < 100) return;
  // Each event that the worlds are built to cause happened in at least one of them.
  for (const uint64_t count :
       {all.restarts, all.shutdowns, all.reclaimed, all.moved_down, all.moves_lost, all.disabled, all.over_quota,
        all.registered, all.partial_loads, all.repeats, all.coded, all.sealed, all.decoded, all.waited, all.recovered,
        all.forgotten, all.past_host, all.resliced, all.shards_missing}) {
    EXPECT_GT(count, 0U);
  }
}

TEST(ManagerSim, a_seed_run_twice_gives_the_same_log) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    uint64_t hash[2];
    for (uint64_t& h : hash) {
      World world(seed, true);
      world.run(150);
      h = world.log_hash();
    }
    EXPECT_EQ(hash[0], hash[1]) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kvbm::test::manager_test
