// EpochTable: what a peer's word may change, which rows go for new ones, and that nothing changes before it is written.
#include "manager/namespaces/epoch_table.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvbm::manager::epoch_table_test {
namespace {

NamespaceId id(uint64_t n) {
  NamespaceId out;
  std::memcpy(out.bytes.data(), &n, sizeof n);
  out.bytes[15] = 1;
  return out;
}

using Need = EpochTable::Need;

// Returns the epoch at which a namespace without a handle is.
uint64_t at(const EpochTable& table, uint64_t n) {
  return table.has_row(id(n)) ? table.epoch(id(n)) : table.floor(id(n));
}

EpochTable::Needed nothing() {
  return [](const NamespaceId&) { return Need::nothing; };
}

Code raise(EpochTable& table, uint64_t n, uint64_t epoch, bool foreign, EpochTable::Needed needed = nothing()) {
  EpochTable::Plan plan;
  bool added = false;
  table.begin();
  const Code code = table.raise(plan, id(n), epoch, foreign, needed, added);
  table.commit(plan);
  return code;
}

TEST(EpochTable, believes_steps_that_a_pool_can_have_made) {
  constexpr uint64_t kStep = EpochTable::kMaxStep;
  constexpr uint64_t kMost = EpochTable::kMaxFromPeer;
  EXPECT_TRUE(EpochTable::plausible(0, kStep));
  EXPECT_FALSE(EpochTable::plausible(0, kStep + 1));
  EXPECT_TRUE(EpochTable::plausible(7, kStep + 7));
  EXPECT_FALSE(EpochTable::plausible(7, kStep + 8));
  EXPECT_TRUE(EpochTable::plausible(kMost - 1, kMost));
  EXPECT_FALSE(EpochTable::plausible(kMost, kMost + 1));
  EXPECT_FALSE(EpochTable::plausible(UINT64_MAX - 1, UINT64_MAX));
  EXPECT_TRUE(EpochTable::plausible(9, 3)) << "late, not wrong";
}

TEST(EpochTable, foreign_rows_have_a_quarter_and_the_oldest_goes) {
  EpochTable table;
  const uint64_t most = EpochTable::kForeignRows;
  for (uint64_t n = 0; n < most; ++n) ASSERT_EQ(raise(table, n, 1, true), Code::ok);
  EXPECT_EQ(table.foreign(), most);
  EXPECT_EQ(raise(table, 0, 2, true), Code::ok);  // now it is no longer the oldest
  EXPECT_EQ(raise(table, most, 1, true), Code::ok);
  EXPECT_EQ(table.foreign(), most);
  EXPECT_EQ(table.epoch(id(1)), 0U);
  EXPECT_EQ(table.epoch(id(0)), 2U);
  EXPECT_EQ(table.epoch(id(most)), 1U);
  // A row that is needed stays, and another is dropped.
  EXPECT_EQ(raise(table, most + 1, 1, true,
                  [](const NamespaceId& base) { return base == id(2) ? Need::row : Need::nothing; }),
            Code::ok);
  EXPECT_EQ(table.epoch(id(2)), 1U);
  EXPECT_EQ(table.epoch(id(3)), 0U);
  EXPECT_EQ(raise(table, most + 2, 1, true, [](const NamespaceId&) { return Need::row; }), Code::at_limit);
  EXPECT_EQ(table.foreign(), most);
}

TEST(EpochTable, own_rows_have_the_rest_and_push_foreign_ones_out) {
  EpochTable table;
  for (uint64_t n = 0; n < EpochTable::kForeignRows; ++n) ASSERT_EQ(raise(table, n, 1, true), Code::ok);
  for (uint64_t n = 10'000; n < 10'000 + EpochTable::kRows; ++n) ASSERT_EQ(raise(table, n, 1, false), Code::ok) << n;
  EXPECT_EQ(table.size(), EpochTable::kRows);
  EXPECT_EQ(table.foreign(), 0U);
  const auto all = [](const NamespaceId&) { return Need::row; };
  EXPECT_EQ(raise(table, 20'000, 1, false, all), Code::at_limit);
  EXPECT_EQ(raise(table, 20'000, 1, true, all), Code::at_limit);
  EXPECT_EQ(raise(table, 10'000, 2, false, all), Code::ok) << "it has a row";
  EXPECT_EQ(raise(table, 20'000, 1, false), Code::ok) << "none of them is needed";
  EXPECT_EQ(table.size(), 1U);
}

TEST(EpochTable, a_row_whose_namespace_is_opened_while_it_goes_stays) {
  EpochTable table;
  for (uint64_t n = 0; n < EpochTable::kForeignRows; ++n) ASSERT_EQ(raise(table, n, 1, true), Code::ok);
  EpochTable::Plan plan;
  bool added = false;
  EpochTable::Needed needed = nothing();
  table.begin();
  ASSERT_EQ(table.raise(plan, id(5000), 1, true, needed, added), Code::ok);
  ASSERT_EQ(plan.forgotten, std::vector<NamespaceId>{id(0)});
  table.own(id(0));
  table.commit(plan);
  EXPECT_EQ(table.epoch(id(0)), 1U);
  EXPECT_FALSE(table.is_foreign(id(0)));
  EpochTable::Plan next;
  table.begin();
  table.add_unwritten(next);
  ASSERT_EQ(next.rows.size(), 1U) << "the tiers have forgotten it";
  EXPECT_EQ(next.rows[0].base, id(0));
  table.commit(next);
  EpochTable::Plan none;
  table.add_unwritten(none);
  EXPECT_TRUE(none.rows.empty());
}

TEST(EpochTable, takes_the_higher_of_two_words_and_keeps_the_share_when_it_is_loaded) {
  EpochTable table;
  std::vector<tier::EpochRow> rows;
  for (uint64_t n = 0; n < EpochTable::kRows; ++n) rows.push_back({id(n), 3, n, true});
  rows.push_back({id(9000), 2, 1, false});
  table.load(rows);
  EXPECT_EQ(table.foreign(), EpochTable::kForeignRows);
  EXPECT_EQ(table.epoch(id(9000)), 2U);
  const std::vector<tier::EpochRow> more = {{id(9000), 5, 1, true}, {id(0), 1, 1, false}};
  table.load(more);
  EXPECT_EQ(table.epoch(id(9000)), 5U);
  EXPECT_FALSE(table.is_foreign(id(9000)));
  EXPECT_EQ(table.epoch(id(0)), 3U);
  EXPECT_FALSE(table.is_foreign(id(0)));
  EXPECT_EQ(table.rows().front().foreign, false);
}

// The table may hold any number of namespaces, one after the other, with epochs that must not return.
TEST(EpochTable, what_makes_room_and_is_needed_raises_its_floor) {
  constexpr uint64_t kMany = 100'000;
  EpochTable table;
  const auto needed = [](const NamespaceId& base) { return base == id(7) ? Need::row : Need::epoch; };
  for (uint64_t n = 0; n < kMany; ++n) {
    const uint64_t epoch = at(table, n) + 1;
    ASSERT_EQ(raise(table, n, epoch, false, needed), Code::ok) << n;
    ASSERT_LE(table.size(), EpochTable::kRows);
  }
  EXPECT_TRUE(table.has_row(id(7))) << "it is open";
  EXPECT_TRUE(table.has_row(id(kMany - 1)));
  EXPECT_FALSE(table.has_row(id(0)));
  for (uint64_t n = 0; n < kMany; ++n) ASSERT_GE(at(table, n), 1U) << n;
  // Sharing a floor with dropped rows makes a namespace begin later than it must, but no later than they did.
  for (uint64_t n = kMany; n < kMany + 100; ++n) EXPECT_LE(at(table, n), kMany / tier::kEpochFloors + 2);
}

TEST(EpochTable, one_namespace_is_raised_any_number_of_times) {
  EpochTable table;
  const auto needed = [](const NamespaceId&) { return Need::epoch; };
  for (uint64_t epoch = 1; epoch <= 100'000; ++epoch) ASSERT_EQ(raise(table, 1, epoch, false, needed), Code::ok);
  EXPECT_EQ(at(table, 1), 100'000U);
  EXPECT_EQ(table.size(), 1U);
}

TEST(EpochTable, no_peer_raises_a_floor) {
  EpochTable table;
  const auto needed = [](const NamespaceId&) { return Need::epoch; };
  for (uint64_t n = 0; n < 3 * EpochTable::kForeignRows; ++n) (void)raise(table, n, 9, true, needed);
  for (uint64_t n = 50'000; n < 60'000; ++n) EXPECT_EQ(at(table, n), 0U);
}

TEST(EpochTable, floors_change_when_it_is_written_and_a_row_whose_namespace_is_opened_meanwhile_stays) {
  EpochTable table;
  const auto needed = [](const NamespaceId&) { return Need::epoch; };
  for (uint64_t n = 0; n < EpochTable::kRows; ++n) ASSERT_EQ(raise(table, n, 5, false, needed), Code::ok);
  EpochTable::Plan plan;
  bool added = false;
  EpochTable::Needed asked = needed;
  table.begin();
  ASSERT_EQ(table.raise(plan, id(9000), 1, false, asked, added), Code::ok);
  ASSERT_FALSE(plan.floored.empty());
  EXPECT_TRUE(plan.forgotten.empty());
  EXPECT_EQ(plan.floored[0].base, id(0)) << "the oldest";
  EXPECT_TRUE(table.has_row(id(0)));
  EXPECT_EQ(at(table, tier::kEpochFloors), 5U);  // a row of its own
  table.own(id(0));
  table.commit(plan);
  EXPECT_TRUE(table.has_row(id(0)));
  EXPECT_FALSE(table.has_row(id(1)));
  EXPECT_EQ(at(table, 1), 5U);
  EpochTable::Plan next;
  table.begin();
  table.add_unwritten(next);
  ASSERT_EQ(next.rows.size(), 1U) << "the tiers have forgotten its row";
  EXPECT_EQ(next.rows[0].base, id(0));
}

TEST(EpochTable, floors_of_several_tiers_and_rows_beyond_the_limit_count) {
  EpochTable table;
  std::vector<uint64_t> floors(tier::kEpochFloors);
  floors[3] = 7;
  floors[4] = 1;
  table.load_floors(floors);
  floors[3] = 2;
  floors[4] = 8;
  table.load_floors(floors);
  table.load_floors({});
  EXPECT_EQ(at(table, 3), 7U);
  EXPECT_EQ(at(table, 4), 8U);
  EXPECT_EQ(at(table, 5), 0U);
  std::vector<tier::EpochRow> rows;
  for (uint64_t n = 0; n < EpochTable::kRows + 100; ++n) rows.push_back({id(100'000 + n), 3, n, false});
  table.load(rows);
  EXPECT_EQ(table.size(), EpochTable::kRows);
  for (const tier::EpochRow& row : rows)
    EXPECT_GE(table.has_row(row.base) ? table.epoch(row.base) : table.floor(row.base), 3U);
}

}  // namespace
}  // namespace kvbm::manager::epoch_table_test
