// Sizes of a load's requests to a tier: whole batches until the end for a store, which end with an object, and smaller
// ones towards the end for others.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "manager/operation/cache.h"
#include "manager/operation/load.h"
#include "manager/operation/lookup.h"
#include "manager/operation/move.h"
#include "support/paced_tier.h"
#include "support/small_manager.h"

namespace kvbm::manager::load_store_test {
namespace {

constexpr uint64_t kBytes = 1 << 20;
constexpr uint32_t kBlocks = 16;

class LoadStoreTest : public test::SmallManager {
 protected:
  class CountingTier final : public test::PacedTier {
   public:
    CountingTier(Executor& executor, std::vector<size_t>& asked, uint64_t ends_after)
        : PacedTier(executor, std::make_shared<test::Pace>()), asked_(asked), ends_after_(ends_after) {}
    void find(std::span<const Identity> ids, std::span<tier::Found> out, bool touch) noexcept override {
      PacedTier::find(ids, out, touch);
      for (size_t i = 0; i < ids.size(); ++i) {
        std::memcpy(&out[i].location, ids[i].key.bytes.data(), sizeof out[i].location);
        out[i].location += out[i].location < ends_after_ ? 1 : 1000;
      }
    }
    void get(std::unique_ptr<tier::GetBatch> batch) override {
      asked_.push_back(batch->items.size());
      PacedTier::get(std::move(batch));
    }

   private:
    std::vector<size_t>& asked_;
    const uint64_t ends_after_;
  };

  void adjust(Options& options) override {
    options.host.block_bytes = kBytes;
    options.host.capacity_bytes = 4096 + 2 * kBlocks * (kBytes + tier::HostArena::head_stride(kBytes));
    options.tiers[0].path.clear();
    options.tiers[0].url = url_;
    options.tiers[0].make = [this](TierIndex, FamilyTable&,
                                   tier::TierListener*) -> Result<std::unique_ptr<tier::Tier>> {
      return std::unique_ptr<tier::Tier>(std::make_unique<CountingTier>(sim_, asked_, ends_after_));
    };
  }

  // Loads blocks of 1 MiB, which only the tier has, into an engine's memory.
  void load_all() {
    make(AdmissionKind::on_request);
    std::vector<Key> keys;
    for (uint64_t n = 0; n < kBlocks; ++n) {
      put(n, kBytes);
      keys.push_back(key(n));
    }
    std::make_shared<OffloadOperation>(manager_->stack().keep(), TierIndex{1}, family_, keys, kNever)
        ->start([](const copy::Completion&) {});
    sim_.run_for(1'000'000'000);
    ASSERT_EQ(manager_->host().table().erase(family_, keys), kBlocks);
    std::vector<std::byte> memory(kBlocks * kBytes);
    layout::PageTensor tensor;
    tensor.base = memory.data();
    tensor.extent_bytes = memory.size();
    tensor.block_stride = tensor.page_bytes = kBytes;
    auto pages = layout::PageArrangement::make(kBlocks, {tensor});
    auto part = CachePart::opaque(ns_->plan({}).value(), std::move(pages).value(), 1);
    const PartPlan plan = ns_->plan({}).value();
    LoadRequest request;
    request.cache = Cache::create(manager_->stack().keep(), ns_, {std::move(part).value()}).value();
    request.match = look_up(manager_->stack().keep(), ns_, {&plan, 1}, keys, {});
    for (uint32_t i = 0; i < kBlocks; ++i) request.block_ids.push_back(i);
    request.n_ids = kBlocks;
    request.keep_below = true;
    bool done = false;
    std::make_shared<LoadOperation>(std::move(request))->start([&](const copy::Completion& completion) {
      EXPECT_EQ(completion.items_done, kBlocks);
      done = true;
    });
    ASSERT_TRUE(sim_.run_until([&] { return done; }));
    for (uint32_t n = 0; n < kBlocks; ++n) ASSERT_EQ(memory[n * kBytes], std::byte{static_cast<uint8_t>(n)});
  }

  std::string url_;
  uint64_t ends_after_ = kBlocks;  // an object ends after so many blocks
  std::vector<size_t> asked_;
};

TEST_F(LoadStoreTest, a_store_is_asked_for_4_MiB_at_a_time_to_the_end) {
  url_ = "test://";
  load_all();
  EXPECT_EQ(asked_, (std::vector<size_t>{4, 4, 4, 4}));
}

TEST_F(LoadStoreTest, a_batch_of_half_the_size_or_more_ends_with_an_object) {
  url_ = "test://";
  ends_after_ = 7;
  load_all();
  EXPECT_EQ(asked_, (std::vector<size_t>{4, 3, 4, 4, 1}));
}

TEST_F(LoadStoreTest, a_small_object_is_asked_for_with_the_next) {
  url_ = "test://";
  ends_after_ = 5;
  load_all();
  EXPECT_EQ(asked_, (std::vector<size_t>{4, 4, 4, 4}));
}

TEST_F(LoadStoreTest, another_tier_is_asked_for_less_towards_the_end) {
  load_all();
  ASSERT_FALSE(asked_.empty());
  EXPECT_EQ(asked_.back(), 1U);
}

}  // namespace
}  // namespace kvbm::manager::load_store_test
