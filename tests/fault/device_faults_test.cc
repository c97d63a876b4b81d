// A device that refuses, fails, is lost or makes no progress while leaves are in flight: every batch is answered once
// and correctly, no thread waits for ever, and memory that may still be written is not released.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codec/hash/leaf_hash.h"
#include "device/driver/driver_library.h"
#include "device/driver/retained.h"
#include "device/transfer/landmark.h"
#include "support/transfer_world.h"

namespace kvbm::device::device_faults_test {
namespace {

using test::Keepsake;
using test::Outcome;
using test::TransferWorld;

// Entries that transfers call, on any path (Entries, below), and that register their memory.
constexpr const char* kEntries[] = {"cuCtxPushCurrent",
                                    "cuCtxPopCurrent",
                                    "cuCtxGetStreamPriorityRange",
                                    "cuStreamCreateWithPriority",
                                    "cuEventCreate",
                                    "cuEventRecord",
                                    "cuEventQuery",
                                    "cuEventSynchronize",
                                    "cuEventElapsedTime",
                                    "cuEventDestroy",
                                    "cuStreamWaitEvent",
                                    "cuStreamWaitValue64",
                                    "cuStreamWriteValue64",
                                    "cuStreamGetCtx",
                                    "cuStreamSynchronize",
                                    "cuStreamDestroy",
                                    "cuMemAlloc",
                                    "cuMemFree",
                                    "cuMemHostRegister",
                                    "cuMemHostUnregister",
                                    "cuMemHostGetDevicePointer",
                                    "cuMemcpyAsync",
                                    "cuMemsetD8Async",
                                    "cuLaunchKernel",
                                    "cuStreamIsCapturing",
                                    "cuThreadExchangeStreamCaptureMode",
                                    "cuCtxGetDevice",
                                    "cuDeviceGet"};

TransferOptions options_of(int variant) {
  TransferOptions options = TransferWorld::small_options();
  options.staging_bytes = 6 * options.part_bytes;
  options.plan.mapped_bytes = 0;
  options.plan.staged_run_bytes = 0;
  options.plan.copies_behind_waits = true;
  options.plan.mark_bytes = 16U << 10;
  if (variant == 1) options.plan.straight_bytes = 1;
  return options;
}

bool is_poison(const LeafMove& leaf) {
  const std::vector<std::byte> bytes = TransferWorld::pages_of(leaf);
  for (const std::byte b : bytes) {
    if (b != std::byte{0xFF}) return false;
  }
  return true;
}

constexpr size_t kRoundBytes = 512U << 10;  // leaves of 400 KiB, and gaps

// Stores, loads with a landmark that a stream of the engine waits for, and stores again, with a fault in between.
struct Round {
  TransferWorld world;
  std::vector<LeafMove> out, in;
  std::vector<Outcome> outcomes;
  Keepsake keepsakes[3];
  CuStream engine = nullptr;
  bool waits = false;
  bool opened = false;

  explicit Round(uint64_t seed, size_t bytes = kRoundBytes) : world(seed, bytes) {}

  void go(int variant) {
    // If opening fails, it must leave nothing behind: ~TransferWorld checks that.
    if (!world.open(options_of(variant)).ok()) return;
    opened = true;
    std::vector<LeafMove> leaves = world.make_leaves(16, 400U << 10, 40, variant == 1);
    out.assign(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(leaves.size() / 2));
    in.assign(leaves.begin() + static_cast<std::ptrdiff_t>(leaves.size() / 2), leaves.end());
    TransferWorld::expect_records(in);
    engine = world.cuda.make_stream(1);
    // Whichever call is refused, a stream of another device is never accepted.
    ASSERT_FALSE(world.transfers->point(world.cuda.make_stream(0)).ok());
    send(out, false, keepsakes[0]);
    load();
    send(out, false, keepsakes[2]);
    for (Outcome& outcome : outcomes) (void)outcome.wait();
  }

  void send(const std::vector<LeafMove>& leaves, bool into, Keepsake& keepsake) {
    TransferBatch batch;
    batch.leaves = leaves;
    batch.keep = keepsake.give();
    if (auto point = world.transfers->point(engine); point.ok()) batch.after = std::move(point).value();
    outcomes.push_back(into ? world.scatter(std::move(batch)) : world.gather(std::move(batch)));
  }

