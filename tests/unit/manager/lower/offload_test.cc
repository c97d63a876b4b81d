#include "manager/lower/offload.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "manager/host/host_record.h"
#include "manager/host/space_queue.h"
#include "manager/manager.h"
#include "manager/operation/move.h"
#include "manager/stack/onboard.h"
#include "policy/hints.h"
#include "support/paced_tier.h"
#include "support/small_manager.h"

namespace kvbm::manager::offload_test {
namespace {

class Offloading : public test::SmallManager {
 protected:
  struct Outcome {
    bool done = false;
    Code status = Code::internal;
    uint64_t items_done = 0;
  };

  // Offloads blocks as kvbm_manager_offload does.
  std::shared_ptr<Outcome> ask(const std::vector<uint64_t>& numbers) {
    std::vector<Key> keys;
    for (const uint64_t n : numbers) keys.push_back(key(n));
    auto out = std::make_shared<Outcome>();
    std::make_shared<OffloadOperation>(manager_->stack().keep(), TierIndex{1}, family_, std::move(keys), kNever)
        ->start([out](const copy::Completion& completion) {
          EXPECT_FALSE(out->done);
          *out = {true, static_cast<Code>(completion.status), completion.items_done};
        });
    return out;
  }

  // Returns the number of records sent to the disk, which stores one of two equal ones.
  uint64_t written() { return get(manager_->counters().tiers[1].stores); }
  uint64_t skipped() { return get(manager_->counters().offload_skipped); }

  // Returns whether the block is in the host or in the tier.
  bool is_somewhere(uint64_t n) { return is_in_host(n) || is_below(n); }

  bool is_in_host(uint64_t n) {
    const SlotId slot = manager_->host().acquire_one(family_, key(n));
    if (slot != kNoSlot) manager_->host().release({&slot, 1});
    return slot != kNoSlot;
  }

  bool is_below(uint64_t n) {
    tier::Found found;
    const Identity id{key(n), family_};
    manager_->lower().tier(1).find({&id, 1}, {&found, 1}, false);
    return found.present;
  }
};

TEST_F(Offloading, what_admission_writes_is_not_written_again_for_who_asks_meanwhile) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < kSlots / 2; ++n) put(n);
  const auto one = ask({0, 1, 2, 3});
  const auto other = ask({3, 2, 1, 0});
  ASSERT_TRUE(sim_.run_until([&] { return one->done && other->done; }));
  EXPECT_EQ(one->status, Code::ok);
  EXPECT_EQ(one->items_done, 4U);
  EXPECT_EQ(other->status, Code::ok);
  EXPECT_EQ(other->items_done, 4U);
  flush();
  EXPECT_EQ(written(), 4U);
  EXPECT_EQ(manager_->lower().tier(1).stats().records, 4U);
  const auto again = ask({0, 1, 2, 3});
  ASSERT_TRUE(sim_.run_until([&] { return again->done; }));
  EXPECT_EQ(again->items_done, 4U);
  EXPECT_EQ(written(), 4U);
}

// Blocks of a request stay from the call on. A store after it waits or is refused, and evicts none of them.
TEST_F(Offloading, what_is_asked_for_stays_until_its_turn_comes) {
  make(AdmissionKind::on_request);
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  const auto asked = ask({0, 1, 2, 3});
  for (uint64_t n = 100; n < 100 + kSlots - 4; ++n) put(n);  // before the executor had a turn
  ASSERT_TRUE(sim_.run_until([&] { return asked->done; }));
  EXPECT_EQ(asked->status, Code::ok);
  EXPECT_EQ(asked->items_done, 4U);
  EXPECT_EQ(written(), 4U);
}

TEST_F(Offloading, a_key_asked_for_twice_in_one_call_is_written_once) {
  make(AdmissionKind::on_request);
  put(1);
  put(2);
  const auto asked = ask({1, 2, 1, 1, 2});
  ASSERT_TRUE(sim_.run_until([&] { return asked->done; }));
  EXPECT_EQ(asked->status, Code::ok);
  EXPECT_EQ(asked->items_done, 5U);
  EXPECT_EQ(written(), 2U);
}

