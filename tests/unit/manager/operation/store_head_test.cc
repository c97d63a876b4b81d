// Stores of blocks with heads that have no room for all that they should state.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "manager/operation/cache.h"
#include "manager/operation/store.h"
#include "support/small_manager.h"

namespace kvbm::manager::store_head_test {
namespace {

// As many leaves as the head of a slot of 8 KiB has room for, without a position.
constexpr uint32_t kTensors = 9;
constexpr uint64_t kPage = 512;

class StoreHeadTest : public test::SmallManager {
 protected:
  // Stores one block and returns the outcome.
  Code store(uint64_t n, std::vector<codec::Position> positions) {
    std::vector<std::byte> memory(kTensors * kPage);
    std::vector<layout::PageTensor> tensors(kTensors);
    for (uint32_t t = 0; t < kTensors; ++t) {
      tensors[t].base = memory.data() + t * kPage;
      tensors[t].extent_bytes = tensors[t].page_bytes = kPage;
      tensors[t].block_stride = kPage;
    }
    auto pages = layout::PageArrangement::make(1, std::move(tensors));
    auto part = CachePart::opaque(ns_->plan({}).value(), std::move(pages).value(), 1);
    StoreRequest request;
    request.cache = Cache::create(manager_->stack().keep(), ns_, {std::move(part).value()}).value();
    request.keys = {key(n)};
    request.block_ids = {0};
    request.positions = std::move(positions);
    std::optional<Code> status;
    std::make_shared<StoreOperation>(std::move(request))->start([&](const copy::Completion& completion) {
      status = completion.status;
    });
    EXPECT_TRUE(sim_.run_until([&] { return status.has_value(); }));
    return status.value_or(Code::internal);
  }
  [[nodiscard]] bool is_there(uint64_t n) {
    const SlotId slot = manager_->host().acquire_one(family_, key(n));
    if (slot != kNoSlot) manager_->host().release({&slot, 1});
    return slot != kNoSlot;
  }
};

TEST_F(StoreHeadTest, a_block_with_no_room_for_its_position_is_refused_and_not_stored) {
  make(AdmissionKind::on_request);
  EXPECT_EQ(store(1, {}), Code::ok);
  EXPECT_TRUE(is_there(1));
  EXPECT_EQ(store(2, {codec::Position{}}), Code::invalid_argument);
  EXPECT_FALSE(is_there(2));
}

}  // namespace
}  // namespace kvbm::manager::store_head_test