  void load() {
    TransferBatch batch;
    batch.leaves = in;
    batch.keep = keepsakes[1].give();
    batch.landmark = world.transfers->landmark();
    if (batch.landmark != nullptr) {
      for (size_t i = 2; i < in.size(); i += 2) batch.marks.push_back({i, i});
      batch.marks.push_back({in.size(), in.size()});
      waits = world.transfers->wait_on(batch.landmark, in.size(), engine).ok();
    }
    outcomes.push_back(world.scatter(std::move(batch)));
  }

  // Checks that reported successes are real. Leaves that did not land are 0xFF if the device still accepts work, and a
  // waiting stream made progress in every case.
  void check(const std::string& what) {
    SCOPED_TRACE(what);
    for (Outcome& outcome : outcomes) ASSERT_EQ(outcome.calls(), 1);
    const bool lost = world.device->is_lost();
    if (waits && !lost) world.cuda.synchronize(engine);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const Code code = outcomes[i].wait();
      if (code == Code::ok) {
        check_moved(i == 1 ? in : out, outcomes[i]);
        continue;
      }
      ASSERT_TRUE(code == Code::tier_disabled || code == Code::no_memory || code == Code::internal ||
                  code == Code::invalid_argument)
          << static_cast<int>(code);
      if (!lost) {
        ASSERT_NE(code, Code::tier_disabled);
      }
      if (i == 1 && !lost && waits) check_loaded_or_poisoned();
    }
  }

  void check_moved(const std::vector<LeafMove>& leaves, const Outcome& outcome) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      const std::vector<std::byte> bytes = TransferWorld::pages_of(leaves[i]);
      ASSERT_EQ(outcome.good[i], 1);
      ASSERT_EQ(outcome.hashes[i], codec::leaf_hash(bytes));
      ASSERT_EQ(std::memcmp(leaves[i].record, bytes.data(), bytes.size()), 0);
    }
  }

  void check_loaded_or_poisoned() {
    for (const LeafMove& leaf : in) {
      const std::vector<std::byte> bytes = TransferWorld::pages_of(leaf);
      ASSERT_TRUE(std::memcmp(leaf.record, bytes.data(), bytes.size()) == 0 || is_poison(leaf));
    }
  }
};

TEST(Entries, are_all_that_transfers_call) {
  std::map<std::string, uint64_t> opening;
  {
    TransferWorld world;
    ASSERT_TRUE(world.open(options_of(0)).ok());
    world.close();
    for (const TableEntry& symbol : driver_symbols()) opening[symbol.entry] = world.cuda.calls(symbol.entry);
  }
  size_t called = 0;
  for (const int variant : {0, 1}) {
    Round run(7);
    run.go(variant);
    ASSERT_TRUE(run.opened);
    run.world.close();
    for (const TableEntry& symbol : driver_symbols()) {
      if (run.world.cuda.calls(symbol.entry) <= opening[symbol.entry]) continue;
      ++called;
      const bool known = std::any_of(std::begin(kEntries), std::end(kEntries),
                                     [&](const char* entry) { return std::strcmp(entry, symbol.entry) == 0; });
      EXPECT_TRUE(known) << symbol.entry << " is never refused here";
    }
  }
  EXPECT_GT(called, 20U);
}

class DeviceFaults : public ::testing::TestWithParam<int> {};

// Refuses every call of the driver that can be refused, one after the other. `code` does not itself lose the device;
// the layer decides about the consequences.
void refuse_each(const char* entry, int variant, CuResult code, uint64_t step) {
  for (uint64_t n = 1;; n += step) {
    uint64_t calls = 0;
    {
      Round run(7 + n);
      run.world.cuda.fail(entry, n, code);
      run.go(variant);
      if (run.opened)
        run.check(std::string(entry) + " " + std::to_string(n) + " of variant " + std::to_string(variant));
      if (::testing::Test::HasFatalFailure()) return;
      const bool lost = run.opened && run.world.device->is_lost();
      run.world.close();
      calls = run.world.cuda.calls(entry);
      const auto left = run.world.cuda.left(1);
      // Objects stay if the call that frees them is refused; otherwise only a landmark's page that a stream waited on
      // stays.
      const std::string name = entry;
      const bool end_refused = name.find("Destroy") != std::string::npos || name.find("Free") != std::string::npos ||
                               name.find("Unregister") != std::string::npos || name.find("CtxP") != std::string::npos;
      if (!lost && !end_refused) {
        EXPECT_EQ(left.device_allocations, 0U) << entry << n;
        EXPECT_EQ(left.streams, 0U) << entry << n;
        EXPECT_EQ(left.events, 0U) << entry << n;
        EXPECT_LE(left.registrations, 1U) << entry << n;
      }
    }
    if (n > calls) return;
  }
}

