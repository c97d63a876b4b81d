// When the UCX module says that device memory may be given to it.
#include "../../../ucx_transport/device_memory.h"

#include <gtest/gtest.h>

namespace kvbm::ucx {
namespace {

constexpr uint64_t kHost = 1, kManaged = 1 << 2, kRocm = 1 << 3;

TEST(UcxDeviceMemory, is_offered_where_hardware_moves_it) {
  EXPECT_TRUE(offers_device_memory(kHost | kCudaMemory, true));
  EXPECT_TRUE(offers_device_memory(kHost | kCudaMemory | kManaged, true));
}

TEST(UcxDeviceMemory, is_not_offered_where_ucx_would_copy_it_through_the_host) {
  EXPECT_FALSE(offers_device_memory(kHost | kCudaMemory, false));
  EXPECT_TRUE(knows_device_memory(kHost | kCudaMemory));
}

TEST(UcxDeviceMemory, is_not_offered_by_a_ucx_without_cuda_or_a_machine_without_its_driver) {
  for (const uint64_t types : {uint64_t{0}, kHost, kHost | kRocm, kHost | kManaged}) {
    EXPECT_FALSE(offers_device_memory(types, true)) << types;
    EXPECT_FALSE(knows_device_memory(types)) << types;
  }
}

}  // namespace
}  // namespace kvbm::ucx
