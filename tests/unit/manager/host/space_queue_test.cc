#include "manager/host/space_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "manager/operation/cache.h"
#include "manager/operation/move.h"
#include "manager/operation/store.h"
#include "support/paced_tier.h"
#include "support/small_manager.h"

namespace kvbm::manager::space_queue_test {
namespace {

// Eight slots over a tier that has stored what it is sent when the test says so. Block n is n in every byte.
class SpaceQueueTest : public test::SmallManager {
 protected:
  struct Outcome {
    bool done = false;
    Code status = Code::internal;
    uint64_t items_done = 0;
    uint64_t at_ns = 0;
    std::vector<int32_t> items;
    std::weak_ptr<StoreOperation> operation;
  };

  void adjust(Options& options) override {
    pace_->keeps_puts = true;
    options.room_wait_ns = room_wait_ns_;
    options.tiers[0].path.clear();
    options.tiers[0].make = [this](TierIndex, FamilyTable&,
                                   tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
      return std::unique_ptr<tier::Tier>(std::make_unique<test::PacedTier>(sim_, pace_));
    };
    log_.set_sink(
        [](void* said, const LogMessage& message) {
          static_cast<std::vector<std::string>*>(said)->emplace_back(message.text);
        },
        &said_, LogLevel::warning);
  }

  // A manager with a full host: blocks 0 to 7, and each may be evicted.
  void fill(AdmissionKind admission = AdmissionKind::on_request) {
    make(admission);
    for (uint64_t n = 0; n < kSlots; ++n) put(n);
    cache_ = attach(ns_);
  }

  std::shared_ptr<Cache> attach(const std::shared_ptr<Namespace>& ns) {
    layout::PageTensor tensor;
    tensor.base = memory_.data();
    tensor.extent_bytes = memory_.size();
    tensor.block_stride = kBlock;
    tensor.page_bytes = kBlock;
    auto pages = layout::PageArrangement::make(kEngineBlocks, {tensor});
    auto part = CachePart::opaque(ns->plan({}).value(), std::move(pages).value(), 1);
    return Cache::create(manager_->stack().keep(), ns, {std::move(part).value()}).value();
  }

  // Opens a second namespace with a quota of so many slots.
  std::shared_ptr<Namespace> limited(uint32_t slots, block::OverQuota mode) {
    NamespaceOptions who;
    who.model = "limited";
    auto opened = manager_->namespaces().open(std::move(who)).value();
    EXPECT_TRUE(manager_->namespaces().set_quota(*opened, slots * manager_->host().arena().slot_bytes(), mode).ok());
    return opened;
  }

  // Stores blocks first, first + 1, ...
  std::shared_ptr<Outcome> store(uint64_t first, size_t count, StoreRequest request = {}) {
    if (request.cache == nullptr) request.cache = cache_;
    for (size_t i = 0; i < count; ++i) {
      request.keys.push_back(key(first + i));
      request.block_ids.push_back(static_cast<uint32_t>(i));
    }
    auto out = std::make_shared<Outcome>();
    out->items.assign(count, 12345);
    request.item_status = out->items;
    auto operation = std::make_shared<StoreOperation>(std::move(request));
    out->operation = operation;
    operation->start([this, out](const copy::Completion& completion) {
      EXPECT_FALSE(out->done);
      out->done = true;
      out->status = static_cast<Code>(completion.status);
      out->items_done = completion.items_done;
      out->at_ns = now();
      order_.push_back(out.get());
    });
    return out;
  }

  // Sends the blocks to the tier by name: they are held until it has them.
  std::shared_ptr<bool> offload(uint64_t first, size_t count) {
    std::vector<Key> keys;
    for (size_t i = 0; i < count; ++i) keys.push_back(key(first + i));
    auto done = std::make_shared<bool>(false);
    std::make_shared<OffloadOperation>(manager_->stack().keep(), TierIndex{1}, family_, std::move(keys), kNever)
        ->start([done](const copy::Completion&) { *done = true; });
    sim_.run_for(1'000'000);
    EXPECT_FALSE(pace_->kept.empty());
    return done;
  }

  // Answers all requests that the tier has, and those that follow from the answers.
  void answer_all() {
    sim_.run_for(1'000'000);
    while (!pace_->kept.empty()) {
      pace_->answer_put();
      sim_.run_for(1'000'000);
    }
  }

