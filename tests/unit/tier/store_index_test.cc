// The index of a store, compared with a map through adds, erases, dropped packs and growth; and its memory.
#include "tier/store/store_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/crypto/random.h"

namespace kvbm::test::store_index_test {
namespace {

using tier::store::FamilyErasure;
using tier::store::PackRow;
using tier::store::RecordName;
using tier::store::Stamp;
using tier::store::StoreIndex;

RecordName name_of(uint64_t n) {
  SeededRandom random(n + 1);
  RecordName name;
  random.fill(std::as_writable_bytes(std::span(name.bytes)));
  return name;
}

PackRow pack_of(uint64_t ms, const std::vector<uint64_t>& numbers, uint64_t family = 1) {
  PackRow row;
  row.stamp = {ms, 7, static_cast<uint32_t>(ms)};
  for (const uint64_t n : numbers) {
    row.records.push_back({name_of(n), family, 4096 + n % 100, static_cast<uint32_t>(row.bytes), 184});
    row.bytes += row.records.back().bytes();
  }
  return row;
}

TEST(StoreIndex, finds_what_a_map_finds) {
  SeededRandom random(3);
  StoreIndex index(uint64_t{1} << 30, 5);
  struct Where {
    uint64_t ms;
    uint64_t family;
  };
  std::map<uint64_t, Where> model;                  // record -> where it is found
  std::map<uint64_t, std::vector<uint64_t>> packs;  // ms -> its records
  uint64_t ms = 1000;
  for (int step = 0; step < 4000; ++step) {
    switch (random.below(8)) {
      default: {
        std::vector<uint64_t> numbers;
        for (uint64_t i = 1 + random.below(40); i > 0; --i) numbers.push_back(random.below(5000));
        std::sort(numbers.begin(), numbers.end());
        numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
        // In one of four cases adds a pack that is older than others.
        const uint64_t at = random.below(4) == 0 ? ms - 1 - random.below(500) : ++ms;
        if (packs.contains(at)) break;
        const uint64_t family = 1 + random.below(3);
        ASSERT_TRUE(index.add(pack_of(at, numbers, family)));
        packs[at] = numbers;
        for (const uint64_t n : numbers) {
          const auto known = model.find(n);
          if (known == model.end() || known->second.ms < at) model[n] = {at, family};
        }
        break;
      }
      case 5: {
        const uint64_t n = random.below(5000);
        ASSERT_EQ(index.erase(name_of(n)), model.erase(n) != 0);
        break;
      }
      case 6: {
        if (packs.empty()) break;
        auto at = packs.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random.below(packs.size())));
        const uint64_t gone = at->first;
        const size_t erased = std::erase_if(model, [&](const auto& each) { return each.second.ms == gone; });
        ASSERT_EQ(index.drop({gone, 7, static_cast<uint32_t>(gone)}), erased);
        packs.erase(at);
        break;
      }
      case 7: {
        if (random.below(50) != 0) break;
        const uint64_t family = 1 + random.below(3), until = ms - random.below(200);
        const size_t erased = std::erase_if(
            model, [&](const auto& each) { return each.second.family == family && each.second.ms <= until; });
        FamilyErasure erasure;
        erasure.add(family, until);
        erasure.add(family, until - 1);  // the later row counts
        while (index.erase_families(erasure, 1 + random.below(300))) {
        }
        ASSERT_EQ(erasure.erased, erased);
        break;
      }
    }
    ASSERT_EQ(index.records(), model.size());
    for (int i = 0; i < 20; ++i) {
      const uint64_t n = random.below(5000);
      const auto place = index.find(name_of(n));
      const auto known = model.find(n);
      ASSERT_EQ(place.found(), known != model.end());
      if (place.found()) {
        ASSERT_EQ(index.stamp(place.pack).ms, known->second.ms);
        ASSERT_EQ(place.payload_bytes, 4096 + n % 100);
      }
    }
  }
  ASSERT_EQ(index.packs(), packs.size());
  while (!packs.empty()) {
    const uint64_t at = packs.begin()->first;
    index.drop({at, 7, static_cast<uint32_t>(at)});
    packs.erase(packs.begin());
  }
  EXPECT_EQ(index.records(), 0U);
  EXPECT_EQ(index.stored_bytes(), 0U);
  EXPECT_EQ(index.payload_bytes(), 0U);
}

