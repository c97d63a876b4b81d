#include "block/block_table.h"

#include "block_fixture.h"

namespace kvbm::block::block_table_test {
namespace {

TEST(BlockTable, create_refuses_no_slots_no_factory_and_unknown_policies) {
  EXPECT_EQ(BlockTable::create({.slots = 0, .policy = "lru", .make = &make_plain}).status().code(), Code::bad_config);
  EXPECT_EQ(BlockTable::create({.slots = 8, .policy = "lru", .make = nullptr}).status().code(), Code::bad_config);
  EXPECT_EQ(BlockTable::create({.slots = 8, .policy = "none", .make = &make_plain}).status().code(), Code::bad_config);
}

TEST(BlockTable, a_published_block_is_found_only_in_its_family) {
  auto table = make_table(8);
  const auto keys = keys_of(1, 3);
  const auto slots = store(*table, keys, 1, Lineage::none, 7);
  std::vector<SlotId> out(3);
  EXPECT_EQ(table->acquire_prefix(7, keys, out, 2), 3U);
  EXPECT_EQ(out, slots);
  EXPECT_EQ(table->acquire_prefix(8, keys, out, 2), 0U);
  EXPECT_EQ(table->info(slots[0]).references, 2U);
  EXPECT_EQ(table->info(slots[0]).uses, 1U);
  EXPECT_EQ(table->info(slots[0]).last_use, 2U);
}

TEST(BlockTable, nothing_is_found_before_it_is_published) {
  auto table = make_table(8);
  std::vector<SlotId> slots(2);
  ASSERT_EQ(table->allocate(0, slots, nullptr), Code::ok);
  EXPECT_EQ(table->state(slots[0]), SlotState::partial);
  EXPECT_EQ(present(*table, keys_of(0, 2)), 0U);
  ASSERT_EQ(table->complete(slots), Code::ok);
  EXPECT_EQ(table->complete(slots), Code::wrong_state);
  EXPECT_EQ(present(*table, keys_of(0, 2)), 0U);
  table->abandon(slots);
  EXPECT_EQ(table->counters().free, 8U);
}

TEST(BlockTable, prefix_stops_at_the_first_miss_and_each_goes_on) {
  auto table = make_table(300);
  auto keys = keys_of(0, 200);
  table->release(store(*table, keys, 1));
  EXPECT_EQ(table->erase(0, std::vector<Key>{keys[90]}), 1U);
  std::vector<SlotId> out(200);
  EXPECT_EQ(table->acquire_prefix(0, keys, out, 2), 90U);
  table->release(std::span(out).first(90));
  EXPECT_EQ(table->acquire_each(0, keys, out, 2), 199U);
  EXPECT_EQ(out[90], kNoSlot);
}

TEST(BlockTable, allocation_evicts_the_coldest_and_reports_it) {
  auto table = make_table(4);
  table->release(store(*table, keys_of(0, 4), 1));
  std::vector<SlotId> hit(1);
  ASSERT_EQ(table->acquire_each(0, keys_of(0, 1), hit, 5), 1U);
  table->release(hit);
  table->set_flags(hit[0], 4);
  std::vector<Evicted> evicted;
  std::vector<SlotId> slots(3);
  ASSERT_EQ(table->allocate(0, slots, &evicted, 6), Code::ok);
  ASSERT_EQ(evicted.size(), 3U);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(evicted[i].identity.key, key_of(i + 1));
  EXPECT_EQ(present(*table, keys_of(0, 4)), 1U);
  std::vector<SlotId> last(1);
  ASSERT_EQ(table->allocate(0, last, &evicted, 7), Code::ok);
  EXPECT_EQ(evicted[3].flags, 4);
  EXPECT_EQ(table->flags(last[0]), 0);
}

TEST(BlockTable, allocation_is_all_or_nothing_and_never_takes_what_is_held) {
  auto table = make_table(4);
  const auto held = store(*table, keys_of(0, 3), 1);
  table->release(std::span(held).first(1));
  std::vector<SlotId> slots(3);
  std::vector<Evicted> evicted;
  EXPECT_EQ(table->allocate(0, slots, &evicted), Code::no_room);
  EXPECT_EQ(evicted.size(), 1U);
  EXPECT_EQ(table->counters().free, 2U);
  EXPECT_EQ(present(*table, keys_of(1, 2)), 2U);
  slots.resize(2);
  EXPECT_EQ(table->allocate(0, slots, &evicted), Code::ok);
  slots.resize(9);
  EXPECT_EQ(table->allocate(0, slots, &evicted), Code::no_room);
}

TEST(BlockTable, a_block_given_up_by_the_policy_while_held_can_be_evicted_once_released) {
  auto table = make_table(2);
  const auto held = store(*table, keys_of(0, 2), 1);
  std::vector<SlotId> slots(1);
  EXPECT_EQ(table->allocate(0, slots, nullptr), Code::no_room);
  table->release(held);
  EXPECT_EQ(table->allocate(0, slots, nullptr), Code::ok);
}

TEST(BlockTable, children_are_evicted_before_their_parents) {
  auto table = make_table(6);
  table->release(store(*table, keys_of(0, 6), 1, Lineage::chain));
  std::vector<Evicted> evicted;
  std::vector<SlotId> slots(6);
  ASSERT_EQ(table->allocate(0, slots, &evicted), Code::ok);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(evicted[i].identity.key, key_of(5 - i));
}

TEST(BlockTable, a_rejected_duplicate_gives_back_the_existing_block) {
  auto table = make_table(4);
  const auto first = store(*table, keys_of(0, 1), 1);
  std::vector<SlotId> slots(2);
  ASSERT_EQ(table->allocate(0, slots, nullptr), Code::ok);
  ASSERT_EQ(table->complete(slots), Code::ok);
  const auto keys = keys_of(0, 2);
  std::vector<Code> codes(2);
  EXPECT_EQ(table->publish(slots, {.keys = keys, .lineage = Lineage::chain}, codes), Code::ok);
  EXPECT_EQ(codes[0], Code::exists);
  EXPECT_EQ(codes[1], Code::ok);
  EXPECT_EQ(slots[0], first[0]);
  EXPECT_EQ(table->info(first[0]).references, 2U);
  EXPECT_EQ(table->info(first[0]).children, 1U);
  EXPECT_EQ(table->counters().free, 2U);
}

TEST(BlockTable, a_kept_duplicate_is_private_and_freed_with_its_last_reference) {
  auto table = make_table(4);
  const auto first = store(*table, keys_of(0, 1), 1);
  std::vector<SlotId> slots(2);
  ASSERT_EQ(table->allocate(0, slots, nullptr), Code::ok);
  ASSERT_EQ(table->complete(slots), Code::ok);
  const auto keys = keys_of(0, 2);
  std::vector<Code> codes(2);
  const SlotId mine = slots[0];
  EXPECT_EQ(table->publish(slots, {.keys = keys, .lineage = Lineage::chain, .duplicates = DuplicateMode::keep}, codes),
            Code::ok);
  EXPECT_EQ(slots[0], mine);
  EXPECT_EQ(table->info(first[0]).references, 1U);
  EXPECT_EQ(table->info(first[0]).children, 1U);
  std::vector<SlotId> out(1);
  EXPECT_EQ(table->acquire_each(0, keys_of(0, 1), out, 2), 1U);
  EXPECT_EQ(out[0], first[0]);
  EXPECT_FALSE(table->acquire_weak(mine, table->generation(mine)));
  table->release(std::vector<SlotId>{mine});
  EXPECT_EQ(table->state(mine), SlotState::reset);
}

TEST(BlockTable, a_key_repeated_in_a_batch_is_a_duplicate_of_the_first) {
  auto table = make_table(4);
  std::vector<SlotId> slots(2);
  ASSERT_EQ(table->allocate(0, slots, nullptr), Code::ok);
  ASSERT_EQ(table->complete(slots), Code::ok);
  const std::vector<Key> keys{key_of(1), key_of(1)};
  std::vector<Code> codes(2);
  EXPECT_EQ(table->publish(slots, {.keys = keys}, codes), Code::ok);
  EXPECT_EQ(codes[1], Code::exists);
  EXPECT_EQ(slots[0], slots[1]);
  EXPECT_EQ(table->info(slots[0]).references, 2U);
}

TEST(BlockTable, publish_refuses_slots_that_are_not_complete_and_foreign_parents) {
  auto table = make_table(4);
  std::vector<SlotId> slots(1);
  ASSERT_EQ(table->allocate(0, slots, nullptr), Code::ok);
  const auto keys = keys_of(0, 1);
  std::vector<Code> codes(1);
  EXPECT_EQ(table->publish(slots, {.keys = keys}, codes), Code::partial);
  EXPECT_EQ(codes[0], Code::wrong_state);
  ASSERT_EQ(table->complete(slots), Code::ok);
  EXPECT_EQ(table->publish(slots, {.keys = keys, .lineage = Lineage::chain, .first_parent = 99}, codes), Code::partial);
  EXPECT_EQ(codes[0], Code::invalid_argument);
  std::vector<SlotId> wild{77};
  EXPECT_EQ(table->publish(wild, {.keys = keys}, codes), Code::partial);
  EXPECT_EQ(codes[0], Code::invalid_argument);
  EXPECT_EQ(table->publish(slots, {.keys = keys_of(0, 2)}, codes), Code::invalid_argument);
  EXPECT_EQ(table->publish(slots, {.keys = keys}, codes), Code::ok);
}

TEST(BlockTable, erased_blocks_are_gone_at_once_and_their_slots_when_nobody_holds_them) {
  auto table = make_table(4);
  const auto slots = store(*table, keys_of(0, 2), 1);
  table->release(std::span(slots).subspan(1));
  EXPECT_EQ(table->erase(0, keys_of(0, 4)), 2U);
  EXPECT_EQ(present(*table, keys_of(0, 2)), 0U);
  EXPECT_EQ(table->counters().free, 3U);
  const auto again = store(*table, keys_of(0, 1), 2);
  EXPECT_NE(again[0], slots[0]);
  table->release(std::span(slots).first(1));
  EXPECT_EQ(table->counters().free, 3U);
  EXPECT_EQ(present(*table, keys_of(0, 1)), 1U);
}

TEST(BlockTable, an_erased_parent_keeps_its_slot_until_its_children_go) {
  auto table = make_table(4);
  table->release(store(*table, keys_of(0, 3), 1, Lineage::chain));
  EXPECT_EQ(table->erase(0, keys_of(0, 1)), 1U);
  EXPECT_EQ(table->counters().free, 1U);
  EXPECT_EQ(table->erase(0, keys_of(2, 1)), 1U);
  EXPECT_EQ(table->erase(0, keys_of(1, 1)), 1U);
  EXPECT_EQ(table->counters().free, 4U);
  EXPECT_EQ(table->counters().registered, 0U);
}

TEST(BlockTable, erase_by_family_and_all) {
  auto table = make_table(8);
  table->release(store(*table, keys_of(0, 3), 1, Lineage::chain, 1));
  table->release(store(*table, keys_of(0, 3), 1, Lineage::chain, 2));
  EXPECT_EQ(table->erase_family(1), 3U);
  EXPECT_EQ(present(*table, keys_of(0, 3), 2), 3U);
  EXPECT_EQ(table->erase_all(), 3U);
  EXPECT_EQ(table->counters().free, 8U);
}

TEST(BlockTable, weak_references_end_with_their_block) {
  auto table = make_table(2);
  const auto slots = store(*table, keys_of(0, 1), 1);
  const uint32_t generation = table->generation(slots[0]);
  EXPECT_TRUE(table->acquire_weak(slots[0], generation));
  table->release(slots);
  table->release(slots);
  EXPECT_TRUE(table->acquire_weak(slots[0], generation));
  table->release(slots);
  store(*table, keys_of(5, 2), 2);
  EXPECT_FALSE(table->acquire_weak(slots[0], generation));
  EXPECT_FALSE(table->acquire_weak(12345, 1));
}

TEST(BlockTable, cold_blocks_stay_findable_until_they_are_evicted) {
  auto table = make_table(4);
  table->release(store(*table, keys_of(0, 4), 1, Lineage::chain));
  std::vector<SlotId> cold(3);
  ASSERT_EQ(table->select_cold(cold, 2), 3U);
  EXPECT_EQ(table->identity(cold[0]).key, key_of(3));
  EXPECT_EQ(table->identity(cold[1]).key, key_of(2));
  EXPECT_EQ(present(*table, keys_of(0, 4)), 4U);
  std::vector<SlotId> used(3);
  ASSERT_EQ(table->acquire_each(0, keys_of(1, 1), used, 3), 1U);
  std::vector<Evicted> evicted;
  EXPECT_EQ(table->evict_held(cold, &evicted), 2U);
  EXPECT_EQ(evicted.size(), 2U);
  EXPECT_EQ(present(*table, keys_of(0, 4)), 2U);
  table->release(std::span(used).first(1));
  ASSERT_EQ(table->select_cold(cold, 4), 1U);
  table->release(std::span(cold).first(1));
  ASSERT_EQ(table->select_cold(cold, 5), 1U);
  EXPECT_EQ(table->identity(cold[0]).key, key_of(1));
}

TEST(BlockTable, the_same_calls_give_the_same_slots) {
  const auto play = [](std::vector<SlotId>& log) {
    auto table = make_table(32);
    for (uint32_t i = 0; i < 200; ++i) {
      const auto slots = store(*table, keys_of(i * 7 % 90, 5), i, Lineage::chain);
      log.insert(log.end(), slots.begin(), slots.end());
      table->release(slots);
    }
  };
  std::vector<SlotId> first;
  std::vector<SlotId> second;
  play(first);
  play(second);
  EXPECT_EQ(first, second);
}

TEST(BlockTable, scan_pages_cover_every_slot_in_use_once) {
  auto table = make_table(10);
  const auto slots = store(*table, keys_of(0, 7), 3, Lineage::chain);
  std::vector<SlotInfo> seen;
  for (SlotId at = 0; at < table->slots();) at = table->scan(at, seen, 2);
  ASSERT_EQ(seen.size(), 7U);
  EXPECT_EQ(seen[0].children, 1U);
  EXPECT_EQ(seen[6].children, 0U);
  EXPECT_EQ(seen[2].references, 1U);
  EXPECT_EQ(seen[2].last_use, 3U);
}

TEST(BlockTable, metadata_without_holds_and_policy_is_at_most_79_bytes_a_slot) {
  auto table = make_table(131072, "fifo");
  EXPECT_LE(table->bytes(), 131072U * 79U);
}

// ---- accounts ----

TEST(Accounts, a_rejecting_limit_is_exact) {
  auto table = make_table(8);
  ASSERT_EQ(table->set_limit(3, 2, OverQuota::reject), Code::ok);
  std::vector<SlotId> slots(2);
  ASSERT_EQ(table->allocate(3, slots, nullptr), Code::ok);
  std::vector<SlotId> more(1);
  EXPECT_EQ(table->allocate(3, more, nullptr), Code::over_quota);
  EXPECT_EQ(table->account_use(3).used, 2U);
  table->abandon(slots);
  EXPECT_EQ(table->account_use(3).used, 0U);
  EXPECT_EQ(table->allocate(3, more, nullptr), Code::ok);
  EXPECT_EQ(table->allocate(9, more, nullptr), Code::invalid_argument);
  EXPECT_EQ(table->set_limit(0, 1, OverQuota::reject), Code::invalid_argument);
}

TEST(Accounts, an_evicting_limit_takes_its_own_coldest_though_slots_are_free) {
  auto table = make_table(8);
  ASSERT_EQ(table->set_limit(3, 2, OverQuota::evict), Code::ok);
  table->release(store(*table, keys_of(100, 3), 1));
  table->release(store(*table, keys_of(0, 2), 2, Lineage::none, 0, nullptr, 3));
  std::vector<Evicted> evicted;
  table->release(store(*table, keys_of(5, 1), 3, Lineage::none, 0, &evicted, 3));
  ASSERT_EQ(evicted.size(), 1U);
  EXPECT_EQ(evicted[0].identity.key, key_of(0));
  EXPECT_EQ(evicted[0].account, 3);
  EXPECT_EQ(table->account_use(3).used, 2U);
  EXPECT_EQ(present(*table, keys_of(100, 3)), 3U);
  std::vector<SlotId> too_many(3);
  EXPECT_EQ(table->allocate(3, too_many, nullptr), Code::over_quota);
}

TEST(Accounts, limits_move_at_run_time_and_take_resident_blocks_along) {
  auto table = make_table(8);
  ASSERT_EQ(table->set_limit(3, kNoLimit, OverQuota::evict), Code::ok);
  table->release(store(*table, keys_of(0, 4), 1, Lineage::chain, 0, nullptr, 3));
  std::vector<Evicted> evicted;
  ASSERT_EQ(table->set_limit(3, 2, OverQuota::evict, &evicted), Code::ok);
  ASSERT_EQ(evicted.size(), 2U);
  EXPECT_EQ(table->account_use(3).used, 2U);
  std::vector<SlotId> slots(1);
  EXPECT_EQ(table->allocate(3, slots, &evicted), Code::ok);
  ASSERT_EQ(evicted.size(), 3U);
  for (uint64_t i = 0; i < 3; ++i) EXPECT_EQ(evicted[i].identity.key, key_of(3 - i));
  EXPECT_EQ(table->account_use(3).used, 2U);
  EXPECT_EQ(table->counters().free, 6U);
}

TEST(Accounts, what_was_held_when_the_limit_moved_goes_with_the_next_allocation) {
  auto table = make_table(8);
  ASSERT_EQ(table->set_limit(3, kNoLimit, OverQuota::evict), Code::ok);
  const auto held = store(*table, keys_of(0, 4), 1, Lineage::chain, 0, nullptr, 3);
  std::vector<Evicted> evicted;
  ASSERT_EQ(table->set_limit(3, 2, OverQuota::evict, &evicted), Code::ok);
  EXPECT_EQ(evicted.size(), 0U);
  table->release(held);
  std::vector<SlotId> slots(1);
  EXPECT_EQ(table->allocate(3, slots, &evicted), Code::ok);
  EXPECT_EQ(evicted.size(), 3U);
  EXPECT_EQ(table->account_use(3).used, 2U);
  EXPECT_EQ(table->counters().free, 6U);
}

TEST(Accounts, room_for_others_comes_from_whoever_uses_most) {
  auto table = make_table(8);
  ASSERT_EQ(table->set_limit(3, 6, OverQuota::evict), Code::ok);
  table->release(store(*table, keys_of(0, 6), 2, Lineage::none, 0, nullptr, 3));
  table->release(store(*table, keys_of(100, 2), 1));
  std::vector<Evicted> evicted;
  store(*table, keys_of(200, 1), 3, Lineage::none, 0, &evicted);
  ASSERT_EQ(evicted.size(), 1U);
  EXPECT_EQ(evicted[0].account, 3);
}

}  // namespace
}  // namespace kvbm::block::block_table_test
