// Loads and prefetches where offloads, matches or quotas hold the host's memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/io/file.h"
#include "manager/operation/cache.h"
#include "manager/operation/load.h"
#include "manager/operation/lookup.h"
#include "manager/operation/move.h"
#include "manager/operation/store.h"
#include "manager/stack/landing_room.h"
#include "support/paced_tier.h"
#include "support/small_manager.h"

namespace kvbm::manager::load_room_test {
namespace {

// Eight slots over a tier that has stored what it is sent when the test says so. Block n is n in every byte. Blocks 0
// to 7 lie in the tier alone, 8 to 15 in the host.
class LoadRoomTest : public test::SmallManager {
 protected:
  struct Outcome {
    bool done = false;
    Code status = Code::internal;
    uint64_t items_done = 0;
    uint64_t at_ns = 0;
    std::vector<int32_t> items;
    std::vector<std::byte> memory;
    std::shared_ptr<Cache> cache;
  };

  void adjust(Options& options) override {
    options.tiers[0].path.clear();
    options.tiers[0].make = [this](TierIndex, FamilyTable&,
                                   tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
      return std::unique_ptr<tier::Tier>(std::make_unique<test::PacedTier>(sim_, pace_));
    };
  }

  void fill(AdmissionKind admission = AdmissionKind::on_request) {
    make(admission);
    for (uint64_t n = 0; n < kSlots; ++n) put(n);
    offload(0, kSlots);
    sim_.run_for(1'000'000);
    leave_host(0, kSlots);
    for (uint64_t n = 0; n < kSlots; ++n) put(kSlots + n);
    pace_->keeps_puts = true;
  }

  // Makes blocks 8 to 15 those of the host alone, above a tier that gets only what the host evicts. It has 0 to 7.
  void fill_above_write_back() {
    make(AdmissionKind::on_eviction);
    for (uint64_t n = 0; n < kSlots; ++n) put(n);
    offload(0, kSlots);
    std::vector<SlotId> all(kSlots);
    ASSERT_EQ(manager_->stack().allocate(block::kSharedAccount, all, nullptr), Code::ok);
    manager_->host().release(all);
    pace_->keeps_puts = true;
    for (uint64_t n = 0; n < kSlots; ++n) put(kSlots + n);
  }

  // Evicts blocks from the host, so that only the tier has them.
  void leave_host(uint64_t first, size_t count) {
    std::vector<Key> keys;
    for (size_t i = 0; i < count; ++i) keys.push_back(key(first + i));
    EXPECT_EQ(manager_->host().table().erase(family_, keys), count);
  }

  std::shared_ptr<Cache> attach(std::vector<std::byte>& memory, const std::shared_ptr<Namespace>& ns) {
    memory.resize(kEngineBlocks * kBlock);
    layout::PageTensor tensor;
    tensor.base = memory.data();
    tensor.extent_bytes = memory.size();
    tensor.block_stride = kBlock;
    tensor.page_bytes = kBlock;
    auto pages = layout::PageArrangement::make(kEngineBlocks, {tensor});
    auto part = CachePart::opaque(ns->plan({}).value(), std::move(pages).value(), 1);
    return Cache::create(manager_->stack().keep(), ns, {std::move(part).value()}).value();
  }

  std::shared_ptr<Outcome> outcome(size_t count, const std::shared_ptr<Namespace>& ns) {
    auto out = std::make_shared<Outcome>();
    out->items.assign(count, 12345);
    out->cache = attach(out->memory, ns);
    return out;
  }
  template <class Op>
  void start(const std::shared_ptr<Outcome>& out, std::shared_ptr<Op> operation) {
    operation->start([this, out](const copy::Completion& completion) {
      EXPECT_FALSE(out->done);
      out->done = true;
      out->status = static_cast<Code>(completion.status);
      out->items_done = completion.items_done;
      out->at_ns = sim_.clock().now_ns();
    });
  }

