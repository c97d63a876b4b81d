// FamilyTable: families that peers name never take the room of those that this process uses. Families that nothing
// names are freed.
#include "base/family/family_table.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace kvbm::family_table_test {
namespace {

Family family(uint64_t n) {
  Family out;
  std::memcpy(out.ns.bytes.data(), &n, sizeof n);
  return out;
}

// Acts like a thousand connections, each of which names as many families as it may.
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
  EXPECT_EQ(table->intern(family(2 * kNamed)).status().code(), Code::at_limit);
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

// Runs one round of freeing families, in which `named` are in use.
std::vector<FamilyId> round(FamilyTable& table, const std::vector<FamilyId>& named = {}) {
  auto all = table.begin_give_back();
  for (const FamilyId id : named) all.add(id);
  return table.give_back(all);
}

TEST(FamilyTable, what_two_rounds_did_not_name_goes_and_its_id_means_nothing_any_more) {
  FamilyTable table;
  const FamilyId kept = table.intern(family(1)).value();
  const FamilyId gone = table.intern(family(2), family(20).ns).value();
  EXPECT_EQ(round(table, {kept}), std::vector<FamilyId>{});
  EXPECT_EQ(table.get(gone), family(2)) << "an operation may have just got it";
  EXPECT_EQ(round(table, {kept}), std::vector<FamilyId>{gone});
  EXPECT_EQ(table.size(), 1U);
  EXPECT_FALSE(table.has(gone));
  EXPECT_EQ(table.get(gone), FamilyTable::no_family());
  FamilyId found = 0;
  NamespaceId base;
  EXPECT_FALSE(table.find(family(2), found));
  EXPECT_FALSE(table.base_of(gone, base));
  EXPECT_TRUE(table.of(family(2).ns).empty());
  // The next family gets the cell of the released one.
  const FamilyId next = table.intern(family(3)).value();
  EXPECT_NE(next, gone);
  EXPECT_EQ(next & 0xFFFFU, gone & 0xFFFFU);
  EXPECT_EQ(table.get(gone), FamilyTable::no_family());
  EXPECT_EQ(table.get(next), family(3));
  EXPECT_FALSE(table.base_of(next, base)) << "that is of the one before";
  // Naming the old id after that keeps no family alive.
  EXPECT_EQ(round(table, {kept, gone}), std::vector<FamilyId>{});
  EXPECT_EQ(round(table, {kept, gone}), std::vector<FamilyId>{next});
  EXPECT_NE(table.intern(family(2)).value(), gone);
  EXPECT_EQ(table.all().size(), 2U);
}

TEST(FamilyTable, what_is_asked_for_between_two_rounds_stays) {
  FamilyTable table;
  const FamilyId id = table.intern(family(1)).value();
  EXPECT_TRUE(round(table).empty());
  FamilyId found = kNoFamily;
  EXPECT_TRUE(table.find(family(1), found));
  EXPECT_TRUE(round(table).empty());
  EXPECT_EQ(table.intern(family(1)).value(), id);
  EXPECT_TRUE(round(table).empty());
  EXPECT_EQ(round(table), std::vector<FamilyId>{id});
}

TEST(FamilyTable, what_comes_while_it_is_asked_stays_and_nothing_goes_while_something_is_read_in) {
  FamilyTable table;
  const FamilyId old = table.intern(family(1)).value();
  EXPECT_TRUE(round(table).empty());
  auto named = table.begin_give_back();
  const FamilyId fresh = table.intern(family(2)).value();
  {
    const FamilyTable::Keep keep(table);
    EXPECT_TRUE(table.give_back(named).empty());
    EXPECT_TRUE(round(table).empty());
    EXPECT_TRUE(round(table).empty());
  }
  EXPECT_EQ(table.give_back(named), std::vector<FamilyId>{old});
  EXPECT_TRUE(table.has(fresh));
}

TEST(FamilyTable, families_of_a_namespace_are_found_without_looking_at_others) {
  FamilyTable table;
  std::vector<FamilyId> mine;
  for (uint16_t c = 0; c < 5; ++c) {
    for (uint64_t n = 1; n <= 3; ++n) {
      Family one = family(n);
      one.component = c;
      const FamilyId id = table.intern(one).value();
      if (n == 2) mine.push_back(id);
    }
  }
  EXPECT_EQ(table.of(family(2).ns), mine);
  EXPECT_TRUE(table.of(family(9).ns).empty());
}

// Families are used one after the other, as tenants come and go. The table is searched for unused ones only when that
// is worth it.
TEST(FamilyTable, a_hundred_thousand_one_after_the_other_take_the_room_of_two_thousand) {
  FamilyTable table;
  uint64_t rounds = 0;
  table.on_growth([&] { ++rounds, round(table); }, [] {});
  uint32_t most = 0;
  std::set<FamilyId> ids;
  for (uint64_t n = 1; n <= 100'000; ++n) {
    table.make_room();
    const auto id = table.intern(family(n), family(n).ns);
    ASSERT_TRUE(id.ok()) << n;
    ASSERT_TRUE(ids.insert(id.value()).second) << n;
    most = std::max(most, table.size());
  }
  EXPECT_LE(most, 3 * FamilyTable::kStep);
  EXPECT_LE(rounds, 200U);
}

// Many families stay. The number of unused ones beside them stays bounded all the same.
TEST(FamilyTable, what_comes_and_goes_beside_what_stays_takes_no_more_and_more) {
  FamilyTable table;
  std::vector<FamilyId> stay;
  uint64_t rounds = 0;
  table.on_growth([&] { ++rounds, round(table, stay); }, [] {});
  for (uint64_t n = 1; n <= 2000; ++n) stay.push_back(table.intern(family(n), family(n).ns).value());
  uint32_t most = 0;
  for (uint64_t n = 10'000; n < 200'000; ++n) {
    table.make_room();
    ASSERT_TRUE(table.intern(family(n), family(n).ns).ok());
    most = std::max(most, table.size());
  }
  EXPECT_LE(most, 3 * 2000U + FamilyTable::kStep);
  EXPECT_LE(rounds, 200U);
  for (const FamilyId id : stay) EXPECT_TRUE(table.has(id));
}

// A namespace names the families of other tensor-parallel sizes too, and does not call make_room() for each.
TEST(FamilyTable, what_handles_name_without_making_room_asks_for_a_release_soon) {
  FamilyTable table;
  uint64_t asked = 0;
  table.on_growth([] {}, [&] { ++asked; });
  for (uint64_t n = 1; n < FamilyTable::kStep; ++n) ASSERT_TRUE(table.intern(family(n), family(1).ns).ok());
  EXPECT_EQ(asked, 0U);
  ASSERT_TRUE(table.intern(family(FamilyTable::kStep), family(1).ns).ok());
  EXPECT_EQ(asked, 1U);
  ASSERT_TRUE(table.intern(family(FamilyTable::kStep + 1), family(1).ns).ok());
  EXPECT_EQ(asked, 1U) << "once until the table was looked through";
  round(table);
  EXPECT_EQ(round(table).size(), FamilyTable::kStep + 1);
  for (uint64_t n = 1; n <= FamilyTable::kStep; ++n) ASSERT_TRUE(table.intern(family(n), family(1).ns).ok());
  EXPECT_EQ(asked, 2U);
}

TEST(FamilyTable, a_full_one_takes_as_many_as_have_gone) {
  const auto table = std::make_unique<FamilyTable>();
  std::set<FamilyId> in_use;
  table->on_growth([&] { round(*table, {in_use.begin(), in_use.end()}); }, [] {});
  std::vector<FamilyId> ids;
  for (uint64_t n = 1; n <= FamilyTable::kMaxFamilies; ++n) {
    table->make_room();
    const auto id = table->intern(family(n), family(n).ns);
    ASSERT_TRUE(id.ok()) << n;
    ids.push_back(id.value());
    in_use.insert(id.value());
  }
  table->make_room();
  EXPECT_EQ(table->intern(family(900'000), family(1).ns).status().code(), Code::at_limit);
  for (size_t i = 0; i < 10; ++i) in_use.erase(ids[i * 1000]);
  for (uint64_t n = 0; n < 10; ++n) {
    table->make_room();
    const auto id = table->intern(family(1'000'000 + n), family(1).ns);
    ASSERT_TRUE(id.ok()) << n;
    in_use.insert(id.value());
  }
  table->make_room();
  EXPECT_EQ(table->intern(family(900'000), family(1).ns).status().code(), Code::at_limit);
}

TEST(FamilyTable, peers_families_come_back_to_the_table_and_to_their_peer) {
  const auto table = std::make_unique<FamilyTable>();
  const auto peer = std::make_shared<std::atomic<uint32_t>>(0);
  uint64_t asked = 0;
  table->on_growth([] {}, [&] { ++asked; });
  constexpr uint32_t kMost = 4096;
  uint64_t taken = 0;
  for (uint64_t n = 0; n < 2 * kMost; ++n) taken += table->intern_foreign(family(n), peer, kMost).ok() ? 1 : 0;
  EXPECT_EQ(taken, kMost);
  EXPECT_EQ(*peer, kMost);
  EXPECT_EQ(asked, 1U) << "and once is enough until somebody has looked";
  EXPECT_TRUE(table->intern_foreign(family(1), peer, kMost).ok()) << "it is known";
  EXPECT_TRUE(table->intern_foreign(family(3 * kMost)).ok()) << "another peer's";
  EXPECT_TRUE(table->intern(family(0)).ok());
  EXPECT_EQ(*peer, kMost - 1) << "it is this process's own now";
  EXPECT_TRUE(round(*table).empty());
  EXPECT_EQ(round(*table).size(), kMost + 1);
  EXPECT_EQ(*peer, 0U);
  EXPECT_EQ(table->foreign(), 0U);
  EXPECT_TRUE(table->intern_foreign(family(5), peer, kMost).ok());
}

// Refusals of one peer, again and again, do not start a search each.
TEST(FamilyTable, refusals_ask_less_often_while_asking_is_in_vain) {
  const auto table = std::make_unique<FamilyTable>();
  std::vector<FamilyId> held;
  uint64_t asked = 0;
  bool look = false;
  table->on_growth([] {}, [&] { ++asked, look = true; });
  uint64_t n = 0;
  const auto offer = [&] {
    const auto id = table->intern_foreign(family(++n));
    if (id.ok()) held.push_back(id.value());
    if (std::exchange(look, false)) round(*table, held);
  };
  for (uint32_t i = 0; i < FamilyTable::kForeignFamilies; ++i) offer();
  EXPECT_EQ(table->foreign(), FamilyTable::kForeignFamilies);
  asked = 0;
  for (int i = 0; i < 100'000; ++i) offer();
  EXPECT_LE(asked, 10U);
  held.resize(held.size() / 2);
  for (int i = 0; i < 200'000; ++i) offer();
  EXPECT_GT(held.size(), FamilyTable::kForeignFamilies - 2 * FamilyTable::kForeignStep) << "what went made room";
}

TEST(FamilyTable, a_cell_that_was_used_up_is_left_alone) {
  FamilyTable table;
  uint64_t n = 0;
  FamilyId last = 0;
  for (uint32_t use = 0; use < UINT16_MAX; ++use) {
    last = table.intern(family(++n)).value();
    ASSERT_EQ(last, FamilyId{use} << 16);
    ASSERT_TRUE(round(table).empty());
    ASSERT_EQ(round(table).size(), 1U);
  }
  EXPECT_EQ(table.intern(family(++n)).value(), 1U) << "the first use of the next cell";
  EXPECT_FALSE(table.has(last));
}

// Readers without a lock run beside families that come and go. An id must give the family that it was made for, or
// none.
TEST(FamilyTable, ids_never_mean_another_family_whatever_comes_and_goes) {
  FamilyTable table;
  struct Known {
    std::atomic<uint64_t> id_and_number{0};  // 32 bits each; number 0: none yet
  };
  std::array<Known, 64> known;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> right{0}, nothing{0}, wrong{0};
  const auto family_of = [](uint64_t n) {
    Family out = family(n);
    std::memcpy(out.ns.bytes.data() + 8, &n, sizeof n);
    out.geometry = n;
    out.component = static_cast<Component>(n);
    out.shard = {static_cast<uint16_t>(n), static_cast<uint16_t>(n), 1, 2, static_cast<uint16_t>(n)};
    return out;
  };
  std::vector<std::thread> readers;
  for (size_t t = 0; t < 3; ++t) {
    readers.emplace_back([&, t] {
      for (uint64_t i = t; i < 1000 || !stop.load(std::memory_order_relaxed); ++i) {
        const uint64_t seen = known[i % known.size()].id_and_number.load(std::memory_order_acquire);
        if (seen == 0) continue;
        const Family got = table.get(static_cast<FamilyId>(seen >> 32));
        const bool none = got == FamilyTable::no_family();
        (none ? nothing : got == family_of(seen & UINT32_MAX) ? right : wrong).fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  // Eight cells, each used by thousands of families in turn.
  for (uint64_t n = 1; n <= 20'000; ++n) {
    const FamilyId id = table.intern(family_of(n)).value();
    known[n % known.size()].id_and_number.store(uint64_t{id} << 32 | n, std::memory_order_release);
    if (n % 4 == 0) round(table);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_GT(nothing, 0U);
}

}  // namespace
}  // namespace kvbm::family_table_test
