#include "device/memory/device_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <vector>

#include "device/memory/own_memory.h"
#include "support/fake_cuda/fake_cuda.h"

namespace device_memory_test {
namespace {

using namespace kvbm;
using namespace kvbm::device;
using kvbm::test::FakeCuda;
using kvbm::test::FakeCudaOptions;

const void* at(CuPointer pointer) { return reinterpret_cast<const void*>(pointer); }

std::string hex(CuPointer pointer) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", pointer);
  return text;
}

class DeviceMemoryTest : public ::testing::Test {
 protected:
  DeviceMemoryTest()
      : fake_([] {
          FakeCudaOptions options;
          options.devices.resize(2);
          return options;
        }()) {}
  void SetUp() override {
    auto device = Device::open(fake_.driver(), 0, nullptr);
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = device.value();
  }
  std::string refusal(const void* pointer, uint64_t bytes) {
    const Status status = check_device_extent(*device_, pointer, bytes, "tensor 3 of part 0");
    EXPECT_EQ(status.code(), Code::invalid_argument);
    const std::string text = status.message();
    EXPECT_NE(text.find("tensor 3 of part 0"), std::string::npos) << text;
    return text;
  }
  bool accepts(const void* pointer, uint64_t bytes) {
    return check_device_extent(*device_, pointer, bytes, "tensor").ok();
  }

