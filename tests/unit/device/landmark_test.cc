// Streams of the engine that wait for the marks of a batch: by a word on the device, or by the event of an issued part.
#include "device/transfer/landmark.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "device/transfer/transfers.h"
#include "support/transfer_world.h"

namespace kvbm::device::landmark_test {
namespace {

using test::Outcome;
using test::TransferWorld;
using Bytes = std::vector<std::byte>;

// A stream of the engine that reads layer for layer what lands.
struct Reader {
  explicit Reader(TransferWorld& w) : world(w), stream(w.cuda.make_stream(1)), seen(TransferWorld::kBytes) {}
  void read(const LeafMove& leaf) {
    const Device::Scope scope(*world.device);
    const auto from = reinterpret_cast<uintptr_t>(leaf.device.data);
    const auto to = world.cuda.allocate(1, leaf.device.total());
    ASSERT_EQ(world.cuda.driver().cuMemcpyAsync(to, from, leaf.device.total(), stream), kCuSuccess);
    copies.emplace_back(leaf, reinterpret_cast<const std::byte*>(to));
  }
  TransferWorld& world;
  CuStream stream;
  Bytes seen;
  std::vector<std::pair<LeafMove, const std::byte*>> copies;
};

TEST(Landmarks, reach_marks_in_order_each_behind_its_leaves) {
  for (const int variant : {0, 1, 2, 3}) {
    const bool waits_first = variant % 2 == 0;
    TransferWorld world;
    TransferOptions options = TransferWorld::small_options();
    options.plan.mark_bytes = 8U << 10;
    options.plan.copies_behind_waits = variant >= 2;
    ASSERT_TRUE(world.open(options).ok());
    TransferBatch batch;
    batch.leaves = world.make_leaves(40, 1U << 20, 20, true);
    TransferWorld::expect_records(batch.leaves);
    const std::vector<LeafMove> leaves = batch.leaves;
    batch.landmark = world.transfers->landmark();
    ASSERT_NE(batch.landmark, nullptr);
    const auto landmark = batch.landmark;
    for (size_t i = 0; i < leaves.size(); i += 3) batch.marks.push_back({i + 1, i + 1});
    batch.marks.push_back({leaves.size(), leaves.size()});
    const std::vector<TransferBatch::Mark> marks = batch.marks;
    Reader reader(world);
    const auto read_all = [&] {
      size_t from = 0;
      for (const TransferBatch::Mark& mark : marks) {
        ASSERT_TRUE(world.transfers->wait_on(landmark, mark.value, reader.stream).ok());
        for (; from < mark.leaf_count; ++from) reader.read(leaves[from]);
      }
    };
    if (waits_first) read_all();
    Outcome outcome = world.scatter(std::move(batch));
    if (!waits_first) read_all();
    ASSERT_EQ(outcome.wait(), Code::ok);
    world.cuda.synchronize(reader.stream);
    ASSERT_EQ(reader.copies.size(), leaves.size());
    for (const auto& [leaf, seen] : reader.copies) ASSERT_EQ(std::memcmp(seen, leaf.record, leaf.device.total()), 0);
  }
}

// The CPU blocks until a part was given to the driver, and the stream then waits for that part's event: no word of
// memory is written or waited for.
TEST(Landmarks, that_are_issued_are_waited_for_by_events) {
  for (const bool waits_first : {true, false}) {
    TransferWorld world;
    TransferOptions options = TransferWorld::small_options();
    options.plan.mark_bytes = 8U << 10;
    ASSERT_TRUE(world.open(options).ok());
    TransferBatch batch;
    batch.leaves = world.make_leaves(40, 1U << 20, 20, true);
    TransferWorld::expect_records(batch.leaves);
    const std::vector<LeafMove> leaves = batch.leaves;
    batch.landmark = world.transfers->landmark(LandmarkKind::issued);
    ASSERT_NE(batch.landmark, nullptr);
    const auto landmark = batch.landmark;
    for (size_t i = 0; i < leaves.size(); i += 3) batch.marks.push_back({i + 1, i + 1});
    batch.marks.push_back({leaves.size(), leaves.size()});
    const std::vector<TransferBatch::Mark> marks = batch.marks;
    Reader reader(world);
    std::atomic<bool> submitted{false};
    std::thread engine;
    const auto read_all = [&] {
      size_t from = 0;
      for (const TransferBatch::Mark& mark : marks) {
        ASSERT_TRUE(world.transfers->wait_on(landmark, mark.value, reader.stream).ok());
        ASSERT_TRUE(submitted) << "it did not block";
        for (; from < mark.leaf_count; ++from) reader.read(leaves[from]);
      }
    };
    if (waits_first) engine = std::thread(read_all);
    submitted = true;
    Outcome outcome = world.scatter(std::move(batch));
    if (!waits_first) engine = std::thread(read_all);
    engine.join();
    ASSERT_EQ(outcome.wait(), Code::ok);
    world.cuda.synchronize(reader.stream);
    ASSERT_EQ(reader.copies.size(), leaves.size());
    for (const auto& [leaf, seen] : reader.copies) ASSERT_EQ(std::memcmp(seen, leaf.record, leaf.device.total()), 0);
    EXPECT_EQ(world.cuda.calls("cuStreamWaitValue64"), 0U);
    EXPECT_EQ(world.cuda.calls("cuStreamWriteValue64"), 0U);
  }
}

TEST(Landmarks, that_are_issued_let_the_caller_go_on_when_nothing_will_come) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const CuStream stream = world.cuda.make_stream(1);
  const auto raised = world.transfers->landmark(LandmarkKind::issued);
  std::atomic<bool> told{false};
  std::thread engine([&] {
    EXPECT_TRUE(world.transfers->wait_on(raised, 5, stream).ok());
    EXPECT_TRUE(told);
  });
  told = true;
  world.transfers->raise(*raised, 5);
  engine.join();
  // A batch that the driver refuses.
  const auto failed = world.transfers->landmark(LandmarkKind::issued);
  std::thread other([&] { EXPECT_TRUE(world.transfers->wait_on(failed, 1, stream).ok()); });
  world.cuda.fail("cuLaunchKernel", 1, kCuInvalidValue);
  TransferBatch batch;
  batch.leaves = world.make_leaves(3, 1U << 20, 0, true);
  batch.landmark = failed;
  batch.marks = {{batch.leaves.size(), 1}};
  EXPECT_EQ(world.scatter(std::move(batch)).wait(), Code::internal);
  other.join();
  // A device that is lost.
  const auto lost = world.transfers->landmark(LandmarkKind::issued);
  std::thread last([&] { (void)world.transfers->wait_on(lost, 1, stream); });
  world.cuda.lose(1);
  TransferBatch never;
  never.leaves = world.make_leaves(3, 1U << 20, 0, true);
  never.landmark = lost;
  never.marks = {{never.leaves.size(), 1}};
  EXPECT_EQ(world.scatter(std::move(never)).wait(), Code::tier_disabled);
  last.join();
}

TEST(Landmarks, reach_marks_without_leaves_behind_earlier_batches) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const auto landmark = world.transfers->landmark();
  Reader reader(world);
  TransferBatch first;
  first.leaves = world.make_leaves(30, 2U << 20, 0, true);
  TransferWorld::expect_records(first.leaves);
  const std::vector<LeafMove> leaves = first.leaves;
  TransferBatch second;
  second.landmark = landmark;
  second.marks = {{0, 7}};
  ASSERT_TRUE(world.transfers->wait_on(landmark, 7, reader.stream).ok());
  reader.read(leaves.back());
  Outcome a = world.scatter(std::move(first));
  Outcome b = world.scatter(std::move(second));
  EXPECT_EQ(b.wait(), Code::ok);
  EXPECT_EQ(a.wait(), Code::ok);
  world.cuda.synchronize(reader.stream);
  EXPECT_EQ(std::memcmp(reader.copies[0].second, leaves.back().record, leaves.back().device.total()), 0);
}

}  // namespace
}  // namespace kvbm::device::landmark_test