TEST_F(Offloading, uses_while_a_block_waits_or_is_written_do_not_queue_it_again) {
  make(AdmissionKind::after_uses);
  put(1);
  const SlotId slot = manager_->host().acquire_one(family_, key(1));
  ASSERT_NE(slot, kNoSlot);
  for (int i = 0; i < 20; ++i) manager_->lower().used({&slot, 1});
  EXPECT_LE(manager_->lower().offloader(1).queued_bytes(), manager_->host().arena().slot_bytes());
  manager_->host().release({&slot, 1});
  flush();
  EXPECT_EQ(written(), 1U);
}

TEST_F(Offloading, nothing_stays_held_when_several_waited_for_one_write) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  std::vector<std::shared_ptr<Outcome>> asked;
  for (int i = 0; i < 5; ++i) asked.push_back(ask({0, 1, 2, 3, 4, 5, 6, 7}));
  for (const auto& one : asked) ASSERT_TRUE(sim_.run_until([&] { return one->done; }));
  flush();
  EXPECT_EQ(written(), kSlots);
  std::vector<SlotId> all(manager_->host().arena().slots());
  EXPECT_EQ(manager_->stack().allocate(block::kSharedAccount, all, nullptr), Code::ok);
  manager_->host().release(all);
}

TEST_F(Offloading, a_tier_that_writes_nothing_yet_does_not_own_a_small_host) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < 5 * kSlots; ++n) put(n);  // asserts that there is room
  EXPECT_LE(manager_->lower().offloading_blocks(), kSlots * 3 / 4);
  flush();
  EXPECT_EQ(written() + get(manager_->counters().offload_skipped), 5 * kSlots);
  EXPECT_GE(written(), kSlots / 2);
}

// No block is written between the stores, because the executor gets no turn.
TEST_F(Offloading, what_write_back_evicts_before_it_is_written_is_counted) {
  make(AdmissionKind::on_eviction);
  for (uint64_t n = 0; n < 5 * kSlots; ++n) put(n);
  flush();
  uint64_t there = 0;
  for (uint64_t n = 0; n < 5 * kSlots; ++n) there += is_somewhere(n) ? 1 : 0;
  EXPECT_LT(there, 5 * kSlots) << "nothing was lost: this shows nothing";
  EXPECT_EQ(there + skipped(), 5 * kSlots);
}

class Flushing : public Offloading {
 protected:
  // Returns the flush's result. heard = false: the caller has left before the report.
  Code told(bool heard = true) {
    std::optional<Code> said;
    manager_->lower().flush_and_report(false, [&](Code code) {
      said = code;
      return heard;
    });
    EXPECT_TRUE(sim_.run_until([&] { return said.has_value(); }));
    return said.value_or(Code::internal);
  }
};

TEST_F(Flushing, tells_of_what_the_disk_does_not_take_until_it_does) {
  make(AdmissionKind::all);
  EXPECT_EQ(told(), Code::ok);
  disk_.faults.write_error = 1;
  put(1);
  EXPECT_EQ(told(), Code::partial);
  EXPECT_FALSE(is_below(1));
  ASSERT_FALSE(manager_->lower().disabled(1));
  disk_.faults.write_error = 0;
  EXPECT_EQ(told(), Code::ok);
  EXPECT_TRUE(is_below(1));
  put(2);
  EXPECT_EQ(told(), Code::ok);
}

TEST_F(Flushing, tells_the_next_one_where_nobody_heard_it) {
  make(AdmissionKind::all);
  disk_.faults.write_error = 1;
  put(1);
  EXPECT_EQ(told(false), Code::partial);
  disk_.faults.write_error = 0;
  EXPECT_EQ(told(), Code::partial);
  EXPECT_EQ(told(), Code::ok);
  EXPECT_TRUE(is_below(1));
}

