// Calls of the driver that never return, each in turn, under transfers and sharing of sessions. Every request is
// answered within the limit, and nothing that the device may still write is released.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/thread/thread_executor.h"
#include "device/driver/driver_thread.h"
#include "device/transfer/landmark.h"
#include "manager/session/device_share.h"
#include "support/transfer_world.h"

namespace kvbm::test::driver_hangs_test {
namespace {

using cluster::session::SharedMemory;
using device::CuStream;
using device::LandmarkKind;
using device::LeafMove;
using device::TransferBatch;
using device::TransferOptions;
using manager::DeviceShare;

constexpr uint64_t kLimitNs = 400'000'000;

TransferOptions small_parts() {
  TransferOptions options = TransferWorld::small_options();
  options.staging_bytes = 6 * options.part_bytes;
  options.plan.mapped_bytes = 0;
  options.plan.staged_run_bytes = 0;
  options.plan.copies_behind_waits = true;
  options.plan.mark_bytes = 16U << 10;
  options.stall_ns = kLimitNs;
  return options;
}

class DriverHang : public ::testing::TestWithParam<const char*> {};

TEST_P(DriverHang, answers_all_that_was_asked_within_the_limit) {
  TransferWorld world;
  ASSERT_TRUE(world.open(small_parts()).ok());
  const auto landmark = world.transfers->landmark();
  const CuStream engine = world.cuda.make_stream(1);
  ASSERT_TRUE(world.transfers->wait_on(landmark, 1, engine).ok());
  Keepsake kept[2];
  TransferBatch out, in;
  out.leaves = in.leaves = world.make_leaves(30, 1U << 20, 30, true);
  for (LeafMove& leaf : in.leaves) leaf.check = false;
  out.keep = kept[0].give();
  in.keep = kept[1].give();
  in.landmark = landmark;
  in.marks = {{in.leaves.size(), 1}};
  world.cuda.block(GetParam());
  const auto began = std::chrono::steady_clock::now();
  Outcome a = world.gather(std::move(out));
  Outcome b = world.scatter(std::move(in));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::nanoseconds(kLimitNs / 2)) << "submitting waited";
  (void)a.wait();
  (void)b.wait();
  world.cuda.synchronize(engine);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));
  EXPECT_EQ(world.cuda.blocked(), 1U);
  EXPECT_TRUE(a.calls() == 1 && b.calls() == 1);
  world.transfers.reset();
  EXPECT_EQ(world.cuda.blocked(), 1U);
  // Without a context nothing was given to the device.
  EXPECT_TRUE(!kept[0].dropped() || !kept[1].dropped() || std::strcmp(GetParam(), "cuCtxPushCurrent") == 0);
  world.cuda.unblock();
}

INSTANTIATE_TEST_SUITE_P(Calls, DriverHang,
                         ::testing::Values("cuLaunchKernel", "cuMemcpyAsync", "cuEventRecord", "cuStreamWaitEvent",
                                           "cuMemHostRegister", "cuCtxPushCurrent", "cuStreamWriteValue64",
                                           "cuEventElapsedTime", "cuEventSynchronize"));

// A caller that blocks until a part is issued continues when the driver does not take it.
TEST(DriverHangOfIssue, ends_waits_for_what_was_never_issued) {
  TransferWorld world;
  ASSERT_TRUE(world.open(small_parts()).ok());
  const auto landmark = world.transfers->landmark(LandmarkKind::issued);
  const CuStream engine = world.cuda.make_stream(1);
  TransferBatch in;
  in.leaves = world.make_leaves(30, 1U << 20, 0, true);
  in.landmark = landmark;
  in.marks = {{in.leaves.size(), 1}};
  world.cuda.block("cuLaunchKernel");
  Outcome outcome = world.scatter(std::move(in));
  (void)world.transfers->wait_on(landmark, 1, engine);
  EXPECT_EQ(outcome.wait(), Code::tier_disabled);
  EXPECT_EQ(world.cuda.blocked(), 1U);
  world.transfers.reset();
  world.cuda.unblock();
}

