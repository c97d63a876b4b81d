#include "device/memory/pinned_host.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "device/memory/device_memory.h"
#include "support/fake_cuda/fake_cuda.h"

namespace pinned_host_test {
namespace {

using namespace kvbm;
using namespace kvbm::device;
using kvbm::test::FakeCuda;

// Pages of this test's own, unmapped at the end.
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
  Code refusal(MutableBytes memory) {
    auto pinned = PinnedHost::pin(device_, memory, 2);
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
    auto pinned = PinnedHost::pin(device_, memory, 4);
    ASSERT_TRUE(pinned.ok()) << pinned.status().message();
    EXPECT_TRUE(fake_.reaches(0, memory.data(), memory.size(), true));
    EXPECT_TRUE(pinned.value()->owns_registration());
    EXPECT_EQ(pinned.value()->bytes(), memory.size());
    EXPECT_EQ(pinned.value()->stripes(), 1U);
    EXPECT_EQ(fake_.calls("cuMemHostRegister"), 1U) << "without a unit it is registered as one";
  }
  EXPECT_FALSE(fake_.reaches(0, memory.data(), memory.size(), false));
  EXPECT_EQ(fake_.left(0).registrations, 0U);
}

TEST_F(PinnedHostTest, addresses_are_those_of_what_is_wholly_inside) {
  const Pages pages(8192);
  const MutableBytes memory = pages.bytes();
  auto made = PinnedHost::pin(device_, memory, 1);
  ASSERT_TRUE(made.ok());
  const PinnedHost& pinned = *made.value();
  const CuPointer base = pinned.place(memory.data(), 8192).address;
  EXPECT_NE(base, 0U);
  EXPECT_EQ(pinned.place(memory.data() + 100, 8092).address, base + 100);
  EXPECT_EQ(pinned.place(memory.data() + 100, 8093).address, 0U);
  EXPECT_EQ(pinned.place(memory.data() - 1, 1).address, 0U);
  EXPECT_EQ(pinned.place(memory.data() + 8192, 1).address, 0U);
  EXPECT_EQ(pinned.place(memory.data(), UINT64_MAX).address, 0U);
  EXPECT_EQ(pinned.place(nullptr, 1).address, 0U);
}

TEST_F(PinnedHostTest, several_threads_bring_pages_in_and_keep_their_bytes) {
  const Pages pages(256ULL << 20);  // four shares
  const MutableBytes memory = pages.bytes();
  memory[5] = std::byte{5};
  memory[200ULL << 20] = std::byte{6};
  auto pinned = PinnedHost::pin(device_, memory, 4);
  ASSERT_TRUE(pinned.ok()) << pinned.status().message();
  EXPECT_EQ(memory[5], std::byte{5});
  EXPECT_EQ(memory[200ULL << 20], std::byte{6});
}

constexpr uint64_t kUnit = 12ULL << 10;
constexpr uint64_t kUnits = (256ULL << 20) / kUnit;  // four shares

TEST_F(PinnedHostTest, stripes_of_whole_units_are_registered_by_the_threads) {
  const Pages pages(kUnits * kUnit);
  const MutableBytes memory = pages.bytes();
  {
    auto made = PinnedHost::pin(device_, memory, 4, kUnit);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const PinnedHost& pinned = *made.value();
    EXPECT_EQ(pinned.stripes(), 3U)
        << "a stripe has at least 64 MiB, and units of 12 KiB leave a little less than four";
    EXPECT_EQ(fake_.calls("cuMemHostRegister"), pinned.stripes());
    EXPECT_TRUE(pinned.owns_registration());
    size_t borders = 0;
    for (uint64_t unit = 0; unit < kUnits; ++unit) {
      std::byte* const at = memory.data() + unit * kUnit;
      const PinnedHost::Place place = pinned.place(at, kUnit);
      ASSERT_NE(place.address, 0U) << "no unit is cut in two";
      if (unit == 0) continue;
      const bool same = pinned.place(at - 1, 1).range == place.range;
      borders += same ? 0 : 1;
      ASSERT_EQ(pinned.place(at - 1, 2).address != 0, same) << "a border is where nothing is in one range";
    }
    EXPECT_EQ(borders, pinned.stripes() - 1);
    EXPECT_TRUE(fake_.reaches(0, memory.data(), memory.size(), true));
    EXPECT_EQ(pinned.place(memory.data() + memory.size(), 0).address, 0U);
  }
  EXPECT_EQ(fake_.left(0).registrations, 0U);
}

// No call of the driver registers more than the limit, however few threads there are.
TEST_F(PinnedHostTest, stripes_have_a_most) {
  const Pages pages(kUnits * kUnit);
  const MutableBytes memory = pages.bytes();
  constexpr uint64_t kMost = (16ULL << 20) + 5;  // not a multiple of the unit
  for (const uint32_t threads : {1U, 3U}) {
    const uint64_t before = fake_.calls("cuMemHostRegister");
    auto made = PinnedHost::pin(device_, memory, threads, kUnit, kMost);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const PinnedHost& pinned = *made.value();
    constexpr uint64_t kStripe = kMost / kUnit * kUnit;
    EXPECT_EQ(pinned.stripes(), (memory.size() + kStripe - 1) / kStripe);
    EXPECT_EQ(fake_.calls("cuMemHostRegister") - before, pinned.stripes());
    for (uint64_t at = 0; at < memory.size(); at += kUnit) {
      ASSERT_EQ(pinned.place(memory.data() + at, kUnit).range, address_of(memory.data() + at / kStripe * kStripe));
    }
    EXPECT_TRUE(fake_.reaches(0, memory.data(), memory.size(), true));
  }
  EXPECT_EQ(fake_.left(0).registrations, 0U);
  // Units are not cut, and no stripe is begun after a refused one.
  auto units = PinnedHost::pin(device_, memory.first(4 * kUnit), 1, kUnit, 1);
  ASSERT_TRUE(units.ok()) << units.status().message();
  EXPECT_EQ(units.value()->stripes(), 4U);
  units.value().reset();
  const uint64_t before = fake_.calls("cuMemHostRegister");
  fake_.fail("cuMemHostRegister", 2, kCuOutOfMemory);
  EXPECT_EQ(PinnedHost::pin(device_, memory.first(4 * kUnit), 1, kUnit, 1).status().code(), Code::no_memory);
  EXPECT_EQ(fake_.calls("cuMemHostRegister") - before, 2U);
  EXPECT_EQ(fake_.left(0).registrations, 0U);
}

TEST_F(PinnedHostTest, a_stripe_that_is_refused_ends_the_others) {
  const Pages pages(kUnits * kUnit);
  for (uint64_t nth = 1; nth <= 3; ++nth) {
    fake_.fail("cuMemHostRegister", nth, kCuOutOfMemory);
    auto pinned = PinnedHost::pin(device_, pages.bytes(), 4, kUnit);
    EXPECT_EQ(pinned.status().code(), Code::no_memory);
    EXPECT_EQ(fake_.left(0).registrations, 0U);
    fake_.fail("cuMemHostGetDevicePointer", nth, kCuInvalidValue);
    EXPECT_EQ(PinnedHost::pin(device_, pages.bytes(), 4, kUnit).status().code(), Code::internal);
    EXPECT_EQ(fake_.left(0).registrations, 0U);
  }
  EXPECT_FALSE(device_->is_lost());
  // A stripe that the engine has registered is accepted, and left; half of one is not.
  const Device::Scope scope(*device_);
  const MutableBytes memory = pages.bytes();
  ASSERT_EQ(fake_.driver().cuMemHostRegister(memory.data(), memory.size(), kCuHostPortable), kCuSuccess);
  {
    auto pinned = PinnedHost::pin(device_, memory, 4, kUnit);
    ASSERT_TRUE(pinned.ok()) << pinned.status().message();
    EXPECT_FALSE(pinned.value()->owns_registration());
  }
  EXPECT_EQ(fake_.driver().cuMemHostUnregister(memory.data()), kCuSuccess);
  ASSERT_EQ(fake_.driver().cuMemHostRegister(memory.data() + memory.size() - 4096, 4096, 0), kCuSuccess);
  EXPECT_EQ(PinnedHost::pin(device_, memory, 4, kUnit).status().code(), Code::in_use);
  EXPECT_EQ(fake_.left(0).registrations, 1U);
  EXPECT_EQ(fake_.driver().cuMemHostUnregister(memory.data() + memory.size() - 4096), kCuSuccess);
}

TEST_F(PinnedHostTest, what_the_engine_registered_is_taken_and_left) {
  const Pages pages(16384);
  const MutableBytes memory = pages.bytes();
  const Device::Scope scope(*device_);
  ASSERT_EQ(fake_.driver().cuMemHostRegister(memory.data(), 16384, kCuHostPortable), kCuSuccess);
  {
    auto pinned = PinnedHost::pin(device_, memory.subspan(4096, 8192), 1);
    ASSERT_TRUE(pinned.ok()) << pinned.status().message();
    EXPECT_FALSE(pinned.value()->owns_registration());
    EXPECT_NE(pinned.value()->place(memory.data() + 4096, 8192).address, 0U);
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
  ASSERT_EQ(::mprotect(memory.data(), 8192, PROT_READ), 0);
  EXPECT_FALSE(PinnedHost::pin(device_, memory, 1).ok()) << "the device would write there";
  ASSERT_EQ(::mprotect(memory.data(), 8192, PROT_READ | PROT_WRITE), 0);
  EXPECT_EQ(PinnedHost::pin(device_, memory, 1, 100).status().code(), Code::invalid_argument);
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

}  // namespace
}  // namespace pinned_host_test