TEST_F(Flushing, never_says_that_all_is_well_while_the_disk_is_out_of_service) {
  make(AdmissionKind::all);
  disk_.faults.write_error = 1;
  for (uint64_t n = 0; n < 8 && !manager_->lower().disabled(1); ++n) {
    put(n);
    EXPECT_EQ(told(), Code::partial);
  }
  ASSERT_TRUE(manager_->lower().disabled(1));
  put(100);
  EXPECT_EQ(told(), Code::partial);
}

// The caller may be quicker than the thread that reports what the sync has lost.
TEST_F(Flushing, one_that_follows_a_failed_sync_at_once_sends_its_blocks_again) {
  make(AdmissionKind::all);
  put(1);
  disk_.faults.sync_error = 1;
  std::optional<Code> first;
  std::optional<Code> second;
  manager_->lower().flush_and_report(true, [&](Code code) {
    first = code;
    disk_.faults.sync_error = 0;
    manager_->lower().flush_and_report(true, [&](Code then) {
      second = then;
      return true;
    });
    return true;
  });
  ASSERT_TRUE(sim_.run_until([&] { return second.has_value(); }));
  EXPECT_EQ(first, Code::partial);
  EXPECT_TRUE(is_below(1));
  EXPECT_EQ(told(), Code::ok);
}

// A segment that is full is synced whether there is a flush or not.
TEST_F(Flushing, tells_of_what_a_failed_sync_of_a_full_segment_has_lost) {
  make(AdmissionKind::all);
  disk_.faults.sync_error = 1;
  constexpr uint64_t kMany = 10'000;
  uint64_t n = 0;
  for (; n < kMany && (n < 2 || is_below(n - 2)); ++n) {
    put(n);
    flush();
    sim_.run_for(10'000'000);
  }
  ASSERT_LT(n, kMany);
  uint64_t kept = 0;  // a lost block that the host still has
  while (kept < n && (is_below(kept) || !is_in_host(kept))) ++kept;
  ASSERT_LT(kept, n);
  disk_.faults.sync_error = 0;
  ASSERT_FALSE(manager_->lower().disabled(1));
  EXPECT_EQ(told(), Code::partial);
  EXPECT_TRUE(is_below(kept));
  EXPECT_EQ(told(), Code::ok);
}

class OffloadingSlowly : public Offloading {
 protected:
  void adjust(Options& options) override {
    options.tiers[0].path.clear();
    options.tiers[0].make = [this](TierIndex, FamilyTable&,
                                   tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
      return std::unique_ptr<tier::Tier>(std::make_unique<test::PacedTier>(sim_, pace_));
    };
    pace_->keeps_puts = true;
  }
  std::shared_ptr<test::Pace> pace_ = std::make_shared<test::Pace>();
};

// Holds blocks as a node does that has stored them and not released its lease yet.
TEST_F(OffloadingSlowly, what_is_still_read_when_it_is_below_does_not_take_the_room_from_what_comes) {
  make(AdmissionKind::on_eviction);
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  ASSERT_TRUE(sim_.run_until([&] { return !pace_->kept.empty(); }));
  std::vector<SlotId> read;
  bool flushed = false;
  manager_->lower().flush([&] { flushed = true; });
  while (!flushed) {
    ASSERT_TRUE(sim_.run_until([&] { return flushed || !pace_->kept.empty(); }));
    if (flushed) break;
    if (read.size() < 2) {
      for (const tier::PutItem& item : pace_->kept.front()->items) {
        read.push_back(manager_->host().acquire_one(item.id.family, item.id.key));
      }
    }
    pace_->answer_put();
  }
  EXPECT_EQ(manager_->host().table().counters().free, 1U);
  EXPECT_EQ(written(), 3U);
  put(100);
  for (uint64_t n = 0; n < kSlots; ++n) EXPECT_TRUE(is_somewhere(n)) << n;
  EXPECT_EQ(skipped(), 0U);
  manager_->host().release(read);
  pace_->keeps_puts = false;
  while (!pace_->kept.empty()) pace_->answer_put();
  flush();
}

