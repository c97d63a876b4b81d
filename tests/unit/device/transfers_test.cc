#include "device/transfer/transfers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codec/hash/leaf_hash.h"
#include "device/transfer/landmark.h"
#include "support/cuda_emulation/fake_kernels.h"
#include "support/transfer_world.h"

namespace kvbm::device::transfers_test {
namespace {

using test::Keepsake;
using test::Outcome;
using test::TransferWorld;
using Bytes = std::vector<std::byte>;

// Returns options that leave one path only.
TransferOptions only(Path path) {
  TransferOptions options = TransferWorld::small_options();
  constexpr uint64_t kNeverReached = 1ULL << 40;
  options.plan.mapped_bytes = path == Path::mapped ? kNeverReached : 0;
  options.plan.staged_run_bytes = 0;
  options.plan.straight_bytes = path == Path::straight ? 1 : kNeverReached;
  return options;
}

struct Way {
  const char* name;
  TransferOptions options;
  uint32_t loose;  // records that are not pinned, of 100
  bool flat;       // pages in long pieces
};

std::vector<Way> ways() {
  TransferOptions shared = TransferWorld::small_options();
  shared.plan.always_mapped = true;
  return {{"mapped", only(Path::mapped), 0, false},
          {"mapped, bounced", only(Path::mapped), 100, false},
          {"staged", only(Path::staged), 0, false},
          {"staged, bounced", only(Path::staged), 100, false},
          {"straight", only(Path::straight), 0, true},
          {"straight, bounced", only(Path::straight), 100, true},
          {"straight and staged", only(Path::straight), 40, false},
          {"by size", TransferWorld::small_options(), 30, true},
          {"one memory", shared, 20, true}};
}

uint64_t leaves_on(const TransferStats& stats, const std::string& name) {
  if (name.starts_with("mapped") || name == "one memory") return stats.mapped_leaves;
  if (name.starts_with("staged")) return stats.staged_leaves;
  if (name.starts_with("straight")) return stats.straight_leaves;
  return stats.leaves;
}

TEST(Transfers, gather_every_byte_on_every_way) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    TransferWorld world;
    const Status opened = world.open(way.options);
    ASSERT_TRUE(opened.ok()) << opened.message();
    TransferBatch batch;
    batch.leaves = world.make_leaves(200, 700U << 10, way.loose, way.flat);
    const std::vector<LeafMove> leaves = batch.leaves;
    // Expected memory afterwards, with nothing else changed.
    Bytes pinned(world.pinned, world.pinned + TransferWorld::kBytes);
    Bytes loose = world.loose;
    for (const LeafMove& leaf : leaves) {
      const bool in_pinned = leaf.record >= world.pinned && leaf.record < world.pinned + TransferWorld::kBytes;
      const Bytes bytes = TransferWorld::pages_of(leaf);
      std::byte* const to =
          in_pinned ? pinned.data() + (leaf.record - world.pinned) : loose.data() + (leaf.record - world.loose.data());
      std::memcpy(to, bytes.data(), bytes.size());
    }
    const Bytes pages(world.pages, world.pages + TransferWorld::kBytes);
    Outcome outcome = world.gather(std::move(batch));
    ASSERT_EQ(outcome.wait(), Code::ok);
    ASSERT_EQ(outcome.hashes.size(), leaves.size());
    for (size_t i = 0; i < leaves.size(); ++i) {
      ASSERT_EQ(outcome.hashes[i], codec::leaf_hash(TransferWorld::pages_of(leaves[i]))) << "leaf " << i;
      ASSERT_EQ(outcome.good[i], 1);
    }
    EXPECT_TRUE(std::equal(pinned.begin(), pinned.end(), world.pinned));
    EXPECT_TRUE(loose == world.loose);
    EXPECT_TRUE(std::equal(pages.begin(), pages.end(), world.pages));
    const TransferStats stats = world.transfers->gathers();
    EXPECT_EQ(stats.leaves, leaves.size());
    EXPECT_EQ(stats.batches, 1U);
    EXPECT_GT(leaves_on(stats, way.name), 0U);
    EXPECT_EQ(stats.bounced_leaves > 0, way.loose > 0);
    EXPECT_EQ(outcome.calls(), 1);
  }
}

