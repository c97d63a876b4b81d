// Refuses host memory at each point of an allocation on a device: nothing stays open, allocated or registered there.
// Also tests releases that the driver refuses. They need no memory, because a destructor that is refused some ends the
// process.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>

#include "device/coder/block_coder.h"
#include "device/coder/coder_room.h"
#include "device/memory/device_memory.h"
#include "device/memory/ipc.h"
#include "device/memory/own_memory.h"
#include "device/memory/pinned_host.h"
#include "device/transfer/landmark.h"
#include "device/transfer/staging.h"
#include "device/transfer/stream_point.h"
#include "support/counts.h"
#include "support/cuda_emulation/fake_kernels.h"
#include "support/refusing_allocator.h"

namespace kvbm::test::device_memory_test {
namespace {

using namespace device;

constexpr uint64_t kSeveral = 1000;  // allocations: more than any of these makes

// Returns the bytes of mapped pages, as the system counts them.
uint64_t mapped_bytes() {
  unsigned long long pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%llu", &pages) != 1) ADD_FAILURE() << "/proc/self/statm says nothing";
  if (file != nullptr) std::fclose(file);
  return pages * 4096;
}

class DeviceMemoryFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    fault.where = Place::caller;
    fake_ = std::make_unique<FakeCuda>();
    add_emulated_kernels(*fake_);
    device_ = Device::open(fake_->driver(), 0, nullptr).value();
  }
  void TearDown() override {
    device_.reset();
    fake_.reset();
  }

  void expect_as_before(const FakeCuda::Left& before, const std::string& when) const {
    const FakeCuda::Left now = fake_->left(0);
    EXPECT_EQ(now.device_allocations, before.device_allocations) << when;
    EXPECT_EQ(now.registrations, before.registrations) << when;
    EXPECT_EQ(now.ipc_mappings, before.ipc_mappings) << when;
    EXPECT_EQ(now.streams, before.streams) << when;
    EXPECT_EQ(now.events, before.events) << when;
    EXPECT_EQ(now.modules, before.modules) << when;
    EXPECT_EQ(now.contexts, before.contexts) << when;
  }

  // Calls `make` and drops its objects, each time with another allocation refused, until it makes no more.
  void refuse_each(const std::function<void()>& make) {
    make();  // allocates objects that a process makes once
    const FakeCuda::Left before = fake_->left(0);
    uint64_t refused = 0;
    for (uint64_t n = 1;; ++n) {
      ASSERT_LT(n, kSeveral);
      fault.seen = 0;
      fault.at = n;
      fault.fired = false;
      try {
        const InPlace here(Place::caller);
        fault.counting = true;
        make();
      } catch (const std::bad_alloc&) {
        ++refused;
      }
      fault.counting = false;
      expect_as_before(before, "allocation " + std::to_string(n) + " was refused");
      if (!fault.fired) break;
    }
    EXPECT_GT(refused, 0U);
    counted(refused, "allocations refused");
  }

  // Drops an object while the driver refuses `entry`.
  template <class T>
  void drop_refused(T what, const std::string& entry, CuResult result) {
    const uint64_t calls = fake_->calls(entry);
    fake_->fail(entry, 1, result);
    fault.seen = 0;
    fault.at = 1;
    fault.fired = false;
    {
      const InPlace here(Place::caller);
      fault.counting = true;
      what.reset();
      fault.counting = false;
    }
    EXPECT_GT(fake_->calls(entry), calls) << entry;
    EXPECT_EQ(fault.seen.load(), 0U) << entry;
  }

  std::unique_ptr<FakeCuda> fake_;
  std::shared_ptr<Device> device_;
};

TEST_F(DeviceMemoryFaults, a_device_that_is_not_opened_leaves_no_context_and_no_module) {
  device_.reset();
  refuse_each([this] { (void)Device::open(fake_->driver(), 0, nullptr).ok(); });
}