// A store that waits asks for its slots each time it looks.
TEST_F(OffloadingSlowly, who_asks_again_for_slots_has_no_more_blocks_evicted) {
  make(AdmissionKind::on_eviction);
  for (uint64_t n = 0; n + 1 < kSlots; ++n) put(n);
  ASSERT_EQ(manager_->host().table().counters().free, 1U);
  for (int i = 0; i < 5; ++i) manager_->lower().offloader(1).relieve(2);
  sim_.run_for(1'000'000);
  EXPECT_EQ(pace_->kept.size(), 1U);
  pace_->keeps_puts = false;
  while (!pace_->kept.empty()) pace_->answer_put();
  flush();
  EXPECT_EQ(written(), 1U);
  EXPECT_EQ(manager_->host().table().counters().free, 2U);
  // The ones that are gone count no longer.
  manager_->lower().offloader(1).relieve(2);
  flush();
  EXPECT_EQ(written(), 1U) << "two are free";
  put(100);
  manager_->lower().offloader(1).relieve(2);
  flush();
  EXPECT_EQ(written(), 2U);
}

TEST_F(OffloadingSlowly, a_waiter_hears_at_once_that_the_tier_that_refuses_its_blocks_is_out_of_use) {
  struct Waiter final : SpaceWaiter {
    void space_may_be_free() override { ++looks; }
    uint64_t looks = 0;
  };
  make(AdmissionKind::on_eviction);
  pace_->refuses = Code::io_error;
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  ASSERT_TRUE(sim_.run_until([&] { return !pace_->kept.empty(); }));
  SpaceQueue& line = manager_->host().space_queue();
  const auto waiter = std::make_shared<Waiter>();
  const uint64_t place = line.place_of_store();
  (void)line.refused(waiter, place, block::kSharedAccount, false, Code::no_room, true);
  manager_->lower().disabled(1, Status(Code::io_error, "the tier is broken"));
  const uint64_t before = sim_.clock().now_ns();
  pace_->answer_put();
  ASSERT_TRUE(sim_.run_until([&] { return waiter->looks != 0; }));
  EXPECT_EQ(sim_.clock().now_ns(), before);
  line.leave(place, false);
}

// A disk refuses each put while all its segments are pinned.
TEST_F(OffloadingSlowly, blocks_that_the_tier_refuses_are_not_sent_again_until_the_next_look) {
  struct Waiter final : SpaceWaiter {
    explicit Waiter(Offloader& to) : offloader(to) {}
    void space_may_be_free() override {
      if (++looks < 1000) offloader.relieve(1);
    }
    Offloader& offloader;
    uint64_t looks = 0;
  };
  make(AdmissionKind::on_eviction);
  pace_->keeps_puts = false;
  pace_->refuses = Code::no_room;
  for (uint64_t n = 0; n < kSlots; ++n) put(n);
  SpaceQueue& line = manager_->host().space_queue();
  const auto waiter = std::make_shared<Waiter>(manager_->lower().offloader(1));
  const uint64_t place = line.place_of_store();
  (void)line.refused(waiter, place, block::kSharedAccount, false, Code::no_room, true);
  waiter->space_may_be_free();
  constexpr uint64_t kLooks = 20;
  sim_.run_for(kLooks * SpaceQueue::kLookNs);
  EXPECT_GE(waiter->looks, kLooks / 2) << "nothing was tried again: this shows nothing";
  EXPECT_LE(waiter->looks, kLooks + 2);
  line.leave(place, false);
  pace_->refuses = Code::ok;
}

TEST_F(OffloadingSlowly, a_hint_goes_down_with_its_block) {
  make(AdmissionKind::on_request);
  for (uint64_t n = 0; n < 3; ++n) put(n);
  const Key kept = key(1);
  const Key once = key(2);
  manager_->stack().hint(family_, {&kept, 1}, policy::kHintKeep);
  manager_->stack().hint(family_, {&once, 1}, policy::kHintOneShot);
  const auto asked = ask({0, 1, 2});
  std::vector<uint8_t> priorities;
  while (!asked->done) {
    ASSERT_TRUE(sim_.run_until([&] { return asked->done || !pace_->kept.empty(); }));
    if (pace_->kept.empty()) break;
    for (const tier::PutItem& item : pace_->kept.front()->items) priorities.push_back(item.priority);
    pace_->answer_put();
  }
  EXPECT_EQ(priorities, (std::vector<uint8_t>{policy::kHintNormal, policy::kHintKeep, policy::kHintOneShot}));
}