// Records cross from one registered range into the next, which no copy may do.
TEST(Transfers, neighbours_in_two_registered_ranges_are_copied_apart) {
  for (const Path path : {Path::mapped, Path::staged, Path::straight}) {
    SCOPED_TRACE(static_cast<int>(path));
    TransferWorld world;
    world.range = 16U << 10;
    ASSERT_TRUE(world.open(only(path)).ok());
    std::vector<LeafMove> leaves;
    for (size_t at = 0; at + 6144 <= TransferWorld::kBytes / 2; at += 6144) {  // two of three borders cut a leaf
      LeafMove leaf;
      leaf.device.data = world.pages + at;
      leaf.device.bytes = 6144;
      leaf.record = world.pinned + at;
      leaves.push_back(leaf);
    }
    TransferBatch out;
    out.leaves = leaves;
    ASSERT_EQ(world.gather(std::move(out)).wait(), Code::ok);
    EXPECT_TRUE(std::equal(world.pages, world.pages + leaves.size() * 6144, world.pinned));
    world.fill_records();
    TransferWorld::expect_records(leaves);
    TransferBatch in;
    in.leaves = leaves;
    Outcome outcome = world.scatter(std::move(in));
    ASSERT_EQ(outcome.wait(), Code::ok);
    EXPECT_TRUE(std::all_of(outcome.good.begin(), outcome.good.end(), [](uint8_t good) { return good == 1; }));
    EXPECT_TRUE(std::equal(world.pages, world.pages + leaves.size() * 6144, world.pinned));
    const TransferStats stats = world.transfers->scatters();
    EXPECT_GT(stats.bounced_leaves, 0U) << "a leaf in two ranges is no memory that a copy reaches";
    EXPECT_LT(stats.bounced_leaves, leaves.size() / 2);
    EXPECT_FALSE(world.device->is_lost());
  }
}

TEST(Transfers, scatter_every_byte_on_every_way_and_poison_what_is_wrong) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    TransferWorld world;
    ASSERT_TRUE(world.open(way.options).ok());
    TransferBatch batch;
    batch.leaves = world.make_leaves(200, 700U << 10, way.loose, way.flat);
    TransferWorld::expect_records(batch.leaves);
    std::vector<size_t> wrong, unchecked;
    for (size_t i = 5; i < batch.leaves.size(); i += 1 + world.random.below(60)) {
      ++batch.leaves[i].expected;
      if (world.random.below(3) == 0) {
        batch.leaves[i].check = false;
        unchecked.push_back(i);
      } else {
        wrong.push_back(i);
      }
    }
    const std::vector<LeafMove> leaves = batch.leaves;
    // Expected pages: between the leaves they are unchanged.
    const Bytes before(world.pages, world.pages + TransferWorld::kBytes);
    Bytes pages = before;
    for (size_t i = 0; i < leaves.size(); ++i) {
      const StridedRun& run = leaves[i].device;
      const bool bad = std::count(wrong.begin(), wrong.end(), i) > 0;
      const std::byte* from = leaves[i].record;
      for (uint32_t a = 0; a < run.count0; ++a) {
        for (uint32_t b = 0; b < run.count1; ++b, from += run.bytes) {
          std::byte* const to = pages.data() + (run.data - world.pages) + a * run.stride0 + b * run.stride1;
          if (bad) {
            std::memset(to, 0xFF, run.bytes);
          } else {
            std::memcpy(to, from, run.bytes);
          }
        }
      }
    }
    Outcome outcome = world.scatter(std::move(batch));
    ASSERT_EQ(outcome.wait(), Code::ok);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const bool bad = std::count(wrong.begin(), wrong.end(), i) > 0;
      ASSERT_EQ(outcome.good[i], bad ? 0 : 1) << "leaf " << i;
      ASSERT_EQ(outcome.hashes[i], codec::leaf_hash(ConstBytes(leaves[i].record, leaves[i].device.total())));
    }
    EXPECT_TRUE(std::equal(pages.begin(), pages.end(), world.pages));
    const TransferStats stats = world.transfers->scatters();
    EXPECT_EQ(stats.bad_leaves, wrong.size());
    EXPECT_GT(leaves_on(stats, way.name), 0U);
    EXPECT_GT(stats.device_ns, 0U);
    EXPECT_GT(stats.bytes, 0U);
  }
}

