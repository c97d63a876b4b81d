#include "cluster/placement/locations.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "base/crypto/random.h"

namespace kvbm::cluster::locations_test {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

Identity identity(uint64_t n, FamilyId family = 1) {
  SeededRandom random(n);
  Identity id;
  random.fill(std::as_writable_bytes(std::span(id.key.bytes)));
  id.family = family;
  return id;
}

Location at(NodeIndex node, uint64_t hint = 5) { return {node, 2, 300, uint64_t{1} << 40, hint, 0}; }

struct Known {
  Locations locations{1 << 20};
  NodeIndex a = locations.set_node(node_id_of("a"), 1).value();
  NodeIndex b = locations.set_node(node_id_of("b"), 1).value();
  bool find(const Identity& id, uint64_t now, std::vector<Location>& out, size_t room = 8) const {
    out.resize(room);
    out.resize(locations.find(id, now, out));
    return !out.empty();
  }
};

TEST(Locations, gives_back_what_was_put) {
  Known k;
  std::vector<Location> out;
  EXPECT_FALSE(k.find(identity(1), 0, out));
  k.locations.put(identity(1), at(k.a), kSecond);
  ASSERT_TRUE(k.find(identity(1), 3 * kSecond, out));
  ASSERT_EQ(out.size(), 1U);
  Location expected = at(k.a);
  expected.age_ns = 2 * kSecond;
  EXPECT_EQ(out[0], expected);
  EXPECT_FALSE(k.find(identity(1, 2), kSecond, out));  // another family
  EXPECT_EQ(k.locations.node_id(k.a), node_id_of("a"));
}

TEST(Locations, knows_several_holders_youngest_first) {
  Known k;
  std::vector<Location> out;
  k.locations.put(identity(1), at(k.b), 1 * kSecond);
  k.locations.put(identity(1), at(k.a), 2 * kSecond);
  k.locations.put(identity(1), at(k.b, 9), 3 * kSecond);  // again: one entry a holder
  ASSERT_TRUE(k.find(identity(1), 4 * kSecond, out));
  ASSERT_EQ(out.size(), 2U);
  EXPECT_EQ(out[0].node, k.b);
  EXPECT_EQ(out[0].hint, 9U);
  EXPECT_EQ(out[1].node, k.a);
  ASSERT_TRUE(k.find(identity(1), 4 * kSecond, out, 1));
  EXPECT_EQ(out[0].node, k.b);
  k.locations.forget(identity(1), k.b);
  ASSERT_TRUE(k.find(identity(1), 4 * kSecond, out));
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].node, k.a);
}

TEST(Locations, an_answer_is_not_believed_for_ever) {
  Known k;
  std::vector<Location> out;
  k.locations.put(identity(1), at(k.a), 0);
  EXPECT_TRUE(k.find(identity(1), 599 * kSecond, out));
  EXPECT_FALSE(k.find(identity(1), 600 * kSecond, out));
}

TEST(Locations, a_node_that_started_again_or_left_holds_nothing) {
  Known k;
  std::vector<Location> out;
  k.locations.put(identity(1), at(k.a), 0);
  k.locations.put(identity(1), at(k.b), 0);
  EXPECT_EQ(k.locations.set_node(node_id_of("a"), 1).value(), k.a);
  EXPECT_TRUE(k.find(identity(1), 0, out));
  EXPECT_EQ(out.size(), 2U);
  EXPECT_EQ(k.locations.set_node(node_id_of("a"), 2).value(), k.a);
  EXPECT_TRUE(k.find(identity(1), 0, out));
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].node, k.b);
  k.locations.drop_node(node_id_of("b"));
  EXPECT_FALSE(k.find(identity(1), 0, out));
  EXPECT_EQ(k.locations.node(node_id_of("b")), kNoNode);
  // The next node at this index inherits no locations.
  EXPECT_EQ(k.locations.set_node(node_id_of("c"), 1).value(), k.b);
  EXPECT_FALSE(k.find(identity(1), 0, out));
  k.locations.put(identity(1), at(77), 0);  // no such node
  EXPECT_FALSE(k.find(identity(1), 0, out));
}

TEST(Locations, stays_within_its_memory_and_loses_the_oldest) {
  Known k;
  EXPECT_LE(k.locations.bytes(), 1U << 20);
  constexpr uint64_t kEntries = (1 << 20) / 48;
  std::vector<Location> out;
  for (uint64_t i = 0; i < 3 * kEntries; ++i) k.locations.put(identity(i), at(k.a), i * 1'000'000);
  uint64_t recent = 0;
  uint64_t old = 0;
  const uint64_t now = 3 * kEntries * 1'000'000;
  for (uint64_t i = 0; i < kEntries / 2; ++i) {
    recent += k.find(identity(3 * kEntries - 1 - i), now, out) ? 1 : 0;
    old += k.find(identity(i), now, out) ? 1 : 0;
  }
  EXPECT_GT(recent, kEntries / 2 * 9 / 10);
  EXPECT_LT(old, kEntries / 2 / 10);
}

// Compares with a map that forgets nothing: each reported holder was put before, and was not dropped since.
TEST(Locations, a_table_that_is_half_full_has_lost_nothing) {
  Known k;
  std::vector<Location> out;
  const uint64_t half = k.locations.bytes() / Locations::kEntryBytes / 2;
  for (uint64_t n = 0; n < half; ++n) k.locations.put(identity(n), at(k.a), kSecond);
  for (uint64_t n = 0; n < half; ++n) ASSERT_TRUE(k.find(identity(n), kSecond, out)) << n << " of " << half;
}

TEST(Locations, never_says_what_was_not_said_to_it) {
  SeededRandom random(17);
  Known k;
  std::map<std::pair<uint64_t, NodeIndex>, uint64_t> model;
  std::vector<Location> out;
  const char* names[] = {"a", "b"};
  for (uint64_t step = 0; step < 60000; ++step) {
    const uint64_t now = step * 1'000'000;
    const uint64_t n = random.below(40000);
    const auto which = static_cast<NodeIndex>(random.below(2));
    const NodeIndex node = which == 0 ? k.a : k.b;
    const uint64_t what = random.below(100);
    if (what < 60) {
      k.locations.put(identity(n), at(node, step), now);
      model[{n, node}] = step;
    } else if (what < 65) {
      k.locations.forget(identity(n), node);
      model.erase({n, node});
    } else if (what == 67 && random.below(20) == 0) {
      ASSERT_TRUE(k.locations.set_node(node_id_of(names[which]), step).ok());
      std::erase_if(model, [&](const auto& row) { return row.first.second == node; });
    } else if (k.find(identity(n), now, out)) {
      for (const Location& location : out) {
        const auto row = model.find({n, location.node});
        ASSERT_NE(row, model.end());
        ASSERT_EQ(row->second, location.hint);
      }
    }
  }
}

}  // namespace
}  // namespace kvbm::cluster::locations_test