TEST_F(DeviceMemoryFaults, another_process_s_memory_does_not_stay_mapped) {
  IpcMappings mappings(device_);
  const IpcMemory said = export_memory(*device_, fake_->allocate(0, 4096), 4096).value();
  refuse_each([&] {
    if (mappings.open(said).ok()) return;
    ADD_FAILURE() << "refused, but not by an exception";
  });
  EXPECT_EQ(mappings.allocations(), 0U);
  EXPECT_TRUE(mappings.open(said).ok());
}

TEST_F(DeviceMemoryFaults, memory_does_not_stay_allocated_or_registered) {
  refuse_each([this] { (void)DeviceMemory::allocate(device_, 1000).ok(); });
  refuse_each([this] { (void)OwnMemory::allocate(device_, 1000).ok(); });
  constexpr uint64_t kMuch = 256ULL << 20;
  const uint64_t before = mapped_bytes();
  refuse_each([this] { (void)PinnedMemory::allocate(device_, kMuch).ok(); });
  EXPECT_LT(mapped_bytes(), before + kMuch);
}

TEST_F(DeviceMemoryFaults, what_transfers_and_coders_are_made_of_does_not_stay) {
  refuse_each([this] { (void)Staging::create(device_, 2, 65536, 16, true).ok(); });
  refuse_each([this] { (void)CoderRoom::create(device_, {}).ok(); });
  auto memory = PinnedMemory::allocate(device_, 1 << 16).value();
  const MutableBytes host(memory->data(), 1 << 16);
  refuse_each([&] { (void)PinnedHost::pin(device_, host, 2).ok(); });
  const auto landmarks = std::make_shared<LandmarkPool>(device_);
  const CuStream stream = fake_->make_stream(0);
  refuse_each([&] { (void)StreamPoint::take(device_, *landmarks, stream).ok(); });
}

TEST_F(DeviceMemoryFaults, ends_that_the_driver_refuses_need_no_memory) {
  const CuPointer theirs = fake_->allocate(0, 4096);
  IpcMappings mappings(device_);
  const auto others = [&] { return mappings.open(export_memory(*device_, theirs, 4096).value()).value(); };
  drop_refused(DeviceMemory::allocate(device_, 1000).value(), "cuMemFree", kCuInvalidValue);
  drop_refused(OwnMemory::allocate(device_, 1000).value(), "cuMemFree", kCuInvalidValue);
  drop_refused(PinnedMemory::allocate(device_, 1000).value(), "cuMemHostUnregister", kCuInvalidValue);
  drop_refused(Staging::create(device_, 2, 65536, 16, true).value(), "cuEventDestroy", kCuInvalidValue);
  drop_refused(Staging::create(device_, 2, 65536, 16, true).value(), "cuStreamDestroy", kCuInvalidValue);
  drop_refused(CoderRoom::create(device_, {}).value(), "cuEventDestroy", kCuInvalidValue);
  drop_refused(CoderRoom::create(device_, {}).value(), "cuStreamDestroy", kCuInvalidValue);
  drop_refused(others(), "cuIpcCloseMemHandle", kCuInvalidValue);
  EXPECT_FALSE(device_->is_lost());
  // A result that loses the device loses it here too.
  drop_refused(others(), "cuIpcCloseMemHandle", kCuIllegalAddress);
  EXPECT_TRUE(device_->is_lost());
  EXPECT_NE(device_->lost_why().find("cuIpcCloseMemHandle"), std::string::npos) << device_->lost_why();
}

TEST_F(DeviceMemoryFaults, landmarks_are_given_back_without_memory) {
  const auto pool = std::make_shared<LandmarkPool>(device_);
  std::vector<std::shared_ptr<Landmark>> all;
  for (int i = 0; i < 200; ++i) all.push_back(pool->take());  // from several allocations, all in use at a time
  fault.seen = 0;
  fault.at = 1;
  fault.fired = false;
  {
    const InPlace here(Place::caller);
    fault.counting = true;
    all.clear();
    fault.counting = false;
  }
  EXPECT_EQ(fault.seen.load(), 0U);
}

}  // namespace
}  // namespace kvbm::test::device_memory_test
