// Lookups in a store's tier while it erases a family with very many records.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "support/store_host.h"
#include "tier/store/store_format.h"
#include "tier/store/store_tier.h"

namespace kvbm::test::store_tier_pages_test {
namespace {

using store_host::Asked;
using store_host::Host;
using store_host::kSecond;
using store_host::unix_ms_of;
using tier::store::IndexObject;
using tier::store::PackRow;

constexpr uint32_t kPages = 64;
constexpr uint32_t kRecords = 16'384;  // of a page

// Puts an index object with so many pages into the bucket.
void write_index(SimBucket& bucket, uint64_t ms, uint32_t number, uint32_t pages) {
  IndexObject index;
  for (uint32_t page = 0; page < pages; ++page) {
    PackRow& row = index.packs.emplace_back();
    row.stamp = {ms, number, page};
    row.bytes = 2000;
    row.records.assign(kRecords, {{}, tier::store::family_tag(family_of(1)), 1000, 0, 184});
    for (uint32_t i = 0; i < kRecords; ++i) {
      const uint32_t name[] = {number * pages + page, i};
      std::memcpy(row.records[i].name.bytes.data(), name, sizeof name);
    }
    row.records[0].name = tier::store::record_name(family_of(1), key_of(number * pages + page));
  }
  const tier::store::Stamp stamp{ms, number, pages};
  bucket.objects[stamped_name(tier::store::kIndexPrefix, stamp)].bytes = encode_index(stamp, index);
}

// Returns how often this thread lost its processor to others.
long preemptions() {
  rusage used{};
  ::getrusage(RUSAGE_THREAD, &used);
  return used.ru_nivcsw;
}

// Looks up a record of each page again and again. Returns the number of pages that were erased between two lookups, at
// most: only those count between which the thread was not preempted.
size_t look_up(Host& host, const std::atomic<bool>& over, std::atomic<bool>& begun) {
  std::vector<Identity> ids;
  for (uint64_t page = 0; page < kPages; ++page) ids.push_back(host.id(page));
  std::vector<tier::Found> found(kPages);
  size_t left = kPages, most = 0;
  for (long before = preemptions(); !over; begun = true) {
    host.tier->find(ids, found, false);
    const auto end = std::chrono::steady_clock::now();
    const auto now =
        static_cast<size_t>(std::count_if(found.begin(), found.end(), [](const auto& f) { return f.present; }));
    const long after = preemptions();
    if (after == before) most = std::max(most, left - now);
    left = now;
    before = after;
    while (std::chrono::steady_clock::now() < end + std::chrono::microseconds(200)) {  // the erasure gets the lock
    }
  }
  return most;
}

// Returns what look_up() does during the erasure of all pages.
size_t most_between_lookups() {
  SimExecutor sim(1);
  Asked asked;
  const auto bucket = std::make_shared<SimBucket>();
  for (uint32_t i = 0; i < 4; ++i) write_index(*bucket, unix_ms_of(sim), i, kPages / 4);
  Host a(sim, bucket, asked, 0);
  sim.run_for(5 * kSecond);
  EXPECT_EQ(a.tier->stats().records, uint64_t{kPages} * kRecords);
  size_t most = 0;
  std::atomic<bool> begun{false}, over{false};
  std::thread finder([&] { most = look_up(a, over, begun); });
  while (!begun) std::this_thread::yield();
  EXPECT_TRUE(a.tier->erase_family(a.family()).ok());
  over = true;
  finder.join();
  EXPECT_EQ(a.tier->stats().records, 0U) << "all are gone when it returns";
  return most;
}

// A thread that releases the lock and takes it again at once keeps it from those that wait for it, on most runs.
TEST(StoreTierPages, a_lookup_waits_for_few_pages_of_an_erasure) {
  for (int i = 0; i < 3; ++i) EXPECT_LE(most_between_lookups(), 4U);
}

}  // namespace
}  // namespace kvbm::test::store_tier_pages_test