  FakeCuda fake_;
  std::shared_ptr<Device> device_;
};

TEST_F(DeviceMemoryTest, tells_what_a_pointer_is) {
  const Driver& cuda = fake_.driver();
  const CuPointer own = fake_.allocate(0, 1000), other = fake_.allocate(1, 1000),
                  managed = fake_.allocate_managed(0, 8);
  const PointerFacts facts = pointer_facts(cuda, at(own + 999));
  EXPECT_EQ(facts.kind, PointerKind::device);
  EXPECT_EQ(facts.ordinal, 0);
  EXPECT_EQ(facts.start, own);
  EXPECT_EQ(facts.bytes, 1000U);
  EXPECT_EQ(pointer_facts(cuda, at(other)).ordinal, 1);
  EXPECT_EQ(pointer_facts(cuda, at(managed)).kind, PointerKind::managed);
  EXPECT_EQ(pointer_facts(cuda, at(own + 1000)).kind, PointerKind::host);
  EXPECT_EQ(pointer_facts(cuda, &facts).kind, PointerKind::host);
  EXPECT_EQ(pointer_facts(cuda, nullptr).kind, PointerKind::host);
  auto pinned = PinnedMemory::allocate(device_, 4096);
  ASSERT_TRUE(pinned.ok());
  EXPECT_EQ(pointer_facts(cuda, pinned.value()->data() + 4095).kind, PointerKind::pinned);
}

TEST_F(DeviceMemoryTest, accepts_an_extent_that_is_wholly_on_the_device) {
  const CuPointer own = fake_.allocate(0, 1000);
  EXPECT_TRUE(accepts(at(own), 1000));
  EXPECT_TRUE(accepts(at(own + 999), 1));
}

TEST_F(DeviceMemoryTest, refuses_a_pointer_of_another_device) {
  const CuPointer other = fake_.allocate(1, 64);
  const std::string text = refusal(at(other), 64);
  EXPECT_NE(text.find("is on device 1; the cache is on device 0"), std::string::npos) << text;
  EXPECT_NE(text.find("[" + hex(other) + ", " + hex(other + 64) + ")"), std::string::npos) << text;
}

TEST_F(DeviceMemoryTest, refuses_what_the_driver_does_not_know) {
  const std::vector<char> host(64);
  EXPECT_NE(refusal(host.data(), 64).find("is host memory: the driver does not know it"), std::string::npos);
  EXPECT_NE(refusal(nullptr, 64).find("is no range"), std::string::npos);
  const CuPointer own = fake_.allocate(0, 64);
  EXPECT_NE(refusal(at(own), 0).find("is no range"), std::string::npos);
  EXPECT_NE(refusal(at(own), UINT64_MAX).find("is no range"), std::string::npos);
}

TEST_F(DeviceMemoryTest, refuses_host_and_managed_memory) {
  auto pinned = PinnedMemory::allocate(device_, 4096);
  ASSERT_TRUE(pinned.ok());
  EXPECT_NE(refusal(pinned.value()->data(), 64).find("is pinned host memory"), std::string::npos);
  EXPECT_NE(refusal(at(fake_.allocate_managed(0, 64)), 64).find("is managed memory"), std::string::npos);
}

TEST_F(DeviceMemoryTest, refuses_an_extent_that_ends_too_late) {
  const CuPointer own = fake_.allocate(0, 1000);
  const std::string text = refusal(at(own + 10), 1000);
  EXPECT_NE(text.find("ends at " + hex(own + 1000) + ", 10 bytes before it"), std::string::npos) << text;
}

TEST_F(DeviceMemoryTest, follows_memory_that_is_mapped_piece_by_piece) {
  const CuPointer pieces = fake_.allocate_in_pieces(0, 8192, 4);
  EXPECT_TRUE(accepts(at(pieces), 4 * 8192));
  EXPECT_TRUE(accepts(at(pieces + 8000), 16384));
  // The range stays reserved if a piece is freed: only the mapping tells.
  fake_.free(pieces + 2 * 8192);
  EXPECT_EQ(reach_of(fake_.driver(), at(pieces), 4 * 8192, 0), 2 * 8192U);
  const std::string text = refusal(at(pieces), 4 * 8192);
  EXPECT_NE(text.find("ends at " + hex(pieces + 2 * 8192)), std::string::npos) << text;
}

TEST_F(DeviceMemoryTest, freed_memory_is_refused) {
  const CuPointer own = fake_.allocate(0, 64);
  EXPECT_TRUE(accepts(at(own), 64));
  fake_.free(own);
  EXPECT_FALSE(accepts(at(own), 64));
}

TEST_F(DeviceMemoryTest, allocates_and_gives_back) {
  {
    auto memory = DeviceMemory::allocate(device_, 5000);
    ASSERT_TRUE(memory.ok());
    EXPECT_TRUE(fake_.reaches(0, at(memory.value()->address()), 5000, true));
    EXPECT_EQ(fake_.left(0).device_bytes, 5000U);
    auto pinned = PinnedMemory::allocate(device_, 5000);
    ASSERT_TRUE(pinned.ok());
    EXPECT_TRUE(fake_.reaches(0, pinned.value()->data(), 5000, true));
    EXPECT_EQ(pinned.value()->data()[4999], std::byte{0});
    EXPECT_NE(pinned.value()->device_pointer(), 0U);
    EXPECT_EQ(fake_.left(0).registrations, 1U);
  }
  EXPECT_EQ(fake_.left(0).device_bytes + fake_.left(0).registrations, 0U);
}

TEST_F(DeviceMemoryTest, refusals_are_statuses_and_leave_nothing) {
  EXPECT_EQ(DeviceMemory::allocate(device_, 1ULL << 40).status().code(), Code::no_memory);
  fake_.fail("cuMemHostRegister", 1, kCuOutOfMemory);
  EXPECT_EQ(PinnedMemory::allocate(device_, 100).status().code(), Code::no_memory);
  fake_.fail("cuMemHostRegister", 1, kCuNotPermitted);
  EXPECT_EQ(PinnedMemory::allocate(device_, 100).status().code(), Code::not_permitted);
  fake_.fail("cuMemHostGetDevicePointer", 1, kCuInvalidValue);
  EXPECT_FALSE(PinnedMemory::allocate(device_, 100).ok());
  EXPECT_EQ(fake_.left(0).registrations, 0U);
  EXPECT_FALSE(device_->is_lost());
}

TEST_F(DeviceMemoryTest, pinned_memory_outlives_the_context) {
  auto pinned = PinnedMemory::allocate(device_, 4096);
  auto memory = DeviceMemory::allocate(device_, 64);
  ASSERT_TRUE(pinned.ok() && memory.ok());
  fake_.destroy_context(0);
  std::memset(pinned.value()->data(), 7, 4096);  // the CPU still has it
  EXPECT_EQ(DeviceMemory::allocate(device_, 1).status().code(), Code::tier_disabled);
  EXPECT_EQ(PinnedMemory::allocate(device_, 1).status().code(), Code::tier_disabled);
}

TEST_F(DeviceMemoryTest, refusals_of_a_lost_device_say_what_lost_it) {
  device_->lose("cuEventSynchronize behind a transfer", 700);
  const std::string why = device_->lost_why();
  ASSERT_NE(why.find("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), std::string::npos) << why;
  for (const Status& status :
       {DeviceMemory::allocate(device_, 64).status(), PinnedMemory::allocate(device_, 64).status(),
        OwnMemory::allocate(device_, 64).status()}) {
    EXPECT_EQ(status.code(), Code::tier_disabled);
    EXPECT_EQ(status.message(), "the device is lost: " + why);
  }
}

}  // namespace
}  // namespace device_memory_test