// Records in device memory, whatever the limits are: only kernels move them, no copy engine.
TEST(Transfers, move_from_device_memory_to_device_memory_and_back) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    TransferWorld world;
    ASSERT_TRUE(world.open(way.options).ok());
    auto* const memory = reinterpret_cast<std::byte*>(world.cuda.allocate(1, TransferWorld::kBytes));
    std::vector<LeafMove> leaves = world.make_leaves(200, 700U << 10, 0, way.flat);
    uint64_t at = 0;
    for (LeafMove& leaf : leaves) {
      leaf.record = memory + at;
      leaf.on_device = true;
      at += leaf.device.total();
    }
    ASSERT_LE(at, TransferWorld::kBytes);
    const uint64_t copied = world.cuda.copied_bytes();
    TransferBatch out;
    out.leaves = leaves;
    Outcome gathered = world.gather(std::move(out));
    ASSERT_EQ(gathered.wait(), Code::ok);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Bytes bytes = TransferWorld::pages_of(leaves[i]);
      ASSERT_EQ(std::memcmp(leaves[i].record, bytes.data(), bytes.size()), 0) << "leaf " << i;
      ASSERT_EQ(gathered.hashes[i], codec::leaf_hash(bytes));
      leaves[i].expected = gathered.hashes[i];
    }
    world.fill_pages();
    leaves[3].record[0] ^= std::byte{1};  // as another process can
    TransferBatch in;
    in.leaves = leaves;
    Outcome scattered = world.scatter(std::move(in));
    ASSERT_EQ(scattered.wait(), Code::ok);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Bytes bytes = TransferWorld::pages_of(leaves[i]);
      ASSERT_EQ(scattered.good[i], i == 3 ? 0 : 1) << "leaf " << i;
      const bool right =
          i == 3 ? std::count(bytes.begin(), bytes.end(), std::byte{0xFF}) == static_cast<std::ptrdiff_t>(bytes.size())
                 : std::memcmp(leaves[i].record, bytes.data(), bytes.size()) == 0;
      ASSERT_TRUE(right) << "leaf " << i;
    }
    EXPECT_EQ(world.cuda.copied_bytes(), copied);
    EXPECT_EQ(world.transfers->gathers().inside_leaves, leaves.size());
    EXPECT_EQ(world.transfers->scatters().inside_leaves, leaves.size());
    EXPECT_EQ(world.transfers->scatters().mapped_leaves + world.transfers->scatters().bounced_leaves, 0U);
  }
}

// Some leaves are only overwritten, between others that are moved or alone, on every path.
TEST(Transfers, overwrite_what_is_poison_and_nothing_else) {
  for (const Way& way : ways()) {
    for (const size_t every : {size_t{1}, size_t{3}}) {
      SCOPED_TRACE(std::string(way.name) + ", every " + std::to_string(every));
      TransferWorld world;
      ASSERT_TRUE(world.open(way.options).ok());
      TransferBatch batch;
      batch.leaves = world.make_leaves(200, 700U << 10, way.loose, way.flat);
      TransferWorld::expect_records(batch.leaves);
      for (size_t i = 0; i < batch.leaves.size(); i += every) {
        batch.leaves[i].poison = true;
        batch.leaves[i].record = nullptr;
      }
      const std::vector<LeafMove> leaves = batch.leaves;
      Bytes pages(world.pages, world.pages + TransferWorld::kBytes);
      size_t moved = 0;
      for (const LeafMove& leaf : leaves) {
        const std::byte* from = leaf.record;
        moved += leaf.poison ? 0 : 1;
        for (uint32_t a = 0; a < leaf.device.count0; ++a) {
          for (uint32_t b = 0; b < leaf.device.count1; ++b) {
            std::byte* const to =
                pages.data() + (leaf.device.data - world.pages) + a * leaf.device.stride0 + b * leaf.device.stride1;
            if (leaf.poison) std::memset(to, 0xFF, leaf.device.bytes);
            if (!leaf.poison) std::memcpy(to, from, leaf.device.bytes);
            if (!leaf.poison) from += leaf.device.bytes;
          }
        }
      }
      Outcome outcome = world.scatter(std::move(batch));
      ASSERT_EQ(outcome.wait(), Code::ok);
      for (const uint8_t good : outcome.good) EXPECT_EQ(good, 1);
      EXPECT_TRUE(std::equal(pages.begin(), pages.end(), world.pages));
      EXPECT_EQ(world.transfers->scatters().leaves, moved);
    }
  }
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  TransferBatch out;
  out.leaves = world.make_leaves(3, 1U << 20, 0, true);
  out.leaves[1].poison = true;
  EXPECT_EQ(world.gather(std::move(out)).wait(), Code::invalid_argument)
      << "into a record there is nothing to overwrite";
}