// A call waits for a lock of the engine's, and the lock's holder for a word. The word is raised, the call returns, the
// device lives.
TEST(DriverHangOfALock, is_ended_by_raising_the_words_that_streams_wait_for) {
  TransferWorld world;
  ASSERT_TRUE(world.open(small_parts()).ok());
  const auto landmark = world.transfers->landmark();
  const CuStream engine = world.cuda.make_stream(1);
  ASSERT_TRUE(world.transfers->wait_on(landmark, 1, engine).ok());
  TransferBatch in;
  in.leaves = world.make_leaves(30, 1U << 20, 0, true);
  for (LeafMove& leaf : in.leaves) leaf.check = false;
  in.landmark = landmark;
  in.marks = {{in.leaves.size(), 1}};
  world.cuda.block("cuLaunchKernel", 1, [&] { return world.cuda.idle(engine); });
  EXPECT_EQ(world.scatter(std::move(in)).wait(), Code::deadline) << "its stream went on before it was there";
  EXPECT_FALSE(world.device->is_lost());
  TransferBatch later;
  later.leaves = world.make_leaves(30, 1U << 20, 0, true);
  EXPECT_EQ(world.gather(std::move(later)).wait(), Code::ok);
}

// A device, and the object that shares its memory with sessions.
struct Shared {
  Shared() {
    work = std::move(ThreadExecutor::create("test", 1)).value();
    device = device::Device::open(cuda.driver(), 0, nullptr, kLimitNs).value();
    share = std::make_unique<DeviceShare>(device, DeviceShare::BootId{1}, std::make_shared<WeakExecutor>(*work));
  }
  // The device's thread may hold the device for a moment.
  ~Shared() { (void)device::has_run(*device->thread(), kLimitNs); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  Result<SharedMemory> made() {
    return wait([&](DeviceShare::Done done) { share->share(kBytes, std::move(done)); });
  }
  Result<SharedMemory> mapped(ConstBytes said) {
    return wait([&](DeviceShare::Done done) { share->map(said, kBytes, std::move(done)); });
  }
  template <class Call>
  Result<SharedMemory> wait(Call&& call) {
    auto promise = std::make_shared<std::promise<Result<SharedMemory>>>();
    auto future = promise->get_future();
    call([promise](Result<SharedMemory> result) { promise->set_value(std::move(result)); });
    return future.get();
  }
  static constexpr uint64_t kBytes = 64 << 10;
  FakeCuda cuda;
  std::unique_ptr<ThreadExecutor> work;  // of the links
  std::shared_ptr<device::Device> device;
  std::unique_ptr<DeviceShare> share;
};

// Calls that hang in the driver block neither a session nor the thread of its links.
TEST(DriverHangOfSharing, answers_all_that_sessions_ask) {
  for (const char* entry : {"cuMemAlloc", "cuIpcGetMemHandle", "cuIpcOpenMemHandle", "cuCtxPushCurrent"}) {
    SCOPED_TRACE(entry);
    Shared side;
    const bool opens = std::strcmp(entry, "cuIpcOpenMemHandle") == 0;
    auto memory = opens ? side.made() : Result<SharedMemory>(Status(Code::internal, "not asked"));
    side.cuda.block(entry);
    const auto answer = opens ? side.mapped(memory.value().said) : side.made();
    EXPECT_EQ(answer.status().code(), Code::tier_disabled) << answer.status().message();
    EXPECT_EQ(side.cuda.blocked(), 1U);
    side.cuda.unblock();
  }
  for (const char* entry : {"cuMemFree", "cuIpcCloseMemHandle"}) {
    SCOPED_TRACE(entry);
    Shared side;
    auto memory = side.made();
    auto mapped = side.mapped(memory.value().said);
    ASSERT_TRUE(mapped.ok());
    side.cuda.block(entry);
    mapped = memory = Status(Code::internal, "released");  // by a session, on any thread
    while (side.cuda.blocked() == 0) std::this_thread::yield();
    EXPECT_FALSE(side.made().ok());
    side.cuda.unblock();
  }
}

}  // namespace
}  // namespace kvbm::test::driver_hangs_test
