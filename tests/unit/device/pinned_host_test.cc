#include "device/pinned_host.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "device/device_memory.h"
#include "support/fake_cuda/fake_cuda.h"

namespace {

using namespace kvbm;
using namespace kvbm::device;
using kvbm::test::FakeCuda;
using kvbm::test::FakeCudaOptions;

// Pages of our own, unmapped at the end.
class Pages {
 public:
  explicit Pages(size_t bytes)
      : bytes_(bytes), data_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(data_, MAP_FAILED);
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  [[nodiscard]] MutableBytes bytes() const { return {static_cast<std::byte*>(data_), bytes_}; }
  void protect(int rights) { EXPECT_EQ(::mprotect(data_, bytes_, rights), 0); }

 private:
  const size_t bytes_;
  void* const data_;
};

class PinnedHostTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = Device::open(fake_.driver(), 0, nullptr);
    ASSERT_TRUE(device.ok()) << device.status().message();
    device_ = device.value();
  }
  Code refusal(MutableBytes memory, bool read_only = false) {
    auto pinned = PinnedHost::pin(device_, memory, read_only, 2);
    EXPECT_FALSE(pinned.ok());
    return pinned.status().code();
  }

  FakeCuda fake_;
  std::shared_ptr<Device> device_;
};

TEST_F(PinnedHostTest, is_reached_by_the_device_while_it_lives) {
  const Pages pages(1 << 20);
  const MutableBytes memory = pages.bytes();
  {
    auto pinned = PinnedHost::pin(device_, memory, false, 4);
    ASSERT_TRUE(pinned.ok()) << pinned.status().message();
    EXPECT_TRUE(fake_.reaches(0, memory.data(), memory.size(), true));
    EXPECT_TRUE(pinned.value()->owns_registration());
    EXPECT_EQ(pinned.value()->bytes(), memory.size());
    EXPECT_EQ(fake_.calls("cuMemHostRegister"), 1U) << "a copy from one registration into the next is refused";
  }
  EXPECT_FALSE(fake_.reaches(0, memory.data(), memory.size(), false));
  EXPECT_EQ(fake_.left(0).registrations, 0U);
}

TEST_F(PinnedHostTest, addresses_are_those_of_what_is_wholly_inside) {
  const Pages pages(8192);
  const MutableBytes memory = pages.bytes();
  auto made = PinnedHost::pin(device_, memory, false, 1);
  ASSERT_TRUE(made.ok());
  const PinnedHost& pinned = *made.value();
  const CuPointer base = pinned.device_pointer(memory.data(), 8192);
  EXPECT_NE(base, 0U);
  EXPECT_EQ(pinned.device_pointer(memory.data() + 100, 8092), base + 100);
  EXPECT_EQ(pinned.device_pointer(memory.data() + 100, 8093), 0U);
  EXPECT_EQ(pinned.device_pointer(memory.data() - 1, 1), 0U);
  EXPECT_EQ(pinned.device_pointer(memory.data() + 8192, 1), 0U);
  EXPECT_EQ(pinned.device_pointer(memory.data(), UINT64_MAX), 0U);
  EXPECT_EQ(pinned.device_pointer(nullptr, 1), 0U);
}

TEST_F(PinnedHostTest, several_threads_bring_pages_in_and_keep_their_bytes) {
  const Pages pages(256ULL << 20);  // four shares
  const MutableBytes memory = pages.bytes();
  memory[5] = std::byte{5};
  memory[200ULL << 20] = std::byte{6};
  auto pinned = PinnedHost::pin(device_, memory, false, 4);
  ASSERT_TRUE(pinned.ok()) << pinned.status().message();
  EXPECT_EQ(memory[5], std::byte{5});
  EXPECT_EQ(memory[200ULL << 20], std::byte{6});
}