TEST_P(DeviceFaults, answer_every_batch_once_whichever_call_is_refused) {
  for (const char* entry : kEntries) {
    // Only some of the calls that every part makes many times are refused.
    const std::string name = entry;
    const bool often = name == "cuEventRecord" || name == "cuStreamWaitEvent" ||
                       name == "cuThreadExchangeStreamCaptureMode" || name.find("CtxP") != std::string::npos;
    refuse_each(entry, GetParam(), kCuOutOfMemory, often ? 7 : 3);
    if (HasFatalFailure()) return;
  }
}

TEST_P(DeviceFaults, lose_the_device_with_a_call_that_says_so) {
  for (const char* entry : {"cuLaunchKernel", "cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize",
                            "cuStreamWriteValue64", "cuStreamWaitEvent"}) {
    int lost = 0;
    for (uint64_t n = 1; n < 24; n += 6) {
      Round run(99 + n);
      run.world.cuda.fail(entry, n, kCuLaunchFailed);
      run.go(GetParam());
      ASSERT_TRUE(run.opened);
      run.check(std::string(entry) + " " + std::to_string(n));
      if (HasFatalFailure()) return;
      if (!run.world.device->is_lost()) continue;
      ++lost;
      TransferBatch later;
      later.leaves = run.out;
      EXPECT_EQ(run.world.gather(std::move(later)).wait(), Code::tier_disabled);
      EXPECT_EQ(run.world.transfers->landmark(), nullptr);
      EXPECT_EQ(run.world.transfers->point(run.engine).status().code(), Code::tier_disabled);
    }
    EXPECT_GT(lost, 0) << entry;
  }
}