// Block 1 is stored anew while its record is being erased, or was erased just before. The host's on-tier flag must be
// true of the tier. Otherwise a later eviction would count as saved although no tier has the block.
class StoringAnew : public OffloadingSlowly {
 protected:
  void answer_all() {
    while (!pace_->kept.empty()) pace_->answer_put();
  }
  bool is_below() {
    tier::Found found;
    const Identity id{key(1), family_};
    manager_->lower().tier(1).find({&id, 1}, {&found, 1}, false);
    return found.present;
  }
  bool is_marked() {
    const SlotId slot = manager_->host().acquire_one(family_, key(1));
    EXPECT_NE(slot, kNoSlot);
    const bool marked = (manager_->host().table().flags(slot) & on_tier_flag(1)) != 0;
    manager_->host().release({&slot, 1});
    return marked;
  }
  void forget() {
    const Key gone = key(1);
    EXPECT_EQ(manager_->stack().drop(family_, {&gone, 1}), 1U);
  }
};

TEST_F(StoringAnew, and_written_before_the_late_erase_of_the_first_sends_it_again) {
  make(AdmissionKind::all);
  pace_->on_put = [this] {
    forget();
    put(1);
    answer_all();
    EXPECT_TRUE(is_marked());
  };
  put(1);  // its put returns after all that
  answer_all();
  flush();
  EXPECT_TRUE(is_below());
  EXPECT_TRUE(is_marked());
}

TEST_F(StoringAnew, and_erased_before_the_tier_answers_is_not_marked) {
  make(AdmissionKind::all);
  pace_->on_put = [this] {
    forget();
    put(1);
  };
  put(1);
  answer_all();
  flush();
  EXPECT_EQ(is_marked(), is_below());
}

TEST_F(StoringAnew, and_written_between_a_drop_and_its_erasing_below_sends_it_again) {
  make(AdmissionKind::all);
  put(1);
  answer_all();
  pace_->on_erase = [this] {
    put(1);
    answer_all();
  };
  forget();
  answer_all();
  flush();
  EXPECT_TRUE(is_below());
  EXPECT_TRUE(is_marked());
}

// A caller that requested the block meanwhile gets the answer once it is stored.
TEST_F(StoringAnew, and_on_its_way_when_the_erase_comes_sends_it_again) {
  make(AdmissionKind::all);
  put(1);
  answer_all();
  pace_->on_erase = [this] { put(1); };
  forget();
  const auto asked = ask({1});
  EXPECT_FALSE(sim_.run_until([&] { return asked->done; })) << "it waits for the one that is on its way";
  EXPECT_EQ(pace_->kept.size(), 1U);
  EXPECT_FALSE(is_below());
  pace_->answer_put();
  EXPECT_FALSE(asked->done);
  ASSERT_TRUE(sim_.run_until([&] { return !pace_->kept.empty(); }));
  answer_all();
  ASSERT_TRUE(sim_.run_until([&] { return asked->done; }));
  EXPECT_EQ(asked->status, Code::ok);
  EXPECT_EQ(asked->items_done, 1U);
  flush();
  EXPECT_TRUE(is_below());
  EXPECT_TRUE(is_marked());
}

TEST_F(StoringAnew, and_on_its_way_when_its_namespace_is_reset_sends_it_again) {
  make(AdmissionKind::all);
  put(1);
  answer_all();
  for (const bool everything : {false, true}) {
    pace_->on_erase = [this] { put(1); };
    ASSERT_TRUE((everything ? manager_->stack().erase_all() : manager_->namespaces().reset(*ns_)).ok());
    EXPECT_FALSE(is_below());
    pace_->answer_put();
    answer_all();
    flush();
    EXPECT_TRUE(is_below());
    EXPECT_TRUE(is_marked());
  }
}

