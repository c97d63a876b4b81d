// The K hottest and coldest blocks of a scan, against sorting everything.
#include "top/heat.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kvbm::top::heat_test {
namespace {

kvbm_scan_row_t row(uint8_t key, uint32_t tier, uint32_t uses, uint32_t age, uint32_t holds = 0, uint32_t pins = 0) {
  kvbm_scan_row_t out{};
  out.key.bytes[0] = key;
  out.bytes = 4096;
  out.tier = tier;
  out.uses = uses;
  out.age = age;
  out.holds = holds;
  out.pins = pins;
  return out;
}

std::vector<int> keys(const std::vector<Block>& blocks) {
  std::vector<int> out;
  for (const Block& block : blocks) out.push_back(block.key.bytes[0]);
  return out;
}

TEST(Heat, keeps_the_hottest_and_the_coldest_of_each_order) {
  const struct {
    Order order;
    std::vector<int> hottest;
    std::vector<int> coldest;
  } cases[] = {{Order::uses, {1, 2}, {5, 3}},
               {Order::age, {4, 2}, {5, 1}},
               {Order::holds, {3, 1}, {5, 4}},
               {Order::pins, {5, 1}, {3, 4}}};
  for (const auto& one : cases) {
    Heat heat(one.order, 2);
    heat.add(row(1, 0, 9, 8));
    heat.add(row(2, 0, 7, 2));
    heat.add(row(3, 0, 1, 6, 3));
    heat.add(row(4, 0, 4, 1));
    heat.add(row(5, 0, 0, 9, 0, 1));
    EXPECT_EQ(keys(heat.hottest()), one.hottest) << static_cast<int>(one.order);
    EXPECT_EQ(keys(heat.coldest()), one.coldest) << static_cast<int>(one.order);
    EXPECT_EQ(heat.blocks(), 5U);
  }
}

TEST(Heat, is_what_sorting_all_rows_gives) {
  constexpr uint32_t kSeed = 17;
  std::mt19937 generator(kSeed);
  const auto random = [&generator] { return static_cast<uint32_t>(generator()); };
  for (const Order order : {Order::uses, Order::age, Order::holds, Order::pins}) {
    constexpr size_t kKeep = 20;
    Heat heat(order, kKeep);
    std::vector<Block> all;
    for (uint32_t i = 0; i < 3000; ++i) {
      kvbm_scan_row_t one = row(0, 0, random() % 50, random() % 300, random() % 3, random() % 2);
      const uint32_t name = random();
      for (size_t b = 0; b < 4; ++b) one.key.bytes[b] = static_cast<uint8_t>(name >> (8 * b));
      one.key.bytes[4] = static_cast<uint8_t>(i), one.key.bytes[5] = static_cast<uint8_t>(i >> 8);
      heat.add(one);
      Block block;
      block.key = one.key, block.uses = one.uses, block.age = one.age;
      block.holds = one.holds, block.pins = one.pins;
      all.push_back(block);
    }
    std::sort(all.begin(), all.end(), [order](const Block& a, const Block& b) { return hotter(order, a, b); });
    const auto same = [](const Block& a, const Block& b) {
      return std::equal(a.key.bytes, a.key.bytes + 16, b.key.bytes);
    };
    const auto hottest = heat.hottest();
    const auto coldest = heat.coldest();
    ASSERT_EQ(hottest.size(), kKeep);
    EXPECT_TRUE(std::equal(hottest.begin(), hottest.end(), all.begin(), same)) << "seed " << kSeed;
    ASSERT_EQ(coldest.size(), kKeep);
    EXPECT_TRUE(std::equal(coldest.begin(), coldest.end(), all.rbegin(), same)) << "seed " << kSeed;
  }
}

TEST(Heat, a_block_in_two_tiers_is_one_block_with_the_counts_of_the_faster) {
  Heat heat(Order::uses, 10);
  heat.add(row(1, 0, 2, 5));
  heat.add(row(2, 0, 3, 4));
  heat.add(row(1, 1, 90, 1));
  heat.add(row(3, 1, 1, 7));
  const auto hottest = heat.hottest();
  EXPECT_EQ(keys(hottest), (std::vector<int>{2, 1, 3}));
  EXPECT_EQ(hottest[1].uses, 2U);
  EXPECT_EQ(hottest[1].tiers, 3U);
  EXPECT_EQ(hottest[0].tiers, 1U);
  EXPECT_EQ(hottest[2].tiers, 2U);
  EXPECT_EQ(heat.blocks(), 3U);
}

TEST(Heat, a_block_that_left_the_list_does_not_come_back_with_the_row_of_a_slower_tier) {
  Heat heat(Order::uses, 1);
  heat.add(row(1, 0, 1, 5));
  heat.add(row(2, 0, 5, 4));
  heat.add(row(1, 1, 90, 1));
  EXPECT_EQ(keys(heat.hottest()), (std::vector<int>{2}));
  EXPECT_EQ(heat.coldest()[0].tiers, 3U);
}

TEST(Heat, only_the_host_tier_knows_an_age_and_unknown_is_oldest) {
  Heat heat(Order::age, 3);
  heat.add(row(1, 0, 0, 4'000'000'000U));
  heat.add(row(2, 1, 9, 0));
  EXPECT_EQ(keys(heat.coldest()), (std::vector<int>{2, 1}));
  EXPECT_FALSE(heat.coldest()[0].age.has_value());
}

TEST(Heat, equal_keys_of_other_namespaces_and_components_are_other_blocks) {
  Heat heat(Order::uses, 10);
  kvbm_scan_row_t one = row(1, 0, 1, 1);
  heat.add(one);
  one.namespace_id[3] = 7;
  heat.add(one);
  one.component = 2;
  heat.add(one);
  EXPECT_EQ(heat.blocks(), 3U);
  EXPECT_EQ(heat.hottest().size(), 3U);
}

TEST(Heat, keeping_none_lists_none_and_still_counts) {
  Heat heat(Order::uses, 0);
  heat.add(row(1, 0, 1, 1));
  EXPECT_TRUE(heat.hottest().empty());
  EXPECT_TRUE(heat.coldest().empty());
  EXPECT_EQ(heat.blocks(), 1U);
}

}  // namespace
}  // namespace kvbm::top::heat_test