TEST_P(DeviceFaults, lose_the_device_with_a_kernel_that_fails) {
  for (uint64_t n = 1; n < 12; n += 2) {
    Round run(31 + n);
    run.world.cuda.fail_kernel("", n, kCuIllegalAddress);
    run.go(GetParam());
    ASSERT_TRUE(run.opened);
    run.check("kernel " + std::to_string(n));
    if (HasFatalFailure()) return;
    EXPECT_TRUE(run.world.device->is_lost() || n > 5) << n;  // every round has so many kernels
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceFaults, ::testing::Values(0, 1));

TEST(DeviceLost, in_the_middle_answers_all_that_waits) {
  for (const bool destroyed : {false, true}) {
    Round run(5, TransferWorld::kBytes);
    ASSERT_TRUE(run.world.open(options_of(0)).ok());
    run.engine = run.world.cuda.make_stream(1);
    // Separate leaves each way, because nothing orders the two directions.
    const std::vector<LeafMove> leaves = run.world.make_leaves(40, 2U << 20, 30, true);
    run.in.assign(leaves.begin(), leaves.begin() + static_cast<std::ptrdiff_t>(leaves.size() / 2));
    run.out.assign(leaves.begin() + static_cast<std::ptrdiff_t>(leaves.size() / 2), leaves.end());
    TransferWorld::expect_records(run.in);
    for (int i = 0; i < 5; ++i) {
      Keepsake none;
      run.send(run.out, false, none);
      run.load();
    }
    if (destroyed) {
      run.world.cuda.destroy_context(1);
    } else {
      run.world.cuda.lose(1);
    }
    for (Outcome& outcome : run.outcomes) {
      const Code code = outcome.wait();
      EXPECT_TRUE(code == Code::ok || code == Code::tier_disabled) << static_cast<int>(code);
      EXPECT_EQ(outcome.calls(), 1);
    }
    TransferBatch later;
    later.leaves = run.out;
    EXPECT_EQ(run.world.scatter(std::move(later)).wait(), Code::tier_disabled);
    EXPECT_TRUE(run.world.device->is_lost());
  }
}

// A device that makes no progress is given up; memory that it may still write is released only when it has caught up.
TEST(DeviceStall, gives_up_and_keeps_the_memory_until_the_device_is_quiet) {
  TransferWorld world;
  TransferOptions options = options_of(0);
  options.stall_ns = 10'000'000'000;
  ASSERT_TRUE(world.open_timed(options).ok());
  const CuStream engine = world.cuda.make_stream(1);
  const auto landmark = world.transfers->landmark();
  ASSERT_TRUE(world.transfers->wait_on(landmark, 1, engine).ok());
  for (const CuStream stream : world.cuda.streams(1)) {
    if (stream != engine) world.cuda.hold(stream);
  }
  Keepsake issued, queued;
  TransferBatch first, second, third;
  first.leaves = second.leaves = third.leaves = world.make_leaves(60, 2U << 20, 0, true);
  for (LeafMove& leaf : third.leaves) leaf.check = false;
  first.keep = issued.give();
  second.keep = queued.give();
  third.landmark = landmark;
  third.marks = {{third.leaves.size(), 1}};
  Outcome a = world.gather(std::move(first));
  while (world.cuda.calls("cuLaunchKernel") == 0) std::this_thread::yield();
  Outcome b = world.gather(std::move(second));
  Outcome c = world.scatter(std::move(third));
  // A stall is detected in four looks, on the thread that also issues.
  for (int look = 0; look < 3; ++look) world.timers->advance(options.stall_ns / 4);
  EXPECT_FALSE(world.device->is_lost());
  EXPECT_FALSE(a.over());
  while (!a.over()) {
    world.timers->advance(options.stall_ns / 4);
    std::this_thread::yield();
  }
  EXPECT_EQ(a.wait(), Code::tier_disabled);
  EXPECT_EQ(b.wait(), Code::tier_disabled);
  EXPECT_EQ(c.wait(), Code::tier_disabled);
  EXPECT_TRUE(world.device->is_lost());
  EXPECT_EQ(world.device->lost_why(), "a transfer had no end within device.lost_after");
  queued.wait_dropped();  // the device got none of it
  EXPECT_FALSE(issued.dropped());
  world.cuda.synchronize(engine);  // its landmark was raised
  world.cuda.hold_all(false);
  issued.wait_dropped();
}

// The event behind a part could not be recorded, so an event that is reached says nothing about the part.
TEST(DeviceStall, keeps_the_memory_of_a_part_whose_end_could_not_be_marked) {
  uint64_t events = 0;
  {
    TransferWorld world(TransferWorld::kSeed, kRoundBytes);
    ASSERT_TRUE(world.open(options_of(0)).ok());
    const uint64_t before = world.cuda.calls("cuEventRecord");
    TransferBatch batch;
    batch.leaves = world.make_leaves(4, 60U << 10, 0, true);
    ASSERT_EQ(world.gather(std::move(batch)).wait(), Code::ok);
    events = world.cuda.calls("cuEventRecord") - before;
  }
  ASSERT_GT(events, 0U);
  int under_way = 0;
  for (uint64_t n = 1; n <= events; ++n) {
    SCOPED_TRACE("event " + std::to_string(n) + " of " + std::to_string(events));
    TransferWorld world(TransferWorld::kSeed, kRoundBytes);
    ASSERT_TRUE(world.open(options_of(0)).ok());
    world.cuda.hold_all(true);
    const uint64_t launched = world.cuda.calls("cuLaunchKernel");
    world.cuda.fail("cuEventRecord", n, kCuLaunchFailed);
    Keepsake issued;
    TransferBatch batch;
    batch.leaves = world.make_leaves(4, 60U << 10, 0, true);
    batch.keep = issued.give();
    Outcome outcome = world.gather(std::move(batch));
    for (int i = 0; i < 60'000 && !world.device->is_lost(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(world.device->is_lost());
    if (!world.device->is_lost()) world.cuda.hold_all(false);
    EXPECT_EQ(outcome.wait(), Code::tier_disabled);
    if (world.cuda.calls("cuLaunchKernel") > launched) {
      ++under_way;
      world.transfers.reset();
      EXPECT_FALSE(issued.dropped()) << n;
    }
    world.cuda.hold_all(false);
  }
  EXPECT_GT(under_way, 0);
}

TEST(DeviceStall, parks_what_is_in_the_driver_when_the_transfers_end) {
  const size_t before = retained_count();
  Keepsake issued;
  {
    TransferWorld world;
    TransferOptions options = options_of(0);
    options.stall_ns = 40'000'000;
    ASSERT_TRUE(world.open(options).ok());
    world.cuda.hold_all(true);
    TransferBatch batch;
    batch.leaves = world.make_leaves(60, 2U << 20, 0, true);
    batch.keep = issued.give();
    const uint64_t launched = world.cuda.calls("cuLaunchKernel");
    Outcome outcome = world.gather(std::move(batch));
    for (int i = 0; i < 60'000 && world.cuda.calls("cuLaunchKernel") == launched; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GT(world.cuda.calls("cuLaunchKernel"), launched);
    world.transfers.reset();
    EXPECT_EQ(outcome.wait(), Code::tier_disabled);
    EXPECT_GT(retained_count(), before);
    EXPECT_FALSE(issued.dropped());
  }
}

TEST(DeviceStall, does_not_blame_the_device_for_a_stream_of_the_engine) {
  TransferWorld world;
  TransferOptions options = options_of(0);
  options.stall_ns = 10'000'000'000;
  ASSERT_TRUE(world.open_timed(options).ok());
  const CuStream engine = world.cuda.make_stream(1);
  world.cuda.hold(engine);
  {
    const Device::Scope scope(*world.device);
    ASSERT_EQ(world.cuda.driver().cuMemsetD8Async(reinterpret_cast<uintptr_t>(world.pages), 3, 16, engine), kCuSuccess);
  }
  TransferBatch batch;
  batch.leaves = world.make_leaves(30, 1U << 20, 0, true);
  batch.after = world.transfers->point(engine).value();
  Outcome outcome = world.gather(std::move(batch));
  const uint64_t asked = world.cuda.calls("cuEventQuery");
  while (world.cuda.calls("cuEventQuery") < asked + 30) {
    world.timers->advance(options.stall_ns / 4);
    std::this_thread::yield();
  }
  EXPECT_FALSE(world.device->is_lost());
  EXPECT_FALSE(outcome.over());
  world.cuda.release(engine);
  EXPECT_EQ(outcome.wait(), Code::ok);
}

// The engine must not read pages of a load that failed, although its stream makes progress.
TEST(DeviceFault, poisons_what_did_not_land_before_the_landmark_is_reached) {
  for (const bool kernels_too : {false, true}) {
    TransferWorld world;
    ASSERT_TRUE(world.open(options_of(0)).ok());
    const CuStream engine = world.cuda.make_stream(1);
    TransferBatch batch;
    batch.leaves = world.make_leaves(40, 2U << 20, 0, false);
    TransferWorld::expect_records(batch.leaves);
    const std::vector<LeafMove> leaves = batch.leaves;
    batch.landmark = world.transfers->landmark();
    batch.marks = {{leaves.size() / 2, 1}, {leaves.size(), 2}};
    ASSERT_TRUE(world.transfers->wait_on(batch.landmark, 2, engine).ok());
    const auto copy = world.cuda.allocate(1, TransferWorld::kBytes);
    {
      const Device::Scope scope(*world.device);
      ASSERT_EQ(world.cuda.driver().cuMemcpyAsync(copy, reinterpret_cast<uintptr_t>(world.pages), TransferWorld::kBytes,
                                                  engine),
                kCuSuccess);
    }
    world.cuda.fail("cuLaunchKernel", 3, kCuInvalidValue, kernels_too ? 1000 : 1);
    EXPECT_EQ(world.scatter(std::move(batch)).wait(), Code::internal);
    world.cuda.synchronize(engine);
    size_t poisoned = 0;
    for (const LeafMove& leaf : leaves) {
      LeafMove seen = leaf;
      seen.device.data = reinterpret_cast<std::byte*>(copy) + (leaf.device.data - world.pages);
      const std::vector<std::byte> bytes = TransferWorld::pages_of(seen);
      if (std::memcmp(leaf.record, bytes.data(), bytes.size()) == 0) continue;
      ASSERT_TRUE(is_poison(seen));
      ++poisoned;
    }
    EXPECT_GT(poisoned, 0U);
    EXPECT_LT(poisoned, leaves.size());
    EXPECT_FALSE(world.device->is_lost());
    if (kernels_too) continue;
    TransferBatch again;
    again.leaves = leaves;
    EXPECT_EQ(world.scatter(std::move(again)).wait(), Code::ok);
  }
}

}  // namespace
}  // namespace kvbm::device::device_faults_test