// The bound that docs/stores.md names, at every size on the way.
TEST(StoreIndex, takes_48_bytes_a_record_in_packs_of_64) {
  StoreIndex index(uint64_t{1} << 30, 5);
  uint64_t n = 0;
  for (uint64_t ms = 1; ms <= 8000; ++ms) {
    PackRow row;
    row.stamp = {ms, 1, 0};
    for (int i = 0; i < 64; ++i) {
      row.records.push_back({name_of(n++), 1, 65536, static_cast<uint32_t>(row.bytes), 184});
      row.bytes += 65720;
    }
    ASSERT_TRUE(index.add(row));
    if (n >= 100'000) {
      ASSERT_LE(index.memory_bytes(), 48 * n) << n;
    }
  }
}

// A stranger's index object may give each record a family of its own.
TEST(StoreIndex, counts_the_memory_of_families) {
  StoreIndex one(uint64_t{1} << 30, 5), many(uint64_t{1} << 30, 5);
  for (uint64_t ms = 1; ms <= 1000; ++ms) {
    ASSERT_TRUE(one.add(pack_of(ms, {ms})));
    ASSERT_TRUE(many.add(pack_of(ms, {ms}, ms)));
  }
  EXPECT_GE(many.memory_bytes(), one.memory_bytes() + 999 * 40);
  StoreIndex small(100'000, 5);
  uint64_t ms = 0;
  while (small.add(pack_of(ms + 1, {ms}, ms))) ASSERT_LT(++ms, 10'000U);
  EXPECT_LE(small.memory_bytes(), 110'000U);
}

TEST(StoreIndex, keeps_within_its_bound) {
  StoreIndex index(100'000, 5);
  uint64_t ms = 0;
  while (index.add(pack_of(++ms, {ms * 3, ms * 3 + 1, ms * 3 + 2}))) ASSERT_LT(ms, 10'000U);
  EXPECT_LE(index.memory_bytes(), 110'000U);
  EXPECT_GT(index.records(), 800U);
  // Dropped packs free room.
  index.drop(*index.oldest());
  index.drop(*index.oldest());
  EXPECT_TRUE(index.add(pack_of(++ms, {1'000'000, 1'000'001})));
}

// A stranger chooses the names in its index objects. Lookups wait for the lock under which their places are found.
TEST(StoreIndex, chosen_names_do_not_meet_in_one_place) {
  const auto longest = [](auto name_from) {
    StoreIndex index(uint64_t{1} << 30, 5);
    for (uint64_t ms = 1; ms <= 100; ++ms) {
      PackRow row;
      row.stamp = {ms, 1, 0};
      for (uint64_t i = 0; i < 1000; ++i) {
        RecordName name;
        const uint64_t low = name_from(ms * 1000 + i);
        std::memcpy(name.bytes.data(), &low, sizeof low);
        row.records.push_back({name, 1, 100, static_cast<uint32_t>(row.bytes), 184});
        row.bytes += row.records.back().bytes();
      }
      EXPECT_TRUE(index.add(row));
    }
    EXPECT_EQ(index.records(), 100'000U);
    return index.longest_probe();
  };
  SeededRandom random(9);
  EXPECT_LT(longest([&](uint64_t) { return random.next(); }), 500U);
  EXPECT_LT(longest([](uint64_t n) { return n; }), 500U);
  EXPECT_LT(longest([](uint64_t n) { return n << 47; }), 500U);
  // Equal bits from 16 to 47.
  EXPECT_LT(longest([](uint64_t n) { return (n & 0xFFFF) | (n >> 16 << 48); }), 500U);
}

// Many rows, whatever families they name, take one pass, in pages of a bounded size.
TEST(StoreIndex, many_families_are_erased_in_one_pass) {
  StoreIndex index(uint64_t{1} << 30, 5);
  for (uint64_t ms = 1; ms <= 100; ++ms) {
    std::vector<uint64_t> numbers;
    for (uint64_t i = 0; i < 20; ++i) numbers.push_back(ms * 20 + i);
    ASSERT_TRUE(index.add(pack_of(ms, numbers, ms % 10)));
  }
  FamilyErasure erasure;
  for (uint64_t row = 0; row < 100'000; ++row) erasure.add(row % 5, row == 0 ? 50 : 0);
  size_t pages = 1;
  while (index.erase_families(erasure, 40)) ++pages;
  EXPECT_EQ(pages, 50U) << "of two packs each";
  EXPECT_EQ(erasure.erased, 5U * 20U) << "family 0, in packs made until 50 ms";
  EXPECT_EQ(index.records(), 2000U - 100U);
}

}  // namespace
}  // namespace kvbm::test::store_index_test
