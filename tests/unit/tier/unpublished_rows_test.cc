// Rows that wait for an index object: one for each family and namespace, and never more than an index object can have.
#include "tier/store/unpublished_rows.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvbm::test::unpublished_rows_test {
namespace {

using tier::store::IndexObject;
using tier::store::RecordName;
using tier::store::UnpublishedRows;

RecordName name_of(uint64_t n) {
  RecordName name;
  std::memcpy(name.bytes.data(), &n, sizeof n);
  return name;
}
NamespaceId base_of(uint64_t n) {
  NamespaceId base;
  std::memcpy(base.bytes.data(), &n, sizeof n);
  return base;
}

TEST(UnpublishedRows, keep_the_last_of_a_family_and_of_a_namespace) {
  UnpublishedRows rows, failed;
  EXPECT_TRUE(rows.empty());
  EXPECT_TRUE(failed.erase(name_of(1)));
  EXPECT_TRUE(failed.erase_family(7, 100));
  EXPECT_TRUE(failed.raise_epoch(base_of(3), 9));
  EXPECT_TRUE(rows.erase(name_of(2)));
  EXPECT_TRUE(rows.erase_family(7, 200));
  EXPECT_TRUE(rows.erase_family(8, 50));
  EXPECT_TRUE(rows.raise_epoch(base_of(3), 8));
  EXPECT_TRUE(rows.add(failed));
  EXPECT_FALSE(rows.empty());
  IndexObject index;
  rows.write_to(index);
  EXPECT_EQ(index.erased, (std::vector<RecordName>{name_of(2), name_of(1)}));
  EXPECT_EQ(index.families, (std::vector<tier::store::ErasedFamily>{{7, 200}, {8, 50}}));
  ASSERT_EQ(index.epochs.size(), 1U);
  EXPECT_EQ(index.epochs[0].epoch, 9U);
}

// A store that takes no index objects for a day gets one that can be read.
TEST(UnpublishedRows, are_never_more_than_an_index_object_can_have) {
  UnpublishedRows rows, failed;
  for (uint64_t n = 0; n < 700'000; ++n) {
    ASSERT_TRUE(rows.erase(name_of(n)));
    ASSERT_TRUE(failed.erase(name_of(1'000'000 + n)));
  }
  for (uint64_t n = 0; n < 40'000; ++n) {
    ASSERT_TRUE(rows.erase_family(n, n));
    ASSERT_TRUE(failed.erase_family(100'000 + n, n));
  }
  for (uint64_t n = 0; n < 80'000; ++n) {
    ASSERT_TRUE(rows.raise_epoch(base_of(n), 1));
    ASSERT_TRUE(failed.raise_epoch(base_of(100'000 + n), 1));
  }
  EXPECT_FALSE(rows.add(failed));
  EXPECT_FALSE(rows.erase(name_of(5'000'000)));
  EXPECT_FALSE(rows.erase_family(500'000, 1));
  EXPECT_FALSE(rows.raise_epoch(base_of(500'000), 1));
  EXPECT_TRUE(rows.raise_epoch(base_of(1), 2)) << "it has a row";
  IndexObject index;
  rows.write_to(index);
  EXPECT_EQ(index.erased.size(), UnpublishedRows::kMaxErased);
  const auto bytes = encode_index({1, 2, 3}, index);
  EXPECT_EQ(bytes.size(), tier::store::kIndexHeaderBytes + UnpublishedRows::kMaxBytes);
  EXPECT_LE(bytes.size(), tier::store::kMaxIndexBytes);
  EXPECT_TRUE(tier::store::decode_index(bytes).ok());
}

}  // namespace
}  // namespace kvbm::test::unpublished_rows_test