  std::shared_ptr<Match> find(uint64_t first, size_t count, const std::shared_ptr<Namespace>& ns) {
    const PartPlan plan = ns->plan({}).value();
    std::vector<Key> keys;
    for (size_t i = 0; i < count; ++i) keys.push_back(key(first + i));
    return look_up(manager_->stack().keep(), ns, {&plan, 1}, keys, {});
  }

  std::shared_ptr<Outcome> load(uint64_t first, size_t count, LoadRequest request = {},
                                std::shared_ptr<Namespace> ns = nullptr) {
    if (ns == nullptr) ns = ns_;
    auto out = outcome(count, ns);
    request.cache = out->cache;
    request.match = find(first, count, ns);
    for (size_t i = 0; i < count; ++i) request.block_ids.push_back(static_cast<uint32_t>(i));
    request.n_ids = count;
    request.item_status = out->items;
    start(out, std::make_shared<LoadOperation>(std::move(request)));
    return out;
  }

  std::shared_ptr<Outcome> prefetch(uint64_t first, size_t count, uint64_t deadline_ns = kNever) {
    auto out = outcome(count, ns_);
    start(out,
          std::make_shared<PrefetchOperation>(manager_->stack().keep(), find(first, count, ns_), count, deadline_ns));
    return out;
  }

  std::shared_ptr<Outcome> store(uint64_t first, size_t count, std::shared_ptr<Namespace> ns = nullptr) {
    auto out = outcome(count, ns == nullptr ? ns_ : ns);
    StoreRequest request;
    request.cache = out->cache;
    for (size_t i = 0; i < count; ++i) {
      std::memset(out->memory.data() + i * kBlock, static_cast<int>(first + i), kBlock);
      request.keys.push_back(key(first + i));
      request.block_ids.push_back(static_cast<uint32_t>(i));
    }
    request.item_status = out->items;
    start(out, std::make_shared<StoreOperation>(std::move(request)));
    return out;
  }

