#include "manager/host/unit_index.h"

#include <gtest/gtest.h>

namespace kvbm::manager::unit_index_test {
namespace {

Key key(uint64_t n) {
  Key k;
  for (size_t i = 0; i < sizeof n; ++i) k.bytes[i] = static_cast<uint8_t>((n * 0x9E3779B97F4A7C15ULL) >> (8 * i));
  k.bytes[15] = 1;
  return k;
}

std::vector<Key> keys(std::initializer_list<uint64_t> numbers) {
  std::vector<Key> out;
  for (const uint64_t n : numbers) out.push_back(key(n));
  return out;
}

TEST(UnitIndex, finds_the_most_leading_units_that_agree) {
  UnitIndex index(8);
  index.add(1, key(100), keys({1, 2, 3, 4}));
  EXPECT_EQ(3U, index.find(1, keys({1, 2, 3, 9}), 3).units);
  EXPECT_EQ(key(100), index.find(1, keys({1, 2, 3, 9}), 3).stored);
  EXPECT_EQ(1U, index.find(1, keys({1}), 3).units);
  EXPECT_EQ(0U, index.find(1, keys({2, 3}), 3).units);
  EXPECT_EQ(0U, index.find(2, keys({1, 2}), 3).units);
  EXPECT_EQ(0U, index.find(1, {}, 3).units);
  EXPECT_EQ(2U, index.find(1, keys({1, 2, 3, 4}), 2).units);
}

TEST(UnitIndex, a_unit_counts_only_if_all_before_it_agree) {
  UnitIndex index(8);
  index.add(1, key(100), keys({1, 2, 3, 4}));
  EXPECT_EQ(0U, index.find(1, keys({7, 2}), 3).units);
  EXPECT_EQ(1U, index.find(1, keys({1, 7, 3}), 3).units);
}

TEST(UnitIndex, prefers_the_newer_of_blocks_that_begin_alike) {
  UnitIndex index(8);
  index.add(1, key(100), keys({1, 2, 3, 4}));
  index.add(1, key(200), keys({1, 2, 5, 6}));
  EXPECT_EQ(key(200), index.find(1, keys({1, 2, 9}), 3).stored);
  EXPECT_EQ(key(100), index.find(1, keys({1, 2, 3, 9}), 3).stored);
  EXPECT_EQ(3U, index.find(1, keys({1, 2, 3, 9}), 3).units);
}

TEST(UnitIndex, forgets_the_oldest_and_stays_within_its_capacity) {
  UnitIndex index(4);
  for (uint64_t i = 0; i < 100; ++i) {
    index.add(1, key(1000 + i), keys({10 * i + 1, 10 * i + 2, 10 * i + 3}));
  }
  const uint64_t full = index.bytes();
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(i < 96 ? 0U : 2U, index.find(1, keys({10 * i + 1, 10 * i + 2}), 2).units) << i;
  }
  index.add(1, key(5000), keys({1, 2, 3}));
  EXPECT_EQ(full, index.bytes());
  EXPECT_EQ(0U, index.find(1, keys({961, 962}), 2).units);
}

TEST(UnitIndex, a_block_that_is_stored_again_takes_no_second_place) {
  UnitIndex index(2);
  index.add(1, key(100), keys({1, 2, 3}));
  for (int i = 0; i < 5; ++i) index.add(1, key(200), keys({4, 5, 6}));
  EXPECT_EQ(2U, index.find(1, keys({1, 2}), 2).units);
}

}  // namespace
}  // namespace kvbm::manager::unit_index_test
