// FamilyTable: what peers name never takes the room of what this process uses.
#include "base/family_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace kvbm::family_table_test {
namespace {

Family family(uint64_t n) {
  Family out;
  std::memcpy(out.ns.bytes.data(), &n, sizeof n);
  return out;
}

// As by a thousand connections, each of which offers as many as it may.
TEST(FamilyTable, peers_have_a_quarter_whoever_names_what) {
  const auto table = std::make_unique<FamilyTable>();
  constexpr uint64_t kNamed = 1000 * 256;
  uint64_t taken = 0;
  for (uint64_t n = 0; n < kNamed; ++n) taken += table->intern_foreign(family(n)).ok() ? 1 : 0;
  EXPECT_EQ(taken, FamilyTable::kForeignFamilies);
  EXPECT_EQ(table->foreign(), FamilyTable::kForeignFamilies);
  EXPECT_EQ(table->refused(), kNamed - taken);
  EXPECT_TRUE(table->intern_foreign(family(0)).ok()) << "it is known";
  constexpr uint64_t kOwn = FamilyTable::kMaxFamilies - FamilyTable::kForeignFamilies;
  for (uint64_t n = 0; n < kOwn; ++n) ASSERT_TRUE(table->intern(family(kNamed + n)).ok()) << n;
  EXPECT_EQ(table->intern(family(2 * kNamed)).status().code(), Code::no_room);
}

TEST(FamilyTable, what_is_used_here_is_not_a_peers_any_more) {
  const auto table = std::make_unique<FamilyTable>();
  const FamilyId id = table->intern_foreign(family(1)).value();
  EXPECT_EQ(table->foreign(), 1U);
  NamespaceId base;
  EXPECT_FALSE(table->base_of(id, base));
  EXPECT_EQ(table->intern(family(1), family(7).ns).value(), id);
  EXPECT_EQ(table->foreign(), 0U);
  ASSERT_TRUE(table->base_of(id, base));
  EXPECT_EQ(base, family(7).ns);
  EXPECT_EQ(table->intern_foreign(family(1)).value(), id);
  EXPECT_EQ(table->foreign(), 0U);
}

}  // namespace
}  // namespace kvbm::family_table_test