// Otherwise a full tier would be written to forever.
TEST_F(StoringAnew, what_a_tier_lets_go_before_it_answers_is_not_sent_again) {
  make(AdmissionKind::all);
  put(1);
  const Identity id{key(1), family_};
  manager_->lower().tier(1).erase({&id, 1});
  manager_->lower().removed(1, {&id, 1}, false);
  answer_all();
  flush();
  EXPECT_FALSE(is_below());
  EXPECT_FALSE(is_marked());
  EXPECT_TRUE(pace_->kept.empty());
}

TEST_F(StoringAnew, and_written_while_its_namespace_is_reset_sends_it_again) {
  make(AdmissionKind::all);
  put(1);
  answer_all();
  for (const bool everything : {false, true}) {
    pace_->on_erase = [this] {
      put(1);
      answer_all();
    };
    ASSERT_TRUE((everything ? manager_->stack().erase_all() : manager_->namespaces().reset(*ns_)).ok());
    answer_all();
    flush();
    EXPECT_TRUE(is_below());
    EXPECT_TRUE(is_marked());
  }
}

TEST_F(StoringAnew, what_a_tier_lets_go_while_it_comes_up_is_not_marked) {
  make(AdmissionKind::all);
  put(1);
  answer_all();
  flush();
  const SlotId slot = manager_->host().acquire_one(family_, key(1));
  ASSERT_NE(slot, kNoSlot);
  manager_->host().evict_held({&slot, 1});
  const Identity id{key(1), family_};
  pace_->on_read = [this, id] {
    manager_->lower().tier(1).erase({&id, 1});
    manager_->lower().removed(1, {&id, 1}, false);
  };
  tier::Found found;
  manager_->lower().tier(1).find({&id, 1}, {&found, 1}, false);
  ASSERT_TRUE(found.present);
  bool landed = false;
  auto batch = std::make_unique<tier::GetBatch>();
  batch->items.push_back(request_of(id, found));
  LandingRoom room;
  ASSERT_EQ(take_slots(manager_->stack(), block::kSharedAccount, 1, room), Code::ok);
  onboard(manager_->stack().keep(), 1, std::move(batch), std::move(room), [&](std::vector<Delivery> blocks) {
    landed = true;
    ASSERT_EQ(blocks.size(), 1U);
    EXPECT_EQ(blocks[0].code, Code::ok);
    if (blocks[0].slot != kNoSlot) manager_->host().release({&blocks[0].slot, 1});
  });
  ASSERT_TRUE(sim_.run_until([&] { return landed; }));
  answer_all();
  flush();
  EXPECT_EQ(is_marked(), is_below());
}

class OffloadingTwice : public Offloading {
 protected:
  void adjust(Options& options) override {
    options.tiers.push_back(options.tiers[0]);
    options.tiers[1].path = "/other";
  }
};

TEST_F(OffloadingTwice, nor_do_two_tiers_together) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < 5 * kSlots; ++n) put(n);
  EXPECT_LE(manager_->lower().offloading_blocks(), kSlots * 3 / 4);
  flush();
}

TEST_F(Offloading, a_block_forgotten_while_it_is_written_is_over_for_all_who_asked) {
  make(AdmissionKind::all);
  put(1);
  const auto one = ask({1});
  const auto other = ask({1});
  const Key gone = key(1);
  EXPECT_EQ(manager_->stack().drop(family_, {&gone, 1}), 1U);
  ASSERT_TRUE(sim_.run_until([&] { return one->done && other->done; }));
  flush();
  EXPECT_LE(written(), 1U);
  tier::Found found;
  const Identity id{gone, family_};
  manager_->lower().tier(1).find({&id, 1}, {&found, 1}, false);
  EXPECT_FALSE(found.present);
}

}  // namespace
}  // namespace kvbm::manager::offload_test
