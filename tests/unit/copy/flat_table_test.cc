#include "copy/flat_table.h"

#include <gtest/gtest.h>

#include <map>

#include "base/crypto/random.h"
#include "base/ring.h"

namespace kvbm::copy::flat_table_test {
namespace {

TEST(FlatTable, holds_what_a_map_holds_through_random_inserts_and_erases) {
  SeededRandom random(1);
  FlatTable<uint64_t> table;
  std::map<uint64_t, uint64_t> model;
  for (int i = 0; i < 200'000; ++i) {
    // Few names, in clusters, so that probes are long and erases hit their middle.
    const uint64_t name = random.below(300) * (random.below(2) == 0 ? 1 : 1ULL << 40);
    if (random.below(2) == 0) {
      ASSERT_EQ(table.insert(name, name + 1), model.emplace(name, name + 1).second);
    } else {
      ASSERT_EQ(table.erase(name), model.erase(name) == 1);
    }
    ASSERT_EQ(table.size(), model.size());
    const uint64_t probe = random.below(300);
    const uint64_t* found = table.find(probe);
    ASSERT_EQ(found != nullptr, model.count(probe) == 1) << probe;
    ASSERT_TRUE(found == nullptr || *found == probe + 1);
  }
  std::map<uint64_t, uint64_t> seen;
  table.for_each([&](uint64_t name, uint64_t value) { seen[name] = value; });
  EXPECT_EQ(seen, model);
}

TEST(Ring, numbers_stay_with_their_elements_while_it_grows) {
  Ring<uint64_t> ring;
  SeededRandom random(2);
  for (int i = 0; i < 100'000; ++i) {
    if (ring.empty() || random.below(100) < 51) {
      const uint64_t number = ring.end();
      ASSERT_EQ(ring.push(number), number);
    } else {
      const uint64_t first = ring.first();
      ASSERT_EQ(ring.pop(), first);
    }
    if (ring.empty()) continue;
    const uint64_t any = ring.first() + random.below(ring.size());
    ASSERT_EQ(ring.at(any), any);
  }
}

}  // namespace
}  // namespace kvbm::copy::flat_table_test
