// Movers of leaves that work at once: what is gathered, scattered, hashed and compared.
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "codec/hash/leaf_hash.h"
#include "codec/record/record.h"
#include "layout/arrangement.h"
#include "manager/operation/cache.h"
#include "manager/operation/leaf_mover.h"

namespace kvbm::manager::leaf_mover_test {
namespace {

constexpr uint64_t kPage = 1024;
constexpr uint32_t kTensors = 2;
constexpr uint32_t kBlocks = 3;

class LeafMoverTest : public ::testing::Test {
 protected:
  LeafMoverTest() : memory_(kTensors * kBlocks * kPage), part_(part_in(memory_)) {
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i * 7 % 251);
  }

  // Opaque pages, a leaf each; the tensors lie one after the other.
  static CachePart part_in(std::vector<std::byte>& memory) {
    std::vector<layout::PageTensor> tensors(kTensors);
    for (uint32_t t = 0; t < kTensors; ++t) {
      tensors[t].base = memory.data() + t * kBlocks * kPage;
      tensors[t].extent_bytes = kBlocks * kPage;
      tensors[t].block_stride = kPage;
      tensors[t].page_bytes = kPage;
    }
    auto pages = layout::PageArrangement::make(kBlocks, std::move(tensors));
    return CachePart::opaque(PartPlan{}, std::move(pages).value(), 1).value();
  }
  [[nodiscard]] LeafPlace place(uint32_t leaf, uint32_t block) const {
    uint32_t unit = 0;
    uint32_t layer = 0;
    return {part_, leaf, part_.leaf(leaf, unit, layer), block, UINT32_MAX};
  }
  [[nodiscard]] ConstBytes page(uint32_t tensor, uint32_t block) const {
    return ConstBytes(memory_).subspan((tensor * kBlocks + block) * kPage, kPage);
  }

  std::vector<std::byte> memory_;
  const CachePart part_;
};

TEST_F(LeafMoverTest, a_gathered_record_is_hashed_and_a_scatter_compares_it_with_its_head) {
  std::vector<std::byte> payload(kTensors * kPage);
  LeafRecord record;
  record.payload = payload.data();
  std::vector<codec::Leaf> leaves;
  HostGather gather;
  for (uint32_t l = 0; l < kTensors; ++l) {
    const LeafMover::Added added = gather.add(0, record, place(l, 0));
    EXPECT_EQ(added.code, Code::ok);
    EXPECT_EQ(added.leaves, 1U);
    EXPECT_EQ(added.away, 0U);
    EXPECT_EQ(added.hash, codec::leaf_hash(page(l, 0)));
    leaves.push_back(place(l, 0).leaf);
    leaves.back().hash = added.hash;
  }
  codec::order_copies();
  codec::Header header;
  header.leaf_count = kTensors;
  header.raw_bytes = header.stored_bytes = payload.size();
  std::vector<std::byte> head(codec::head_bytes(kTensors, 0));
  ASSERT_TRUE(codec::encode_head(header, leaves, {}, head).ok());
  const auto view = codec::HeadView::parse(head);
  ASSERT_TRUE(view.ok());

  record.head = &view.value();
  HostScatter scatter;
  for (uint32_t l = 0; l < kTensors; ++l) {
    const LeafMover::Added added = scatter.add(0, record, place(l, 2));
    EXPECT_EQ(added.code, Code::ok);
    EXPECT_EQ(added.moved, kPage);
    EXPECT_EQ(std::memcmp(page(l, 2).data(), page(l, 0).data(), kPage), 0);
  }
  payload[kPage] ^= std::byte{1};  // the first byte of leaf 1
  EXPECT_EQ(scatter.add(0, record, place(0, 1)).code, Code::ok);
  EXPECT_EQ(scatter.add(0, record, place(1, 1)).code, Code::damaged);
  record.head = nullptr;  // compared by nothing
  EXPECT_EQ(scatter.add(0, record, place(1, 1)).code, Code::ok);
  EXPECT_EQ(page(1, 1)[0], payload[kPage]);
  codec::order_copies();
}

}  // namespace
}  // namespace kvbm::manager::leaf_mover_test