// The device hashes a page that the copy engine then moves; the page is written to between the two.
TEST(Transfers, a_page_that_changes_under_its_copy_is_not_good) {
  TransferWorld world;
  ASSERT_TRUE(world.open(only(Path::straight)).ok());
  TransferBatch batch;
  batch.leaves = world.make_leaves(20, 700U << 10, 100, true);
  ASSERT_GT(batch.leaves.size(), 8U);
  std::byte* const page = batch.leaves[7].device.data;
  test::add_emulated_kernels(world.cuda, [page](const std::string& name, const test::FakeLaunch& launch) {
    if (name == "kvbm_hash_leaves" && test::has_job_at(launch, page)) *page ^= std::byte{1};
  });
  Outcome outcome = world.gather(std::move(batch));
  ASSERT_EQ(outcome.wait(), Code::ok);
  for (size_t i = 0; i < outcome.good.size(); ++i) EXPECT_EQ(outcome.good[i], i == 7 ? 0 : 1) << i;
  EXPECT_EQ(world.transfers->gathers().bad_leaves, 1U);
}

TEST(Transfers, begin_behind_what_the_stream_held_and_not_behind_what_came_later) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const CuStream stream = world.cuda.make_stream(1);
  const Driver& driver = world.cuda.driver();
  std::vector<LeafMove> leaves = world.make_leaves(50, 1U << 20, 50, true);
  {
    const Device::Scope scope(*world.device);
    world.cuda.hold(stream);
    ASSERT_EQ(driver.cuMemsetD8Async(reinterpret_cast<uintptr_t>(world.pages), 0x5A, 1U << 20, stream), kCuSuccess);
  }
  auto point = world.transfers->point(stream);
  ASSERT_TRUE(point.ok()) << point.status().message();
  TransferBatch batch;
  batch.leaves = leaves;
  batch.after = point.value();
  Outcome waits = world.gather(std::move(batch));
  // The stream's work before this point has yet to write the pages that a load behind it would write.
  EXPECT_FALSE(waits.over());
  world.cuda.release(stream);
  ASSERT_EQ(waits.wait(), Code::ok);
  for (const LeafMove& leaf : leaves) {
    const Bytes written(leaf.device.total(), std::byte{0x5A});
    ASSERT_EQ(std::memcmp(leaf.record, written.data(), written.size()), 0);
  }
  // Another point, after which the stream is held again.
  auto early = world.transfers->point(stream);
  ASSERT_TRUE(early.ok());
  world.cuda.synchronize(stream);
  world.cuda.hold(stream);
  {
    const Device::Scope scope(*world.device);
    ASSERT_EQ(driver.cuMemsetD8Async(reinterpret_cast<uintptr_t>(world.pages), 0x77, 1U << 20, stream), kCuSuccess);
  }
  TransferBatch second;
  second.leaves = leaves;
  second.after = early.value();
  EXPECT_EQ(world.gather(std::move(second)).wait(), Code::ok);
  EXPECT_EQ(leaves[0].record[0], std::byte{0x5A});
  world.cuda.release(stream);
  world.cuda.synchronize(stream);
}

TEST(Transfers, take_streams_by_number_and_refuse_strange_ones) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  for (uintptr_t number : {0U, 1U, 2U}) {
    auto point = world.transfers->point(reinterpret_cast<CuStream>(number));
    EXPECT_TRUE(point.ok()) << number << ": " << point.status().message();
  }
  const CuStream other = world.cuda.make_stream(0);
  const auto landmark = world.transfers->landmark();
  ASSERT_NE(landmark, nullptr);
  auto refused = world.transfers->point(other);
  EXPECT_EQ(refused.status().code(), Code::invalid_argument);
  EXPECT_NE(std::string(refused.status().message()).find("another device"), std::string::npos);
  EXPECT_EQ(world.transfers->wait_on(landmark, 1, other).code(), Code::invalid_argument);
  EXPECT_EQ(world.transfers->point(reinterpret_cast<CuStream>(uintptr_t{0x123450})).status().code(),
            Code::invalid_argument);
  world.cuda.destroy_context(0);
  refused = world.transfers->point(other);
  EXPECT_EQ(refused.status().code(), Code::invalid_argument);
  EXPECT_NE(std::string(refused.status().message()).find("context was destroyed"), std::string::npos);
  EXPECT_FALSE(world.device->is_lost());
  TransferBatch batch;
  batch.leaves = world.make_leaves(3, 1U << 20, 0, true);
  EXPECT_EQ(world.gather(std::move(batch)).wait(), Code::ok);
}