TEST_F(PinnedHostTest, memory_of_another_process_is_registered_for_reading) {
  Pages pages(8192);
  pages.protect(PROT_READ);
  EXPECT_FALSE(PinnedHost::pin(device_, pages.bytes(), false, 1).ok());
  auto pinned = PinnedHost::pin(device_, pages.bytes(), true, 1);
  ASSERT_TRUE(pinned.ok()) << pinned.status().message();
  EXPECT_TRUE(fake_.reaches(0, pages.bytes().data(), 8192, false));
  EXPECT_FALSE(fake_.reaches(0, pages.bytes().data(), 8192, true));
}

TEST_F(PinnedHostTest, what_the_engine_registered_is_taken_and_left) {
  const Pages pages(16384);
  const MutableBytes memory = pages.bytes();
  const Device::Scope scope(*device_);
  ASSERT_EQ(fake_.driver().cuMemHostRegister(memory.data(), 16384, kCuHostPortable), kCuSuccess);
  {
    auto pinned = PinnedHost::pin(device_, memory.subspan(4096, 8192), false, 1);
    ASSERT_TRUE(pinned.ok()) << pinned.status().message();
    EXPECT_FALSE(pinned.value()->owns_registration());
    EXPECT_NE(pinned.value()->device_pointer(memory.data() + 4096, 8192), 0U);
  }
  EXPECT_TRUE(fake_.reaches(0, memory.data(), 16384, true)) << "it is the engine's to end";
  EXPECT_EQ(fake_.driver().cuMemHostUnregister(memory.data()), kCuSuccess);
}

TEST_F(PinnedHostTest, what_is_registered_in_part_is_refused) {
  const Pages pages(16384);
  const MutableBytes memory = pages.bytes();
  const Device::Scope scope(*device_);
  for (const size_t from : {size_t{0}, size_t{8192}}) {
    ASSERT_EQ(fake_.driver().cuMemHostRegister(memory.data() + from, 8192, 0), kCuSuccess);
    EXPECT_EQ(refusal(memory), Code::in_use);
    EXPECT_EQ(fake_.driver().cuMemHostUnregister(memory.data() + from), kCuSuccess);
  }
}

TEST_F(PinnedHostTest, failures_are_statuses_and_leave_nothing) {
  const Pages pages(8192);
  const MutableBytes memory = pages.bytes();
  EXPECT_EQ(refusal({}), Code::invalid_argument);
  EXPECT_EQ(refusal(memory.subspan(1)), Code::invalid_argument);
  fake_.fail("cuMemHostRegister", 1, kCuOutOfMemory);
  EXPECT_EQ(refusal(memory), Code::no_memory);
  fake_.fail("cuMemHostRegister", 1, kCuNotPermitted);
  EXPECT_EQ(refusal(memory), Code::not_permitted);
  fake_.fail("cuMemHostGetDevicePointer", 1, kCuInvalidValue);
  EXPECT_EQ(refusal(memory), Code::internal);
  EXPECT_EQ(fake_.left(0).registrations, 0U);
  EXPECT_FALSE(device_->is_lost());
  fake_.fail("cuMemHostRegister", 1, kCuUnknown);
  EXPECT_EQ(refusal(memory), Code::tier_disabled);
  EXPECT_TRUE(device_->is_lost());
  EXPECT_EQ(refusal(memory), Code::tier_disabled);
}

TEST(PinnedHostReadOnlyTest, is_refused_where_the_device_cannot) {
  FakeCudaOptions options;
  options.devices[0].registers_read_only = false;
  FakeCuda fake(options);
  auto device = Device::open(fake.driver(), 0, nullptr);
  ASSERT_TRUE(device.ok());
  const Pages pages(4096);
  const auto pinned = PinnedHost::pin(device.value(), pages.bytes(), true, 1);
  EXPECT_EQ(pinned.status().code(), Code::unsupported);
  EXPECT_EQ(fake.calls("cuMemHostRegister"), 0U);
}

}  // namespace