  // Takes references to blocks, as a match does.
  std::vector<SlotId> hold(uint64_t first, size_t count) {
    std::vector<SlotId> slots;
    for (size_t i = 0; i < count; ++i) {
      slots.push_back(manager_->host().acquire_one(family_, key(first + i)));
      EXPECT_NE(slots.back(), kNoSlot);
    }
    return slots;
  }

  bool resident(uint64_t n) {
    const Key k = key(n);
    uint8_t present = 0;
    manager_->host().table().probe(family_, {&k, 1}, {&present, 1});
    return present != 0;
  }

  void wait_for(const std::shared_ptr<Outcome>& outcome) {
    ASSERT_TRUE(sim_.run_until([&] { return outcome->done; }));
  }
  uint64_t now() { return sim_.clock().now_ns(); }
  uint64_t refused() { return get(manager_->counters().refused_room); }

  void TearDown() override {
    pace_->keeps_puts = false;
    if (manager_ != nullptr) {
      answer_all();
      EXPECT_EQ(manager_->host().space_queue().waiting(), 0U);
      EXPECT_EQ(get(manager_->counters().operations), 0U);
    }
    cache_ = nullptr;
    test::SmallManager::TearDown();
  }

  static constexpr uint32_t kEngineBlocks = 16;
  uint64_t room_wait_ns_ = 1'000'000'000;
  const std::shared_ptr<test::Pace> pace_ = std::make_shared<test::Pace>();
  std::vector<std::byte> memory_ = std::vector<std::byte>(kEngineBlocks * kBlock);
  std::shared_ptr<Cache> cache_;
  std::vector<std::string> said_;
  std::vector<const Outcome*> order_;  // of completions
};

TEST_F(SpaceQueueTest, a_store_waits_for_what_is_being_offloaded) {
  fill();
  const auto offloaded = offload(0, kSlots);
  const auto stored = store(100, 2);
  sim_.run_for(50'000'000);
  EXPECT_FALSE(stored->done);
  EXPECT_EQ(manager_->host().space_queue().waiting(), 1U);
  answer_all();
  EXPECT_TRUE(*offloaded);
  ASSERT_TRUE(stored->done);
  EXPECT_EQ(stored->status, Code::ok);
  EXPECT_EQ(refused(), 0U);
  EXPECT_TRUE(resident(100));
  EXPECT_TRUE(resident(101));
  EXPECT_EQ(manager_->counters().room_wait.count(), 1U);
  EXPECT_GE(manager_->counters().room_wait.sum(), 50'000'000U);
  EXPECT_TRUE(said_.empty());
}

TEST_F(SpaceQueueTest, one_that_finds_room_waits_for_nothing_and_is_not_counted) {
  fill();
  const auto stored = store(100, kSlots);
  wait_for(stored);
  EXPECT_EQ(stored->status, Code::ok);
  EXPECT_EQ(manager_->counters().room_wait.count(), 0U);
}

TEST_F(SpaceQueueTest, what_is_stored_before_the_room_ends_is_found_while_the_rest_waits) {
  fill();
  const auto offloaded = offload(0, 4);
  const auto stored = store(100, 6);
  sim_.run_for(50'000'000);
  EXPECT_FALSE(stored->done);
  EXPECT_TRUE(resident(103));
  EXPECT_FALSE(resident(104));
  answer_all();
  ASSERT_TRUE(stored->done);
  EXPECT_EQ(stored->items_done, 6U);
  EXPECT_TRUE(resident(105));
}

TEST_F(SpaceQueueTest, nothing_on_its_way_is_refused_at_once_and_what_holds_the_room_is_said) {
  fill();
  const std::vector<SlotId> held = hold(0, 6);
  block::PinId pin = 0;
  size_t pinned = 0;
  const Key keys[] = {key(6), key(7)};
  for (const Key& one : keys) ASSERT_EQ(manager_->pins().pin(family_, {&one, 1}, 3, kNever, pin, pinned), Code::ok);
  const uint64_t before = now();
  const auto stored = store(100, 2);
  wait_for(stored);
  EXPECT_EQ(stored->at_ns, before);
  EXPECT_EQ(stored->status, Code::no_room);
  EXPECT_EQ(refused(), 2U);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("of 8 host blocks 6 are held"), std::string::npos) << said_[0];
  EXPECT_NE(said_[0].find("2 pinned"), std::string::npos) << said_[0];
  wait_for(store(100, 2));
  EXPECT_EQ(said_.size(), 1U);  // not with every refusal
  manager_->pins().unpin_owner(3);
  const auto again = store(100, 2);
  wait_for(again);
  EXPECT_EQ(again->status, Code::ok);
  manager_->host().release(held);
}

TEST_F(SpaceQueueTest, a_release_by_the_caller_wakes_it) {
  fill();
  const std::vector<SlotId> held = hold(0, kSlots);
  const auto offloaded = offload(0, 1);  // something is on its way, and will free nothing
  const auto stored = store(100, 1);
  sim_.run_for(50'000'000);
  EXPECT_FALSE(stored->done);
  manager_->host().release(std::span(held).first(4));
  const uint64_t released = now();
  wait_for(stored);
  EXPECT_EQ(stored->status, Code::ok);
  EXPECT_EQ(stored->at_ns, released);
  manager_->host().release(std::span(held).subspan(4));
}

TEST_F(SpaceQueueTest, an_end_that_frees_nothing_refuses_it) {
  fill();
  const std::vector<SlotId> held = hold(0, kSlots);
  const auto offloaded = offload(0, 2);
  const auto stored = store(100, 1);
  sim_.run_for(50'000'000);
  EXPECT_FALSE(stored->done);
  answer_all();
  wait_for(stored);
  EXPECT_EQ(stored->status, Code::no_room);
  EXPECT_EQ(refused(), 1U);
  ASSERT_EQ(said_.size(), 1U);
  EXPECT_NE(said_[0].find("after it waited"), std::string::npos) << said_[0];
  manager_->host().release(held);
}

TEST_F(SpaceQueueTest, a_tier_that_hangs_keeps_stores_for_room_wait_and_no_longer) {
  fill();
  const auto offloaded = offload(0, kSlots);
  const uint64_t began = now();
  const auto first = store(100, 2);
  const auto second = store(200, 2);
  wait_for(first);
  wait_for(second);
  EXPECT_EQ(first->status, Code::no_room);
  EXPECT_EQ(second->status, Code::no_room);
  for (const auto& one : {first, second}) {
    EXPECT_GE(one->at_ns, began + room_wait_ns_);
    EXPECT_LE(one->at_ns, began + room_wait_ns_ + 2 * SpaceQueue::kLookNs);
  }
  answer_all();
}

TEST_F(SpaceQueueTest, as_long_as_room_comes_nobody_in_line_is_refused) {
  fill();
  const auto offloaded = offload(0, kSlots);
  // All stores queue at the same time. A quarter of the host, two blocks, is released every 0.9 s.
  std::vector<std::shared_ptr<Outcome>> stored;
  for (uint64_t n = 0; n < 4; ++n) stored.push_back(store(100 * (n + 1), 2));
  sim_.run_for(1'000'000);
  std::vector<SlotId> kept;  // stored blocks stay
  for (uint64_t n = 0; n < 4; ++n) {
    EXPECT_EQ(manager_->host().space_queue().waiting(), 4 - n);
    sim_.run_for(900'000'000);
    ASSERT_FALSE(pace_->kept.empty());
    pace_->answer_put();
    wait_for(stored[n]);
    EXPECT_EQ(stored[n]->status, Code::ok);
    for (const SlotId slot : hold(100 * (n + 1), 2)) kept.push_back(slot);
  }
  manager_->host().release(kept);
}

TEST_F(SpaceQueueTest, zero_refuses_at_once) {
  room_wait_ns_ = 0;
  fill();
  const auto offloaded = offload(0, kSlots);
  const uint64_t before = now();
  const auto stored = store(100, 2);
  wait_for(stored);
  EXPECT_EQ(stored->status, Code::no_room);
  EXPECT_EQ(stored->at_ns, before);
}

TEST_F(SpaceQueueTest, a_deadline_ends_the_wait) {
  fill();
  const auto offloaded = offload(0, kSlots);
  StoreRequest request;
  request.deadline_ns = now() + 5'000'000;
  const auto stored = store(100, 2, std::move(request));
  wait_for(stored);
  EXPECT_EQ(stored->status, Code::deadline);
  EXPECT_EQ(stored->at_ns, now());
  EXPECT_EQ(manager_->host().space_queue().waiting(), 0U);
  EXPECT_EQ(refused(), 0U);
  EXPECT_EQ(manager_->counters().room_wait.sum(), 5'000'000U);
}

TEST_F(SpaceQueueTest, a_cancel_ends_the_wait_and_the_next_goes_on) {
  fill();
  const auto offloaded = offload(0, kSlots);
  const auto first = store(100, 2);
  const auto second = store(200, 2);
  sim_.run_for(1'000'000);
  first->operation.lock()->cancel();
  wait_for(first);
  EXPECT_EQ(first->status, Code::cancelled);
  EXPECT_FALSE(second->done);
  answer_all();
  ASSERT_TRUE(second->done);
  EXPECT_EQ(second->status, Code::ok);
  EXPECT_FALSE(resident(100));
}

TEST_F(SpaceQueueTest, room_goes_to_who_was_submitted_first) {
  fill();
  const auto offloaded = offload(0, kSlots);
  std::vector<std::shared_ptr<Outcome>> stored;
  for (uint64_t n = 0; n < 6; ++n) stored.push_back(store(100 * (n + 1), 1));
  sim_.run_for(50'000'000);
  EXPECT_EQ(manager_->host().space_queue().waiting(), 6U);
  answer_all();
  ASSERT_EQ(order_.size(), 6U);
  for (size_t n = 0; n < 6; ++n) {
    EXPECT_EQ(order_[n], stored[n].get());
    EXPECT_EQ(stored[n]->status, Code::ok);
  }
}

// The executor's threads take submissions in any order, so it is chance which store asks for slots first.
TEST_F(SpaceQueueTest, whoever_asks_while_others_wait_stands_behind_them) {
  fill();
  const auto offloaded = offload(0, 7);
  const auto large = store(100, 4);  // one slot is free for it, three are not
  sim_.run_for(1'000'000);
  const auto later = store(200, 1);
  sim_.run_for(1'000'000);
  EXPECT_EQ(manager_->host().space_queue().waiting(), 2U);
  pace_->answer_put();
  sim_.run_for(1'000'000);
  EXPECT_FALSE(large->done);  // two of its blocks are missing
  EXPECT_FALSE(later->done);
  answer_all();
  ASSERT_EQ(order_.size(), 2U);
  EXPECT_EQ(order_[0], large.get());
}

TEST_F(SpaceQueueTest, what_waits_at_its_quota_keeps_nobody_else_back) {
  make(AdmissionKind::all);
  cache_ = attach(ns_);
  const auto narrow = limited(2, block::OverQuota::evict);
  const auto narrow_cache = attach(narrow);
  const auto of_narrow = [&](uint64_t first) {
    StoreRequest request;
    request.cache = narrow_cache;
    return store(first, 2, std::move(request));
  };
  wait_for(of_narrow(100));  // its whole quota: on its way to the tier
  const auto second = of_narrow(200);
  const auto third = of_narrow(300);
  sim_.run_for(10'000'000);
  EXPECT_EQ(manager_->host().space_queue().waiting(), 2U);
  const auto other = store(400, 2);
  wait_for(other);
  EXPECT_EQ(other->status, Code::ok);
  EXPECT_FALSE(second->done);
  answer_all();
  ASSERT_TRUE(second->done && third->done);
  EXPECT_EQ(second->status, Code::ok);
  EXPECT_EQ(third->status, Code::ok);
  EXPECT_EQ(get(manager_->counters().refused_quota), 0U);
}

TEST_F(SpaceQueueTest, a_quota_that_rejects_does_so_at_once) {
  make(AdmissionKind::all);
  const auto narrow = limited(2, block::OverQuota::reject);
  cache_ = attach(narrow);
  wait_for(store(100, 2));
  const uint64_t before = now();
  const auto more = store(200, 3);
  wait_for(more);
  EXPECT_EQ(more->status, Code::over_quota);
  EXPECT_EQ(more->at_ns, before);
  EXPECT_EQ(get(manager_->counters().refused_quota), 3U);
}

struct Waiter : SpaceWaiter {
  void space_may_be_free() override { ++woken; }
  int woken = 0;
};

// After one store was chosen to end, another operation may begin that will release slots, or may get slots itself.
TEST_F(SpaceQueueTest, one_that_was_chosen_to_end_waits_on_where_something_moves_again) {
  make(AdmissionKind::on_request);
  SpaceQueue& queue = manager_->host().space_queue();
  const auto older = std::make_shared<Waiter>();
  const auto younger = std::make_shared<Waiter>();
  const uint64_t first = queue.place_of_store();
  const uint64_t second = queue.place_of_store();
  std::atomic<uint64_t>& operations = manager_->counters().operations;
  operations += 2;
  const auto look = [&queue](const std::shared_ptr<Waiter>& waiter, uint64_t place, bool holds) {
    return queue.refused(waiter, place, block::kSharedAccount, holds, Code::no_room, false);
  };
  EXPECT_EQ(look(older, first, false), SpaceQueue::Verdict::try_it);
  EXPECT_EQ(look(younger, second, true), SpaceQueue::Verdict::try_it);
  EXPECT_EQ(look(older, first, false), SpaceQueue::Verdict::wait);
  EXPECT_EQ(younger->woken, 1);  // woken to end
  ++operations;
  EXPECT_EQ(look(younger, second, true), SpaceQueue::Verdict::wait);
  --operations;
  EXPECT_EQ(look(older, first, false), SpaceQueue::Verdict::wait);
  EXPECT_EQ(younger->woken, 2);
  EXPECT_EQ(look(younger, second, true), SpaceQueue::Verdict::refused);
  queue.leave(first, false);
  queue.leave(second, false);
  operations -= 2;
}

// The younger store holds the slots that the older one needs, and waits for the older one.
TEST_F(SpaceQueueTest, of_stores_that_wait_for_each_other_the_youngest_ends) {
  fill();
  const std::vector<SlotId> held = hold(0, kSlots - 1);
  const auto offloaded = offload(0, 1);  // of a block that is held besides: it will free nothing
  const std::vector<SlotId> last = hold(kSlots - 1, 1);
  const auto first = store(200, 1);
  StoreRequest request;
  request.parent = key(kSlots - 1);
  const auto second = store(300, 1, std::move(request));
  sim_.run_for(1'000'000);
  manager_->host().release(last);
  sim_.run_for(50'000'000);
  EXPECT_FALSE(first->done);
  EXPECT_FALSE(second->done);
  answer_all();
  wait_for(first);
  wait_for(second);
  EXPECT_EQ(second->status, Code::no_room);
  EXPECT_EQ(first->status, Code::ok);
  manager_->host().release(held);
}

TEST_F(SpaceQueueTest, a_refused_store_ends_there_and_says_so_of_each_block) {
  fill();
  const std::vector<SlotId> held = hold(0, 5);
  const auto stored = store(100, 10);
  wait_for(stored);
  EXPECT_EQ(stored->status, Code::partial);
  EXPECT_EQ(stored->items_done, 3U);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(stored->items[i], static_cast<int32_t>(i < 3 ? Code::ok : Code::no_room)) << i;
  }
  EXPECT_EQ(refused(), 7U);
  manager_->host().release(held);
}

TEST_F(SpaceQueueTest, a_manager_that_closes_refuses_who_waits) {
  fill();
  const auto offloaded = offload(0, kSlots);
  const auto stored = store(100, 2);
  sim_.run_for(1'000'000);
  bool closed = false;
  manager_->shutdown([&] { closed = true; });
  sim_.run_for(2 * SpaceQueue::kLookNs);
  ASSERT_TRUE(stored->done);
  EXPECT_EQ(stored->status, Code::no_room);
  EXPECT_FALSE(closed);
  answer_all();
  EXPECT_TRUE(closed);
  cache_ = nullptr;
  manager_ = nullptr;
}

TEST_F(SpaceQueueTest, managed_blocks_do_not_wait) {
  fill();
  const auto offloaded = offload(0, kSlots);
  SlotId slot = kNoSlot;
  EXPECT_EQ(manager_->stack().allocate(block::kSharedAccount, {&slot, 1}, nullptr), Code::no_room);
}

}  // namespace
}  // namespace kvbm::manager::space_queue_test
