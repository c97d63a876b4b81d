#include "manager/stack/unflushed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace kvbm::manager::unflushed_test {
namespace {

Identity id(uint64_t n, FamilyId family = 1) {
  Identity out;
  std::memcpy(out.key.bytes.data(), &n, sizeof n);
  out.family = family;
  return out;
}

std::vector<Identity> ids(uint64_t first, uint64_t n, FamilyId family = 1) {
  std::vector<Identity> out;
  for (uint64_t i = 0; i < n; ++i) out.push_back(id(first + i, family));
  return out;
}

TEST(Unflushed, remembers_each_block_once_until_it_is_told_or_forgotten) {
  Unflushed unflushed;
  EXPECT_FALSE(unflushed.wanted());
  unflushed.begin([] {});
  EXPECT_TRUE(unflushed.wanted());
  unflushed.stored(ids(0, 8));
  unflushed.stored(ids(4, 8));
  unflushed.stored(ids(0, 4, 2));
  bool lost = true;
  std::vector<Unflushed::Entry> all = unflushed.all(lost);
  EXPECT_FALSE(lost);
  ASSERT_EQ(all.size(), 16U);
  for (const Unflushed::Entry& entry : all) EXPECT_TRUE(unflushed.has(entry));
  EXPECT_TRUE(unflushed.remove_reported(all[0]));
  EXPECT_FALSE(unflushed.remove_reported(all[0]));
  EXPECT_FALSE(unflushed.has(all[0]));
  unflushed.forget(2);
  unflushed.forget(ids(0, 2));
  all = unflushed.all(lost);
  EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](const Unflushed::Entry& one) { return one.id.family == 1; }));
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const Unflushed::Entry& one) { return one.id < id(2); }), 0);
  unflushed.forget_all();
  EXPECT_TRUE(unflushed.all(lost).empty());
}

// The entry of a block that is stored again is a new one: a flush that looked for the first does not cover it.
TEST(Unflushed, a_block_that_was_stored_again_is_another_one) {
  Unflushed unflushed;
  unflushed.begin([] {});
  unflushed.stored(ids(1, 1));
  bool lost = false;
  const Unflushed::Entry first = unflushed.all(lost).front();
  unflushed.stored(ids(1, 1));
  EXPECT_FALSE(unflushed.has(first));
  EXPECT_FALSE(unflushed.remove_reported(first));
  EXPECT_TRUE(unflushed.remove_reported(unflushed.all(lost).front()));
}

TEST(Unflushed, somebody_is_asked_to_look_before_there_are_too_many_and_too_many_are_told_once) {
  Unflushed unflushed;
  size_t asked = 0;
  unflushed.begin([&asked] { ++asked; });
  bool lost = false;
  for (uint64_t at = 0; at + 64 < Unflushed::kMany; at += 64) unflushed.stored(ids(at, 64));
  EXPECT_EQ(asked, 0U);
  unflushed.stored(ids(Unflushed::kMany, 64));
  EXPECT_EQ(asked, 1U);
  unflushed.stored(ids(Unflushed::kMany, 64));
  EXPECT_EQ(asked, 1U) << "at every store";
  EXPECT_EQ(unflushed.all(lost).size(), Unflushed::kMany);
  EXPECT_FALSE(lost);
  for (uint64_t at = 0; at <= Unflushed::kMost; at += 64) unflushed.stored(ids(at, 64));
  EXPECT_EQ(unflushed.all(lost).size(), Unflushed::kMost);
  EXPECT_TRUE(lost);
  (void)unflushed.all(lost);
  EXPECT_FALSE(lost);
  unflushed.stored(ids(Unflushed::kMost + 64, 64));
  unflushed.forget_all();
  EXPECT_TRUE(unflushed.all(lost).empty());
  EXPECT_FALSE(lost) << "of erased blocks";
}

}  // namespace
}  // namespace kvbm::manager::unflushed_test
