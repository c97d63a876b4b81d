#include "tier/disk/disk_index.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/crypto/random.h"

namespace kvbm::tier::disk::disk_index_test {
namespace {

Identity random_identity(Random& random) {
  Identity id;
  random.fill(std::as_writable_bytes(std::span(id.key.bytes)));
  id.family = static_cast<FamilyId>(random.below(3));
  return id;
}

TEST(DiskIndex, takes_at_most_48_bytes_a_record_from_500000_on) {
  DiskIndex index(UINT64_MAX);
  SeededRandom random(1);
  for (uint64_t n = 1; n <= 700'000; ++n) {
    const uint32_t e = index.insert(random_identity(random));
    ASSERT_NE(e, DiskIndex::kNone);
    index.at(e).location = 1;
    if (n < 500'000 || n % 5'000 != 0) continue;
    ASSERT_LE(static_cast<double>(index.bytes()) / static_cast<double>(n), 48.0) << n;
  }
}

// Fills the index as recovery does; later inserts come in addition.
TEST(DiskIndex, with_room_reserved_takes_at_most_48_bytes_a_record_and_hardly_grows) {
  constexpr uint64_t kRecords = 500'000;
  DiskIndex index(UINT64_MAX);
  SeededRandom random(7);
  std::vector<Identity> known;
  for (int i = 0; i < 1000; ++i) known.push_back(random_identity(random));
  for (const Identity& id : known) index.at(index.insert(id)).location = 1;
  index.reserve(kRecords);
  const uint64_t reserved = index.bytes();
  index.reserve(10);
  EXPECT_EQ(index.bytes(), reserved);
  while (known.size() < kRecords) {
    known.push_back(random_identity(random));
    index.prefetch(known.back());
    bool fresh = false;
    index.at(index.insert(known.back(), fresh)).location = 1;
    ASSERT_TRUE(fresh);
  }
  const uint64_t entries = (kRecords + 1023) / 1024 * 1024 * sizeof(IndexEntry);
  EXPECT_LE(index.bytes(), entries + reserved + reserved / 50);
  EXPECT_LE(static_cast<double>(index.bytes()) / kRecords, 48.0);
  for (const Identity& id : known) {
    bool fresh = true;
    ASSERT_EQ(index.insert(id, fresh), index.find(id));
    ASSERT_FALSE(fresh);
  }
  EXPECT_EQ(index.size(), kRecords);
}

TEST(DiskIndex, agrees_with_a_map_under_random_inserts_and_erases) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    DiskIndex index(UINT64_MAX);
    SeededRandom random(seed);
    std::map<Identity, uint32_t> model;
    std::vector<Identity> known;
    for (int step = 0; step < 60'000; ++step) {
      if (known.size() < 100 || random.below(100) < 52) {
        const Identity id = random_identity(random);
        const uint32_t e = index.insert(id);
        index.at(e).location = 1;
        model[id] = e;
        known.push_back(id);
      } else {
        const size_t at = random.below(known.size());
        index.erase(model.at(known[at]));
        model.erase(known[at]);
        ASSERT_EQ(index.find(known[at]), DiskIndex::kNone);
        known[at] = known.back();
        known.pop_back();
      }
    }
    ASSERT_EQ(index.size(), model.size());
    for (const auto& [id, e] : model) ASSERT_EQ(index.find(id), e) << "seed " << seed;
  }
}

TEST(DiskIndex, refuses_more_than_its_memory_allows) {
  DiskIndex index(48 * 1000);
  SeededRandom random(3);
  for (int i = 0; i < 1000; ++i) ASSERT_NE(index.insert(random_identity(random)), DiskIndex::kNone);
  EXPECT_EQ(index.insert(random_identity(random)), DiskIndex::kNone);
}

TEST(DiskIndex, counts_the_children_of_a_parent) {
  DiskIndex index(UINT64_MAX);
  SeededRandom random(4);
  const Identity parent = random_identity(random);
  const uint32_t p = index.insert(parent);
  Identity child = random_identity(random);
  child.family = parent.family;
  const uint32_t c = index.insert(child);
  index.link(c, parent);
  EXPECT_EQ(index.at(p).children, 1);
  index.erase(c);
  EXPECT_EQ(index.at(p).children, 0);
}

// A family is a 16-bit number in an entry; ids take 32 bits, and there are more of them than numbers.
TEST(DiskIndex, families_come_and_go_and_none_is_taken_for_another) {
  DiskIndex index(UINT64_MAX);
  SeededRandom random(5);
  Identity kept = random_identity(random);
  kept.family = 7;
  const uint32_t k = index.insert(kept);
  index.at(k).location = 1;
  for (FamilyId family = 1000; family < 1000 + 3 * 65'536; ++family) {
    Identity id = kept;  // an equal key: only the family differs
    id.family = family;
    ASSERT_EQ(index.find(id), DiskIndex::kNone) << family;
    const uint32_t e = index.insert(id);
    ASSERT_NE(e, DiskIndex::kNone) << family;
    ASSERT_NE(e, k);
    index.at(e).location = 2;
    ASSERT_EQ(index.find(id), e);
    ASSERT_EQ(index.identity(index.at(e)), id);
    ASSERT_EQ(index.families().records(family), 1U);
    index.erase(e);
    ASSERT_EQ(index.find(id), DiskIndex::kNone);
    ASSERT_EQ(index.families().records(family), 0U);
  }
  EXPECT_EQ(index.find(kept), k);
  EXPECT_EQ(index.identity(index.at(k)), kept);
}

TEST(DiskIndex, has_room_for_65536_families_at_a_time) {
  DiskIndex index(UINT64_MAX);
  Identity id;
  std::vector<uint32_t> entries;
  for (FamilyId family = 0; family < 65'536; ++family) {
    id.family = family * 3;
    entries.push_back(index.insert(id));
    ASSERT_NE(entries.back(), DiskIndex::kNone);
    index.at(entries.back()).location = 1;
  }
  id.family = 1;
  const uint64_t before = index.size();
  EXPECT_EQ(index.insert(id), DiskIndex::kNone);
  EXPECT_EQ(index.size(), before);
  index.erase(entries[100]);
  EXPECT_NE(index.insert(id), DiskIndex::kNone);
  id.family = 300;
  EXPECT_EQ(index.find(id), DiskIndex::kNone);
}

}  // namespace
}  // namespace kvbm::tier::disk::disk_index_test