// The caller may destroy a stream between the query of it and the wait on it: that is reported as the caller's fault.
TEST(Transfers, a_stream_that_is_destroyed_on_the_way_is_the_callers_fault) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const CuStream stream = world.cuda.make_stream(1);
  const auto landmark = world.transfers->landmark();
  for (const char* entry : {"cuEventCreate", "cuEventRecord"}) {
    world.cuda.fail(entry, 1, kCuInvalidHandle);
    const Status refused = world.transfers->point(stream).status();
    EXPECT_EQ(refused.code(), Code::invalid_argument) << entry;
    EXPECT_NE(refused.message().find("knows no such stream"), std::string::npos) << refused.message();
  }
  world.cuda.fail("cuStreamWaitValue64", 1, kCuInvalidHandle);
  const Status refused = world.transfers->wait_on(landmark, 1, stream);
  EXPECT_EQ(refused.code(), Code::invalid_argument) << refused.message();
  EXPECT_FALSE(world.device->is_lost());
  // The stream's context is the device's own: if it is destroyed, the device is lost.
  world.cuda.fail("cuStreamWaitValue64", 1, kCuContextDestroyed);
  EXPECT_EQ(world.transfers->wait_on(landmark, 1, stream).code(), Code::tier_disabled);
  EXPECT_TRUE(world.device->is_lost());
}

// Batches that streams wait for use no copy engine: a copy of the engine behind such a wait may stand before theirs in
// the copy engine's queue, and block them.
TEST(Transfers, that_streams_wait_for_leave_the_copy_engine_alone) {
  for (Way way : ways()) {
    for (const int variant : {0, 1, 2}) {
      const LandmarkKind kind = variant == 2 ? LandmarkKind::issued : LandmarkKind::on_device;
      const bool copies = variant != 0;  // a stream that waits for an event blocks nothing
      SCOPED_TRACE(std::string(way.name) + (copies ? ", copies " : " ") + std::to_string(variant));
      TransferWorld world;
      way.options.plan.copies_behind_waits = variant == 1;
      ASSERT_TRUE(world.open(way.options).ok());
      TransferBatch batch;
      batch.leaves = world.make_leaves(40, 700U << 10, way.loose, way.flat);
      TransferWorld::expect_records(batch.leaves);
      const std::vector<LeafMove> leaves = batch.leaves;
      batch.landmark = world.transfers->landmark(kind);
      ASSERT_NE(batch.landmark, nullptr);
      batch.marks = {{10, 1}, {leaves.size(), 2}};
      Outcome outcome = world.scatter(std::move(batch));
      ASSERT_EQ(outcome.wait(), Code::ok);
      for (const LeafMove& leaf : leaves) {
        const Bytes bytes = TransferWorld::pages_of(leaf);
        ASSERT_EQ(std::memcmp(leaf.record, bytes.data(), bytes.size()), 0);
      }
      const TransferStats moved = world.transfers->scatters();
      if (copies) {
        EXPECT_NE(leaves_on(moved, way.name), 0U);
        continue;
      }
      EXPECT_EQ(moved.mapped_leaves, moved.leaves);
      EXPECT_EQ(world.cuda.copied_bytes(), 0U);
    }
  }
}

// Returns a load into one layer, for streams that wait for value 1 of `landmark`.
TransferBatch load_of_one_layer(const std::vector<LeafMove>& leaves, const std::shared_ptr<Landmark>& landmark,
                                std::shared_ptr<StreamPoint> after) {
  TransferBatch batch;
  batch.leaves = leaves;
  batch.landmark = landmark;
  batch.marks = {{leaves.size(), 1}};
  batch.after = std::move(after);
  return batch;
}

