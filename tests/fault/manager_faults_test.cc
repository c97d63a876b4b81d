// Refuses memory once at every place where a whole manager allocates while it is short of everything else: stores and
// prefetches wait for slots, loads land beside the host, and records that a disk evicts are on their way into the next
// one.
//
// The life is that of a simulated world (support/manager_world.h). The world compares every block that a load returns.
// At the end it checks that every operation has completed once and that nothing is held.
// A place is a stack; of each the first allocation is refused, in a world of its own. The allocations are of two kinds:
// those in tasks of the library's threads, which wait for memory or do without, and those in operations that their
// caller drives, which may end as KVBM_ERR_NO_MEMORY.
//
// A slice of the places is tried, of one size on every machine; KVBMTEST_LONG=1 tries all, KVBMTEST_FAULT_SITE=N one,
// with its stack.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "support/counts.h"
#include "support/manager_world.h"
#include "support/refusing_allocator.h"

namespace kvbm::test::manager_faults_test {
namespace {

constexpr int kSteps = 120;
constexpr uint64_t kSeeds = 100;  // one of these has the wanted situation
// Places of the slice, in each world.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kPlaces = 8;
#else
constexpr size_t kPlaces = 40;
#endif

// Situation that a world must have.
struct Wanted {
  const char* what;
  std::function<bool(const Seen&)> has;
};
const Wanted kWanted[] = {
    {"stores that wait", [](const Seen& s) { return s.waited > 1; }},
    {"prefetches that wait", [](const Seen& s) { return s.prefetches_waited != 0; }},
    {"loads past the host", [](const Seen& s) { return s.past_host > 4; }},
    {"records that move from disk to disk", [](const Seen& s) { return s.moved_down > 4; }},
    {"blocks that other nodes gave", [](const Seen& s) { return s.taken > 8 && s.refused != 0; }},
};

Seen live(uint64_t seed) {
  World world(seed, false, true);
  fault.seen = 0;
  fault.fired = false;
  fault.counting = true;
  world.run(kSteps);
  fault.counting = false;
  return world.seen;
}

// Returns the first world that has it; 0: none.
uint64_t seed_with(const Wanted& wanted) {
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    if (wanted.has(live(seed))) return seed;
  }
  return 0;
}

[[noreturn]] void say_where() {
  std::fprintf(stderr, "site %llu ended the process\n", static_cast<unsigned long long>(fault.at.load()));
  std::abort();
}

void refuse_each(Place whose) {
  const InPlace test(Place::nowhere);
  std::set_terminate(say_where);
  fault.where = whose;
  const bool all = std::getenv("KVBMTEST_LONG") != nullptr;
  const char* const one = std::getenv("KVBMTEST_FAULT_SITE");
  uint64_t tried = 0;
  uint64_t refused = 0;
  size_t known = 0;
  for (const Wanted& wanted : kWanted) {
    SCOPED_TRACE(wanted.what);
    fault.at = 0;
    const uint64_t seed = seed_with(wanted);
    ASSERT_NE(seed, 0U);
    std::vector<uint64_t> sites;
    fault.sites = &sites;
    (void)live(seed);
    fault.sites = nullptr;
    known += sites.size();
    if (one != nullptr) sites = {std::strtoull(one, nullptr, 10)};
    fault.print = one != nullptr;
    const size_t slice = all ? sites.size() : std::min(kPlaces, sites.size());
    for (size_t i = 0; i < slice && !::testing::Test::HasFailure(); ++i) {
      fault.at = sites[all ? i : i * 7919 % sites.size()];  // prime: a slice is spread over all of the life
      SCOPED_TRACE("seed " + std::to_string(seed) + ", site " + std::to_string(fault.at));
      const Seen seen = live(seed);
      EXPECT_TRUE(fault.fired);
      ++tried;
      refused += seen.no_memory;
    }
    fault.print = false;
  }
  counted(tried, "faults at sites of allocations");
  std::printf("%llu of %zu sites, %llu operations without memory\n", static_cast<unsigned long long>(tried), known,
              static_cast<unsigned long long>(refused));
}

TEST(ManagerFaults, memory_refused_to_a_thread_of_the_library_is_waited_for_or_done_without) {
  refuse_each(Place::library);
}

TEST(ManagerFaults, memory_refused_to_a_caller_ends_his_operation_and_keeps_nothing) { refuse_each(Place::caller); }

}  // namespace
}  // namespace kvbm::test::manager_faults_test
