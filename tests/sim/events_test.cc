// Compares the sum of a manager's events with its contents, over a random life with faults, kills and power cuts.
// KVBMTEST_SIM_SEEDS is the number of seeds (default 60), KVBMTEST_SIM_FIRST the first, KVBMTEST_LONG=1 runs 2,000.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/manager_world.h"
#include "support/simulated_kills.h"

namespace kvbm::test::events_test {
namespace {

const SimulatedKills kills(__FILE__);

uint64_t number(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// A router sends a prompt to where events say that its blocks are.
TEST(EventsSim, what_events_add_up_to_is_what_is_there_after_every_step) {
  Seen all;
  const uint64_t n = number("KVBMTEST_SIM_SEEDS", std::getenv("KVBMTEST_LONG") != nullptr ? 2000 : 60);
  const uint64_t first = number("KVBMTEST_SIM_FIRST", 1);
  for (uint64_t seed = first; seed < first + n && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed, seed % 3 != 0);
    if (::testing::Test::HasFatalFailure()) return;
    if (!world.follow_events()) continue;
    world.run(150);
    all.events_compared += world.seen.events_compared, all.stored_events += world.seen.stored_events;
    all.removed_below += world.seen.removed_below, all.cleared_events += world.seen.cleared_events;
    all.disabled_events += world.seen.disabled_events;
  }
  std::printf("  compared %llu times; %llu stored, %llu removed from tiers below, %llu cleared, %llu disabled\n",
              static_cast<unsigned long long>(all.events_compared), static_cast<unsigned long long>(all.stored_events),
              static_cast<unsigned long long>(all.removed_below), static_cast<unsigned long long>(all.cleared_events),
              static_cast<unsigned long long>(all.disabled_events));
  EXPECT_GT(all.events_compared, n * 20);
  if (n < 60) return;
  for (const uint64_t count : {all.stored_events, all.removed_below, all.cleared_events, all.disabled_events}) {
    EXPECT_GT(count, 0U);
  }
}

}  // namespace
}  // namespace kvbm::test::events_test