// The point of the second load lies behind the wait for the first, and the second one is ready sooner.
TEST(Transfers, let_a_load_pass_that_the_one_before_waits_for) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const CuStream stream = world.cuda.make_stream(1);
  const auto one = world.transfers->landmark();
  const auto two = world.transfers->landmark();
  std::vector<LeafMove> leaves = world.make_leaves(40, 2U << 20, 0, true);
  TransferWorld::expect_records(leaves);
  auto before_one = world.transfers->point(stream);
  ASSERT_TRUE(world.transfers->wait_on(one, 1, stream).ok());
  auto before_two = world.transfers->point(stream);
  ASSERT_TRUE(world.transfers->wait_on(two, 1, stream).ok());
  ASSERT_TRUE(before_one.ok() && before_two.ok());
  Outcome second = world.scatter(load_of_one_layer(leaves, two, before_two.value()));
  Outcome first = world.scatter(load_of_one_layer(leaves, one, before_one.value()));
  EXPECT_EQ(first.wait(), Code::ok);
  EXPECT_EQ(second.wait(), Code::ok);
  world.cuda.synchronize(stream);
}

// The second load's stream does not wait for the first load itself, but for an event of the stream that does.
TEST(Transfers, let_a_load_pass_that_the_one_before_waits_for_by_an_event) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const Driver& driver = world.cuda.driver();
  const CuStream waits = world.cuda.make_stream(1);
  const CuStream follows = world.cuda.make_stream(1);
  const auto one = world.transfers->landmark();
  const auto two = world.transfers->landmark();
  std::vector<LeafMove> leaves = world.make_leaves(40, 2U << 20, 0, true);
  TransferWorld::expect_records(leaves);
  auto before_one = world.transfers->point(waits);
  ASSERT_TRUE(world.transfers->wait_on(one, 1, waits).ok());
  CuEvent event = nullptr;
  {
    const Device::Scope scope(*world.device);
    ASSERT_EQ(driver.cuEventCreate(&event, kCuEventDisableTiming), kCuSuccess);
    ASSERT_EQ(driver.cuEventRecord(event, waits), kCuSuccess);
    ASSERT_EQ(driver.cuStreamWaitEvent(follows, event, 0), kCuSuccess);
  }
  auto before_two = world.transfers->point(follows);
  ASSERT_TRUE(before_one.ok() && before_two.ok());
  Outcome second = world.scatter(load_of_one_layer(leaves, two, before_two.value()));
  Outcome first = world.scatter(load_of_one_layer(leaves, one, before_one.value()));
  for (int i = 0; i < 60'000 && !first.over(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(first.over()) << "the second load stands in the way of the first";
  if (!first.over()) world.transfers->raise(*one, 1);
  EXPECT_EQ(first.wait(), Code::ok);
  EXPECT_EQ(second.wait(), Code::ok);
  world.cuda.synchronize(follows);
  const Device::Scope scope(*world.device);
  EXPECT_EQ(driver.cuEventDestroy(event), kCuSuccess);
}

TEST(Transfers, let_a_load_of_a_stream_that_waits_for_nothing_pass_at_once) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const CuStream waits = world.cuda.make_stream(1);
  const CuStream free = world.cuda.make_stream(1);
  const auto one = world.transfers->landmark();
  const auto two = world.transfers->landmark();
  std::vector<LeafMove> leaves = world.make_leaves(40, 2U << 20, 0, true);
  TransferWorld::expect_records(leaves);
  auto before_one = world.transfers->point(waits);
  ASSERT_TRUE(world.transfers->wait_on(one, 1, waits).ok());
  world.cuda.hold(free);
  {
    const Device::Scope scope(*world.device);
    const auto pages = reinterpret_cast<uintptr_t>(world.pages);
    ASSERT_EQ(world.cuda.driver().cuMemsetD8Async(pages, 0x5A, 64, free), kCuSuccess);
  }
  auto before_two = world.transfers->point(free);
  ASSERT_TRUE(before_one.ok() && before_two.ok());
  Outcome second = world.scatter(load_of_one_layer(leaves, two, before_two.value()));
  world.cuda.release(free);
  EXPECT_EQ(second.wait(), Code::ok);  // the load that `waits` waits for has not begun
  Outcome first = world.scatter(load_of_one_layer(leaves, one, before_one.value()));
  EXPECT_EQ(first.wait(), Code::ok);
  world.cuda.synchronize(waits);
}