  // Sends the blocks to the tier by name: they are held until it has them.
  void offload(uint64_t first, size_t count) {
    std::vector<Key> keys;
    for (size_t i = 0; i < count; ++i) keys.push_back(key(first + i));
    std::make_shared<OffloadOperation>(manager_->stack().keep(), TierIndex{1}, family_, std::move(keys), kNever)
        ->start([](const copy::Completion&) {});
    sim_.run_for(1'000'000);
  }
  void answer_all() {
    sim_.run_for(1'000'000);
    while (!pace_->kept.empty()) {
      pace_->answer_put();
      sim_.run_for(1'000'000);
    }
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
  // Expects that every block was loaded with the right bytes.
  void came(const Outcome& out, uint64_t first, size_t count) {
    ASSERT_TRUE(out.done);
    EXPECT_EQ(out.status, Code::ok);
    EXPECT_EQ(out.items_done, count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(out.items[i], 0) << i;
      const auto from = out.memory.begin() + static_cast<ptrdiff_t>(i * kBlock);
      const auto byte = static_cast<std::byte>(first + i);
      EXPECT_TRUE(std::all_of(from, from + kBlock, [byte](std::byte b) { return b == byte; })) << "block " << first + i;
    }
  }
  uint64_t past_host() { return get(manager_->counters().load_staged); }
  uint64_t failed(LoadFailure why) { return get(manager_->counters().load_failed[static_cast<size_t>(why)]); }

  void TearDown() override {
    pace_->keeps_puts = false;
    if (manager_ != nullptr) {
      answer_all();
      EXPECT_EQ(manager_->host().space_queue().waiting(), 0U);
      EXPECT_EQ(manager_->host().space_queue().waiting_prefetches(), 0U);
      EXPECT_EQ(manager_->host().landing_staging().used_bytes(), 0U);
      EXPECT_EQ(get(manager_->counters().operations), 0U);
    }
    test::SmallManager::TearDown();
  }

  static constexpr uint32_t kEngineBlocks = 16;
  const std::shared_ptr<test::Pace> pace_ = std::make_shared<test::Pace>();
};

TEST_F(LoadRoomTest, a_load_needs_no_slot_where_offloads_hold_all_of_them) {
  fill();
  offload(8, kSlots);
  const auto loaded = load(0, 8);
  wait_for(loaded);
  came(*loaded, 0, 8);
  EXPECT_FALSE(pace_->kept.empty()) << "the offload has ended: nothing was held";
  EXPECT_EQ(past_host(), 8U);
  EXPECT_FALSE(resident(0));
  EXPECT_TRUE(resident(8));
}

TEST_F(LoadRoomTest, what_others_hold_for_good_keeps_no_load_back) {
  fill();
  const auto held = find(8, kSlots, ns_);
  for (const bool keep_below : {false, true}) {
    LoadRequest request;
    request.keep_below = keep_below;
    const auto loaded = load(0, 8, std::move(request));
    wait_for(loaded);
    came(*loaded, 0, 8);
  }
  EXPECT_EQ(past_host(), 16U);
}

TEST_F(LoadRoomTest, what_finds_a_slot_stays_in_the_host) {
  fill();
  const auto held = find(8, 6, ns_);
  const auto loaded = load(0, 8);
  wait_for(loaded);
  came(*loaded, 0, 8);
  EXPECT_LE(past_host(), 6U);
  EXPECT_GE(past_host(), 1U);
  bool any = false;
  for (uint64_t n = 0; n < 8; ++n) any = any || resident(n);
  EXPECT_TRUE(any);
}

TEST_F(LoadRoomTest, loads_end_without_a_slot_and_without_staging) {
  fill();
  offload(8, kSlots);
  std::vector<std::shared_ptr<StagedBlock>> taken;
  while (auto block = manager_->host().landing_staging().take(false)) taken.push_back(std::move(block));
  ASSERT_FALSE(taken.empty());
  const auto one = load(0, 8);
  const auto other = load(0, 8);
  wait_for(one);
  wait_for(other);
  came(*one, 0, 8);
  came(*other, 0, 8);
  EXPECT_EQ(past_host(), 16U);
}

TEST_F(LoadRoomTest, a_load_that_is_cut_off_gives_everything_back) {
  fill();
  offload(8, kSlots);
  pace_->latency_ns = 50'000'000;
  LoadRequest request;
  request.deadline_ns = sim_.clock().now_ns() + 10'000'000;
  const auto loaded = load(0, 8, std::move(request));
  wait_for(loaded);
  EXPECT_EQ(loaded->status, Code::deadline);
  EXPECT_EQ(failed(LoadFailure::deadline), 8U);
  sim_.run_for(100'000'000);
}

TEST_F(LoadRoomTest, what_is_wrong_is_not_served_past_the_host_either) {
  fill();
  offload(8, kSlots);
  pace_->damages = true;
  const auto loaded = load(0, 4);
  wait_for(loaded);
  EXPECT_EQ(loaded->items_done, 0U);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(loaded->items[i], static_cast<int32_t>(Code::damaged));
  EXPECT_EQ(failed(LoadFailure::damaged), 4U);
  pace_->damages = false;
  EXPECT_EQ(find(0, 4, ns_), nullptr) << "the tier was told";
}

TEST_F(LoadRoomTest, a_full_quota_keeps_no_load_back) {
  make(AdmissionKind::all);
  NamespaceOptions who;
  who.model = "limited";
  const auto narrow = manager_->namespaces().open(std::move(who)).value();
  ASSERT_TRUE(manager_->namespaces()
                  .set_quota(*narrow, 2 * manager_->host().arena().slot_bytes(), block::OverQuota::evict)
                  .ok());
  for (const uint64_t first : {uint64_t{20}, uint64_t{22}}) {
    const auto stored = store(first, 2, narrow);
    wait_for(stored);
    ASSERT_EQ(stored->items_done, 2U);
    flush();
  }
  const auto held = find(22, 2, narrow);
  ASSERT_NE(held, nullptr);
  const auto loaded = load(20, 2, {}, narrow);
  wait_for(loaded);
  came(*loaded, 20, 2);
  EXPECT_EQ(past_host(), 2U);
}

TEST_F(LoadRoomTest, a_prefetch_waits_for_room_and_goes_before_stores) {
  fill();
  offload(8, kSlots);
  const auto stored = store(100, 2);
  sim_.run_for(1'000'000);
  const auto fetched = prefetch(0, 2);
  sim_.run_for(50'000'000);
  EXPECT_FALSE(fetched->done);
  EXPECT_EQ(manager_->host().space_queue().waiting(), 2U);
  EXPECT_EQ(manager_->host().space_queue().waiting_prefetches(), 1U);
  pace_->latency_ns = 10'000'000;
  pace_->answer_put();  // a quarter of the host: two blocks
  sim_.run_for(5'000'000);
  EXPECT_EQ(manager_->host().space_queue().waiting_prefetches(), 0U);
  EXPECT_FALSE(stored->done) << "it came first, and is not the first to have room";
  wait_for(fetched);
  EXPECT_EQ(fetched->items_done, 2U);
  answer_all();
  wait_for(stored);
  EXPECT_EQ(stored->status, Code::ok);
  EXPECT_EQ(manager_->counters().prefetch_room_wait.count(), 1U);
  EXPECT_GE(manager_->counters().prefetch_room_wait.sum(), 50'000'000U);
}

TEST_F(LoadRoomTest, a_prefetch_of_more_than_there_is_room_for_comes_in_parts) {
  fill();
  auto held = find(8, 6, ns_);
  const auto fetched = prefetch(0, 8);
  wait_for(fetched);
  EXPECT_EQ(fetched->items_done, 8U);
  EXPECT_EQ(get(manager_->counters().prefetch_refused), 0U);
}

TEST_F(LoadRoomTest, a_prefetch_is_refused_when_nothing_is_on_its_way) {
  fill();
  const auto held = find(8, kSlots, ns_);
  const uint64_t before = sim_.clock().now_ns();
  const auto fetched = prefetch(0, 4);
  wait_for(fetched);
  EXPECT_EQ(fetched->at_ns, before);
  EXPECT_EQ(fetched->items_done, 0U);
  EXPECT_EQ(get(manager_->counters().prefetch_refused), 4U);
}

TEST_F(LoadRoomTest, a_deadline_ends_the_wait_of_a_prefetch) {
  fill();
  offload(8, kSlots);
  const uint64_t deadline = sim_.clock().now_ns() + 5'000'000;
  const auto fetched = prefetch(0, 4, deadline);
  wait_for(fetched);
  EXPECT_EQ(fetched->status, Code::deadline);
  EXPECT_EQ(fetched->at_ns, deadline);
  EXPECT_EQ(manager_->host().space_queue().waiting(), 0U);
  EXPECT_EQ(get(manager_->counters().prefetch_refused), 0U);
}

TEST_F(LoadRoomTest, offloads_give_up_what_they_only_queue_for_a_prefetch) {
  make(AdmissionKind::all);
  for (uint64_t n = 0; n < 2; ++n) put(n);
  flush();
  leave_host(0, 2);
  pace_->keeps_puts = true;
  for (uint64_t n = 8; n < 16; ++n) put(n);  // two are being written, four are queued and held, two are not
  sim_.run_for(1'000'000);
  ASSERT_FALSE(pace_->kept.empty());
  ASSERT_FALSE(resident(0));
  std::vector<SlotId> held;
  for (uint64_t n = 8; n < 16; ++n) {
    const SlotId slot = manager_->host().acquire_one(family_, key(n));
    if (slot == kNoSlot) continue;
    // Counts blocks that only this reference holds, and not the offloader.
    if (manager_->host().table().info(slot).references == 1) {
      held.push_back(slot);
    } else {
      manager_->host().release({&slot, 1});
    }
  }
  const size_t unanswered = pace_->kept.size();
  const auto fetched = prefetch(0, 2);
  wait_for(fetched);
  EXPECT_EQ(fetched->items_done, 2U);
  EXPECT_TRUE(resident(0));
  EXPECT_EQ(pace_->kept.size(), unanswered) << "no offload has ended for it";
  manager_->host().release(held);
}

TEST_F(LoadRoomTest, a_prefetch_takes_no_block_that_is_still_to_be_written_down) {
  fill_above_write_back();
  const auto fetched = prefetch(0, 2);
  sim_.run_for(50'000'000);
  EXPECT_FALSE(fetched->done);
  for (uint64_t n = 0; n < kSlots; ++n) EXPECT_TRUE(resident(kSlots + n)) << kSlots + n;
  pace_->keeps_puts = false;
  answer_all();
  wait_for(fetched);
  EXPECT_EQ(fetched->items_done, 2U);
  EXPECT_EQ(get(manager_->counters().offload_skipped), 0U);
}

TEST_F(LoadRoomTest, a_prefetch_evicts_what_the_tier_below_refuses_for_as_long_as_it_waits) {
  fill_above_write_back();
  pace_->keeps_puts = false;
  pace_->refuses = Code::no_room;
  answer_all();
  const uint64_t before = sim_.clock().now_ns();
  const auto fetched = prefetch(0, 2);
  wait_for(fetched);
  EXPECT_EQ(fetched->items_done, 2U);
  EXPECT_GE(fetched->at_ns, before + manager_->host().options().room_wait_ns);
}

TEST_F(LoadRoomTest, a_load_past_a_full_host_has_half_of_the_host_on_its_way) {
  fill();
  const auto held = find(8, kSlots, ns_);
  pace_->latency_ns = 1'000'000'000;
  const auto loaded = load(0, 8);
  sim_.run_for(1'000'000);
  EXPECT_EQ(manager_->host().landing_staging().used_bytes(), kSlots / 2 * kBlock);
  wait_for(loaded);
  came(*loaded, 0, 8);
  EXPECT_EQ(past_host(), 8U);
}

TEST(LandingStaging, is_half_of_the_host_and_little_of_a_large_one) {
  constexpr uint64_t kMiB = 1 << 20;
  EXPECT_EQ(LandingStaging::limit_for(8 * kMiB), 4 * kMiB);
  EXPECT_EQ(LandingStaging::limit_for(32 * kMiB), 16 * kMiB);
  EXPECT_EQ(LandingStaging::limit_for(1024 * kMiB), 16 * kMiB);
}

TEST(LandingStaging, has_none_within_a_limit_below_a_block) {
  const auto staging = std::make_shared<LandingStaging>(4096, 8192, true);
  EXPECT_EQ(staging->take(false), nullptr);
  EXPECT_NE(staging->take(true), nullptr);
}

TEST(LandingStaging, has_a_limit_and_one_block_beyond_it) {
  constexpr uint64_t kBlock = 8192;
  std::shared_ptr<StagedBlock> last;
  {
    const auto staging = std::make_shared<LandingStaging>(2 * kBlock, kBlock, true);
    auto a = staging->take(false);
    const auto b = staging->take(false);
    ASSERT_TRUE(a != nullptr && b != nullptr);
    EXPECT_EQ(b->bytes.data() - a->bytes.data(), static_cast<ptrdiff_t>(kBlock)) << "blocks do not lie in one mapping";
    EXPECT_EQ(staging->used_bytes(), 2 * kBlock);
    EXPECT_EQ(staging->take(false), nullptr);
    last = staging->take(true);
    ASSERT_NE(last, nullptr);
    EXPECT_EQ(last->bytes.size(), kBlock);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(last->bytes.data()) % kIoAlign, 0U);
    EXPECT_EQ(staging->used_bytes(), 2 * kBlock);
    a = nullptr;
    EXPECT_EQ(staging->used_bytes(), kBlock);
    EXPECT_NE(staging->take(false), nullptr);
  }
  std::memset(last->bytes.data(), 1, last->bytes.size());  // the block outlives its staging
}

}  // namespace
}  // namespace kvbm::manager::load_room_test
