// Device memory that network cards reach: what the device supports, and the steps before kernels read what a card has
// written.
#include "device/memory/direct_memory.h"

#include <gtest/gtest.h>

#include "support/cuda_emulation/fake_kernels.h"

namespace kvbm::test::direct_memory_test {
namespace {

using namespace device;

struct World {
  explicit World(const FakeDevice& what = {}) {
    FakeCudaOptions options;
    options.devices = {what};
    cuda = std::make_unique<FakeCuda>(options);
    add_emulated_kernels(*cuda);
    device = Device::open(cuda->driver(), 0, nullptr).value();
  }
  ~World() { device.reset(); }
  std::unique_ptr<FakeCuda> cuda;
  std::shared_ptr<Device> device;
};

void expect_refused(const Status& status, Code code, const std::string& words) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
}

TEST(DirectMemory, is_the_devices_own_and_its_copies_are_waited_for) {
  World w;
  auto memory = allocate_direct(w.device, 1 << 20, true, false);
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_EQ(memory.value()->bytes(), 1U << 20);
  EXPECT_EQ(w.cuda->calls("cuPointerSetAttribute"), 1U);
  EXPECT_EQ(w.cuda->left(0).device_bytes, 1U << 20);
  memory.value().reset();
  EXPECT_EQ(w.cuda->left(0).device_bytes, 0U);
}

TEST(DirectMemory, dma_buf_alone_is_enough) {
  FakeDevice what;
  what.direct_rdma = false;
  World w(what);
  EXPECT_TRUE(allocate_direct(w.device, 4096, true, false).ok());
}

TEST(DirectMemory, of_a_device_that_no_card_reaches_is_made_only_for_who_insists) {
  FakeDevice what;
  what.direct_rdma = what.dma_buf = false;
  World w(what);
  expect_refused(allocate_direct(w.device, 4096, false, false).status(), Code::unsupported, "device 0");
  EXPECT_EQ(w.cuda->calls("cuMemAlloc"), 0U);
  EXPECT_TRUE(allocate_direct(w.device, 4096, true, true).ok());
}

TEST(DirectMemory, that_kernels_could_not_read_in_time_is_not_written_whoever_insists) {
  FakeDevice what;
  what.direct_ordering = kCuOrderingNone;
  what.direct_flushes = 0;
  World w(what);
  for (const bool insists : {false, true}) {
    expect_refused(allocate_direct(w.device, 4096, true, insists).status(), Code::unsupported, "can be read");
    EXPECT_TRUE(allocate_direct(w.device, 4096, false, insists).ok()) << "nobody writes there";
  }
}

TEST(DirectMemory, what_was_written_is_flushed_where_the_device_does_not_order_it) {
  for (const int ordering : {kCuOrderingNone, kCuOrderingOwner, kCuOrderingAllDevices}) {
    FakeDevice what;
    what.direct_ordering = ordering;
    World w(what);
    EXPECT_TRUE(settle_direct_writes(*w.device).ok());
    EXPECT_EQ(w.cuda->calls("cuFlushGPUDirectRDMAWrites"), ordering == kCuOrderingNone ? 1U : 0U);
  }
}

TEST(DirectMemory, failures_give_back_what_there_was) {
  World w;
  w.cuda->fail("cuPointerSetAttribute", 1, kCuNotSupported);
  EXPECT_FALSE(allocate_direct(w.device, 4096, false, false).ok());
  EXPECT_EQ(w.cuda->left(0).device_bytes, 0U);
  w.cuda->fail("cuMemAlloc", 1, kCuOutOfMemory);
  EXPECT_EQ(allocate_direct(w.device, 4096, false, false).status().code(), Code::no_memory);
}

TEST(DirectMemory, a_lost_device_says_so) {
  FakeDevice what;
  what.direct_ordering = kCuOrderingNone;
  World w(what);
  w.cuda->lose(0);
  EXPECT_EQ(allocate_direct(w.device, 4096, false, false).status().code(), Code::tier_disabled);
  EXPECT_EQ(settle_direct_writes(*w.device).code(), Code::tier_disabled);
}

}  // namespace
}  // namespace kvbm::test::direct_memory_test
