// When the UCX module says that device memory may be given to it.
#include "../../../ucx_transport/device_memory.h"

#include "../../../ucx_transport/lanes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/memory/peer_memory.h"
#include "support/temp_dir.h"

namespace kvbm::ucx::ucx_device_memory_test {
namespace {

constexpr uint64_t kHost = 1, kManaged = 1 << 2, kRocm = 1 << 3;

TEST(UcxDeviceMemory, is_offered_where_hardware_moves_it) {
  EXPECT_TRUE(offers_device_memory(kHost | kCudaMemory, true, true));
  EXPECT_TRUE(offers_device_memory(kHost | kCudaMemory | kManaged, true, true));
}

TEST(UcxDeviceMemory, is_not_offered_where_ucx_would_copy_it_through_the_host) {
  EXPECT_FALSE(offers_device_memory(kHost | kCudaMemory, false, true));
  EXPECT_FALSE(offers_device_memory(kHost | kCudaMemory, true, false));
  EXPECT_TRUE(knows_device_memory(kHost | kCudaMemory));
}

TEST(UcxDeviceMemory, is_not_offered_by_a_ucx_without_cuda_or_a_machine_without_its_driver) {
  for (const uint64_t types : {uint64_t{0}, kHost, kHost | kRocm, kHost | kManaged}) {
    EXPECT_FALSE(offers_device_memory(types, true, true)) << types;
    EXPECT_FALSE(knows_device_memory(types)) << types;
  }
}

TEST(UcxDeviceMemory, the_kernels_module_is_found_under_both_names) {
  for (const char* place : {"/module/nvidia_peermem", "/kernel/mm/memory_peers/nv_mem"}) {
    const test::TempDir sys;
    EXPECT_FALSE(has_peer_memory(sys.path()));
    std::filesystem::create_directories(sys.path() + place);
    EXPECT_FALSE(has_peer_memory(sys.path())) << "another module of that name says no version";
    std::ofstream(sys.path() + place + "/version") << "1.0\n";
    EXPECT_TRUE(has_peer_memory(sys.path())) << place;
  }
}

TEST(UcxDeviceMemory, dma_buf_is_used_since_a_version) {
  EXPECT_FALSE(uses_dma_buf(1, 13));
  EXPECT_TRUE(uses_dma_buf(1, 14));
  EXPECT_TRUE(uses_dma_buf(1, 22));
  EXPECT_TRUE(uses_dma_buf(2, 0));
}

// A key as UCX packs it: the domains that hold the memory, its type, and what each of them adds.
std::string key(uint64_t domains, char type) {
  std::string out(reinterpret_cast<const char*>(&domains), sizeof domains);
  return out + type + "rest";
}

TEST(UcxDeviceMemory, a_registration_counts_where_a_card_holds_it) {
  constexpr uint64_t kCards = 0b0110;
  const auto reached = [](const std::string& k) { return is_reached(k.data(), k.size(), kCards); };
  EXPECT_TRUE(reached(key(0b0010, 1)));
  EXPECT_TRUE(reached(key(0b1111, 1)));
  // UCX reports success if any domain takes the memory. Here only CUDA's own domains did (bits 0 and 3), and no network
  // card (bits 1 and 2), so no card reaches it.
  EXPECT_FALSE(reached(key(0b1001, 1)));
  EXPECT_FALSE(reached(key(0, 1)));
  // Memory of another type, and bytes that are no key.
  EXPECT_FALSE(reached(key(0b0010, 0)));
  EXPECT_FALSE(reached(key(0b0010, 1).substr(0, 8)));
  EXPECT_FALSE(reached(""));
}

TEST(UcxDeviceMemory, a_peer_that_only_sockets_reach_is_told_from_one_that_cards_reach) {
  const std::string tcp = "#  lane[0]:  1:tcp/lo.0 md[1]      -> md[1]/tcp/sysdev[255] rma_bw#0 am am_bw#0\n";
  const std::string ipc = tcp + "#  lane[1]:  4:cuda_ipc/cuda.0 md[3] -> md[3]/cuda_ipc/sysdev[255] rma_bw#1\n";
  const std::string card = tcp + "#  lane[1]:  7:rc_mlx5/mlx5_0:1.0 md[5] -> md[5]/ib/sysdev[2] rma_bw#1 am\n";
  const std::string messages = tcp + "#  lane[1]:  7:rc_mlx5/mlx5_0:1.0 md[5] -> md[5]/ib/sysdev[2] am\n";
  EXPECT_FALSE(has_lane(tcp, one_sided));
  EXPECT_FALSE(has_lane(tcp, is_rdma));
  EXPECT_TRUE(has_lane(ipc, one_sided));
  EXPECT_FALSE(has_lane(ipc, is_rdma));
  EXPECT_TRUE(has_lane(card, is_rdma));
  EXPECT_FALSE(has_lane(messages, is_rdma)) << "it does not read by that one";
  EXPECT_FALSE(has_lane("", is_rdma));
}

}  // namespace
}  // namespace kvbm::ucx::ucx_device_memory_test