TEST(Transfers, forget_what_was_waited_for_of_a_landmark_that_is_gone) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const auto pool = std::make_shared<LandmarkPool>(world.device);
  const CuStream stream = world.cuda.make_stream(1);
  const CuContext context = world.device->context();
  // A new landmark mostly has the address of the last one; if an allocator does otherwise, the case does not occur.
  for (int i = 0; i < 100; ++i) {
    auto landmark = pool->take();
    ASSERT_NE(landmark, nullptr);
    pool->waits(landmark, 10, context, stream);
    landmark.reset();
    landmark = pool->take();
    ASSERT_NE(landmark, nullptr);
    pool->waits(landmark, 1, context, stream);
    pool->promise(*landmark, 1);
    ASSERT_TRUE(pool->needs_of(context, stream).empty());
  }
}

TEST(Transfers, raise_from_the_cpu_what_will_never_come_but_not_before_what_is_under_way) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const CuStream engine = world.cuda.make_stream(1);
  const CuStream busy = world.cuda.make_stream(1);
  const auto landmark = world.transfers->landmark();
  TransferBatch batch;
  batch.leaves = world.make_leaves(10, 1U << 20, 0, true);
  TransferWorld::expect_records(batch.leaves);
  batch.landmark = landmark;
  batch.marks = {{batch.leaves.size(), 1}};
  world.cuda.hold(busy);
  {
    const Device::Scope scope(*world.device);
    ASSERT_EQ(world.cuda.driver().cuMemsetD8Async(reinterpret_cast<uintptr_t>(world.pages), 1, 16, busy), kCuSuccess);
  }
  auto point = world.transfers->point(busy);
  ASSERT_TRUE(point.ok());
  batch.after = point.value();
  Outcome outcome = world.scatter(std::move(batch));
  ASSERT_TRUE(world.transfers->wait_on(landmark, 1, engine).ok());
  world.transfers->raise(*landmark, 5);
  EXPECT_FALSE(world.cuda.idle(engine));
  ASSERT_TRUE(world.transfers->wait_on(landmark, 5, engine).ok());
  world.cuda.release(busy);
  EXPECT_EQ(outcome.wait(), Code::ok);
  world.cuda.synchronize(engine);
  EXPECT_TRUE(world.transfers->wait_on(landmark, 5, engine).ok());
  EXPECT_EQ(world.transfers->wait_on(landmark, 1ULL << 62, engine).code(), Code::invalid_argument);
}

TEST(Transfers, use_a_word_again_without_passing_its_new_waiters) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  std::vector<std::shared_ptr<Landmark>> landmarks;
  for (int i = 0; i < 100; ++i) {
    landmarks.push_back(world.transfers->landmark());
    ASSERT_NE(landmarks.back(), nullptr);
    world.transfers->raise(*landmarks.back(), 1000);
  }
  landmarks.clear();
  // Waits of owners that are gone do not stay either.
  const CuStream left = world.cuda.make_stream(1);
  {
    const auto gone = world.transfers->landmark();
    ASSERT_TRUE(world.transfers->wait_on(gone, 9, left).ok());
  }
  world.cuda.synchronize(left);
  for (int i = 0; i < 200; ++i) landmarks.push_back(world.transfers->landmark());
  const CuStream engine = world.cuda.make_stream(1);
  for (const auto& landmark : landmarks) ASSERT_TRUE(world.transfers->wait_on(landmark, 1, engine).ok());
  for (size_t i = 0; i < landmarks.size(); ++i) {
    ASSERT_FALSE(world.cuda.idle(engine)) << i;
    world.transfers->raise(*landmarks[i], 1);
  }
  world.cuda.synchronize(engine);
}

