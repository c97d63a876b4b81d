#include "manager/node/locate.h"

#include <gtest/gtest.h>

namespace kvbm::manager::locate_test {
namespace {

using cluster::NodeAnswer;
using cluster::wire::FoundItem;

FoundItem in_tier(uint8_t tier) {
  FoundItem item;
  item.present = 1;
  item.tier = tier;
  item.payload_bytes = 100;
  return item;
}

// Makes an answer from one character for each key: the tier's number, or '.' for no record.
NodeAnswer answer(uint8_t node, const std::string& text) {
  NodeAnswer out;
  out.node.bytes[0] = node;
  out.whole = true;
  for (const char c : text) {
    out.found.push_back(c == '.' ? FoundItem{} : in_tier(static_cast<uint8_t>(c - '0')));
  }
  return out;
}

std::vector<LocatedRow> located(const std::vector<PartPlan>& parts, const std::vector<size_t>& requests,
                                const std::vector<NodeAnswer>& answers) {
  size_t n = 0;
  for (const size_t keys : requests) n += keys;
  const std::vector<Key> keys(n);
  return locate({parts, keys, requests}, answers);
}

LocatedRow row(uint8_t node, uint32_t request, TierIndex tier, uint64_t prefix, uint64_t in_tier, uint64_t bytes) {
  LocatedRow out;
  out.node.bytes[0] = node;
  out.request = request;
  out.tier = tier;
  out.prefix = prefix;
  out.in_tier = in_tier;
  out.bytes = bytes;
  return out;
}

TEST(Locate, a_slower_tier_has_a_row_where_it_makes_the_prefix_longer) {
  const std::vector<PartPlan> parts(1);
  const std::vector<LocatedRow> expected = {row(1, 0, 2, 5, 1, 500), row(1, 0, 1, 4, 1, 400), row(1, 0, 0, 2, 2, 200)};
  EXPECT_EQ(located(parts, {6}, {answer(1, "00102.")}), expected);
  // The first block is in a slow tier, so the faster tiers alone have no prefix.
  EXPECT_EQ(located(parts, {3}, {answer(1, "200")}), std::vector<LocatedRow>{row(1, 0, 2, 3, 1, 300)});
}

TEST(Locate, the_longest_is_first_and_of_equals_this_manager_and_then_the_fast_tier) {
  const std::vector<PartPlan> parts(1);
  const std::vector<LocatedRow> expected = {row(2, 0, 0, 3, 3, 300), row(0, 0, 0, 2, 2, 200), row(1, 0, 0, 2, 2, 200),
                                            row(3, 0, 1, 2, 2, 200)};
  EXPECT_EQ(located(parts, {3}, {answer(3, "11."), answer(1, "00."), answer(2, "000"), answer(0, "00.")}), expected);
}

TEST(Locate, requests_are_apart_and_nothing_gives_no_row) {
  const std::vector<PartPlan> parts(1);
  EXPECT_EQ(located(parts, {2, 0, 3}, {answer(1, ".00.0")}), std::vector<LocatedRow>{row(1, 2, 0, 1, 1, 100)});
  EXPECT_TRUE(located(parts, {2}, {answer(1, ".0")}).empty());
  EXPECT_TRUE(located(parts, {}, {answer(1, "")}).empty());
}

TEST(Locate, what_a_node_only_knows_of_is_not_its_own) {
  const std::vector<PartPlan> parts(1);
  EXPECT_EQ(located(parts, {3}, {answer(1, "0.0")}), std::vector<LocatedRow>{row(1, 0, 0, 1, 1, 100)});
}

TEST(Locate, every_part_must_be_there_and_of_a_state_the_last_block) {
  std::vector<PartPlan> parts(2);
  EXPECT_EQ(located(parts, {3}, {answer(1, "00010.")}), std::vector<LocatedRow>{row(1, 0, 1, 2, 1, 400)});
  parts[1].kind = layout::ComponentKind::state;
  // Three blocks of attention, and the state after the second: an engine can continue from the second at most.
  EXPECT_EQ(located(parts, {3}, {answer(1, "000.0.")}), std::vector<LocatedRow>{row(1, 0, 0, 2, 2, 300)});
}

}  // namespace
}  // namespace kvbm::manager::locate_test
