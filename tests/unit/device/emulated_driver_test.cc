// Emulated kernels behind the fake driver's table, as device/kernels/kernel_set launches them.
#include <gtest/gtest.h>

#include "kernel_cases.h"
#include "support/cuda_emulation/fake_kernels.h"

namespace kvbm::device::emulated_driver_test {
namespace {

class EmulatedDriver : public testing::Test {
 protected:
  void SetUp() override {
    test::add_emulated_kernels(fake_);
    ASSERT_EQ(driver_.cuInit(0), kCuSuccess);
    ASSERT_EQ(driver_.cuDevicePrimaryCtxRetain(&context_, 0), kCuSuccess);
    ASSERT_EQ(driver_.cuCtxPushCurrent(context_), kCuSuccess);
    ASSERT_EQ(driver_.cuModuleLoadData(&module_, driver_.own_kernels), kCuSuccess);
    ASSERT_EQ(driver_.cuStreamCreateWithPriority(&stream_, kCuStreamNonBlocking, 0), kCuSuccess);
  }
  void TearDown() override {
    CuContext popped = nullptr;
    driver_.cuCtxPopCurrent(&popped);
  }

  CuPointer device_memory(size_t bytes) {
    CuPointer pointer = 0;
    EXPECT_EQ(driver_.cuMemAlloc(&pointer, bytes), kCuSuccess);
    return pointer;
  }

  // Gathers a contiguous leaf of 1000 bytes of device memory into `record`.
  CuResult gather(CuPointer from, CuPointer record, CuPointer hashes) {
    const LeafJob job = make_leaf_job(make_run(from, 1000, 1, 0, 0), 1, record, false, 0);
    CuPointer jobs = device_memory(sizeof job);
    EXPECT_EQ(driver_.cuMemcpyAsync(jobs, address_of(&job), sizeof job, stream_), kCuSuccess);
    CuFunction function = nullptr;
    EXPECT_EQ(driver_.cuModuleGetFunction(&function, module_, "kvbm_gather_leaves"), kCuSuccess);
    uint32_t count = 1, warps = warps_for(job.bytes);
    void* parameters[] = {&jobs, &count, &warps, &hashes};
    EXPECT_EQ(driver_.cuLaunchKernel(function, 1, 1, 1, kBlockThreads, 1, 1, 0, stream_, parameters, nullptr),
              kCuSuccess);
    return driver_.cuStreamSynchronize(stream_);
  }

  test::FakeCuda fake_;
  const Driver& driver_ = fake_.driver();
  CuContext context_ = nullptr;
  CuModule module_ = nullptr;
  CuStream stream_ = nullptr;
};

TEST_F(EmulatedDriver, launches_a_kernel_on_device_and_pinned_memory) {
  SeededRandom random(41);
  const std::vector<std::byte> bytes = random_bytes(1000, random);
  const CuPointer from = device_memory(1000);
  void* record = nullptr;
  void* hash = nullptr;
  ASSERT_EQ(driver_.cuMemHostAlloc(&record, 1000, kCuHostPortable | kCuHostDeviceMap), kCuSuccess);
  ASSERT_EQ(driver_.cuMemHostAlloc(&hash, 8, kCuHostPortable | kCuHostDeviceMap), kCuSuccess);
  ASSERT_EQ(driver_.cuMemcpyAsync(from, address_of(bytes.data()), bytes.size(), stream_), kCuSuccess);
  CuPointer record_there = 0, hash_there = 0;
  ASSERT_EQ(driver_.cuMemHostGetDevicePointer(&record_there, record, 0), kCuSuccess);
  ASSERT_EQ(driver_.cuMemHostGetDevicePointer(&hash_there, hash, 0), kCuSuccess);
  ASSERT_EQ(gather(from, record_there, hash_there), kCuSuccess);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), static_cast<const std::byte*>(record)));
  EXPECT_EQ(load_le<uint64_t>(static_cast<const std::byte*>(hash)), codec::leaf_hash_reference(bytes));
}

// Expects the behaviour of a device: nothing is written outside the allowed memory, and the context is lost.
TEST_F(EmulatedDriver, memory_out_of_reach_is_an_illegal_address) {
  std::vector<std::byte> ordinary(1000);
  const CuPointer from = device_memory(1000);
  EXPECT_EQ(gather(from, address_of(ordinary.data()), device_memory(8)), kCuIllegalAddress);
  EXPECT_EQ(std::count(ordinary.begin(), ordinary.end(), std::byte{0}), 1000);
  EXPECT_EQ(driver_.cuStreamSynchronize(stream_), kCuIllegalAddress);
}

}  // namespace
}  // namespace kvbm::device::emulated_driver_test