TEST(Transfers, refuse_leaves_and_marks_that_are_none) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const LeafMove good = world.make_leaves(1, 1U << 20, 0, true)[0];
  std::vector<TransferBatch> bad(8);
  for (TransferBatch& batch : bad) batch.leaves = {good};
  bad[0].leaves[0].device.bytes = 0;
  bad[1].leaves[0].device.bytes = (64U << 10) + 1;
  bad[2].leaves[0].device.count0 = 0;
  bad[3].leaves[0].device.count1 = UINT32_MAX;
  bad[4].leaves[0].record = nullptr;
  bad[5].marks = {{1, 1}};
  bad[6].landmark = world.transfers->landmark();
  bad[6].marks = {{2, 1}};
  bad[7].leaves[0].on_device = true;  // and coded: nothing decodes from there
  bad[7].leaves[0].codec = codec::LeafCodec::planar;
  bad[7].leaves[0].coded_bytes = 1;
  const auto landmark = bad[6].landmark;
  const CuStream engine = world.cuda.make_stream(1);
  ASSERT_TRUE(world.transfers->wait_on(landmark, 1, engine).ok());
  for (TransferBatch& batch : bad) EXPECT_EQ(world.scatter(std::move(batch)).wait(), Code::invalid_argument);
  world.cuda.synchronize(engine);
  TransferBatch none;
  EXPECT_EQ(world.scatter(std::move(none)).wait(), Code::ok);
  EXPECT_FALSE(world.device->is_lost());
}

TEST(Transfers, keep_what_they_were_given_until_done_has_returned) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  Keepsake keepsake;
  TransferBatch batch;
  batch.leaves = world.make_leaves(20, 1U << 20, 50, true);
  batch.keep = keepsake.give();
  bool held = false;
  Outcome outcome;
  batch.done = [&held, &keepsake, told = outcome.receiver()](TransferBatch& done, Code code) mutable {
    held = !keepsake.dropped();
    told(done, code);
  };
  world.transfers->gather(std::move(batch));
  EXPECT_EQ(outcome.wait(), Code::ok);
  keepsake.wait_dropped();
  EXPECT_TRUE(held);
}

TEST(Transfers, run_batches_of_many_threads_both_ways_at_once) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const std::vector<LeafMove> leaves = world.make_leaves(120, 2U << 20, 30, true);
  constexpr size_t kThreads = 4, kBatches = 6;
  std::vector<Outcome> outcomes(kThreads * kBatches);
  {
    auto callers = ThreadExecutor::create("callers", kThreads);
    ASSERT_TRUE(callers.ok());
    for (size_t t = 0; t < kThreads; ++t) {
      callers.value()->post([&world, &leaves, &outcomes, t] {
        for (size_t b = 0; b < kBatches; ++b) {
          TransferBatch batch;
          // Each thread moves leaves of its own out and in again.
          for (size_t i = t; i < leaves.size(); i += kThreads) batch.leaves.push_back(leaves[i]);
          for (LeafMove& leaf : batch.leaves) leaf.check = false;
          outcomes[t * kBatches + b] = b % 2 == 0 ? world.gather(std::move(batch)) : world.scatter(std::move(batch));
          (void)outcomes[t * kBatches + b].wait();  // nothing orders the two directions
        }
      });
    }
  }
  for (Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.wait(), Code::ok);
    EXPECT_EQ(outcome.calls(), 1);
  }
  for (const LeafMove& leaf : leaves) {
    ASSERT_EQ(std::memcmp(leaf.record, leaf.device.data, leaf.device.total()), 0);
  }
  EXPECT_EQ(world.transfers->gathers().batches + world.transfers->scatters().batches, outcomes.size());
}

TEST(Transfers, leave_nothing_behind) {
  TransferWorld world;
  const auto before = world.cuda.left(1);
  ASSERT_TRUE(world.open().ok());
  TransferBatch out, in;
  out.leaves = world.make_leaves(50, 1U << 20, 50, true);
  in.leaves.assign(out.leaves.begin() + 12, out.leaves.end());
  out.leaves.resize(12);
  for (LeafMove& leaf : in.leaves) leaf.check = false;
  out.after = world.transfers->point(nullptr).value();
  Outcome a = world.gather(std::move(out));
  Outcome b = world.scatter(std::move(in));
  world.close();  // waits for both
  EXPECT_EQ(a.wait(), Code::ok);
  EXPECT_EQ(b.wait(), Code::ok);
  const auto after = world.cuda.left(1);
  EXPECT_EQ(after.device_allocations, before.device_allocations);
  EXPECT_EQ(after.host_allocations, before.host_allocations);
  EXPECT_EQ(after.registrations, before.registrations);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
}

}  // namespace
}  // namespace kvbm::device::transfers_test
