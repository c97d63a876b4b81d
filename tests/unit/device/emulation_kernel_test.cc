// Tests of the emulation itself, with right and wrong kernels written for them.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#define KVBM_CUDA_EMULATION "support/cuda_emulation/device.h"
#include "device/kernels/cuda.cuh"

namespace kvbm::emulation::emulation_kernel_test {
namespace {

constexpr uint64_t kSeeds[] = {0, 1, 2, 3, 4, 5, 6, 7};
constexpr unsigned kAll = 0xFFFFFFFFU;

LaunchShape shape_of(unsigned blocks, unsigned threads, size_t shared_bytes = 0) {
  return {{blocks, 1, 1}, {threads, 1, 1}, shared_bytes};
}

__global__ void where_am_i(unsigned* out) {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] = block * 1000 + thread;
}

TEST(Emulation, every_thread_of_every_block_runs_once) {
  for (const unsigned os_threads : {1U, 3U}) {
    std::vector<unsigned> out(2 * 3 * 2 * 4 * 5 * 3, 77777);
    const LaunchShape shape{{2, 3, 2}, {4, 5, 3}, 0};
    Options options;
    options.os_threads = os_threads;
    ASSERT_TRUE(launch(shape, options, where_am_i, out.data()).ok());
    for (unsigned i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], i / 60 * 1000 + i % 60);
  }
}

// Reverses the numbers of each block; `waits` tells whether it waits between writing and reading.
__global__ void turn_round(unsigned* data, bool waits) {
  __shared__ unsigned shared[256];
  unsigned* mine = data + blockIdx.x * blockDim.x;
  shared[threadIdx.x] = mine[threadIdx.x];
  if (waits) __syncthreads();
  mine[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

bool turns_round(bool waits, uint64_t seed, unsigned os_threads) {
  std::vector<unsigned> data(4 * 256);
  std::iota(data.begin(), data.end(), 1U);
  Options options;
  options.order_seed = seed;
  options.os_threads = os_threads;
  if (!launch(shape_of(4, 256), options, turn_round, data.data(), waits).ok()) return false;
  for (unsigned b = 0; b < 4; ++b)
    for (unsigned i = 0; i < 256; ++i) {
      if (data[b * 256 + i] != b * 256 + 256 - i) return false;
    }
  return true;
}

TEST(Emulation, barrier_makes_shared_memory_whole) {
  for (const uint64_t seed : kSeeds) EXPECT_TRUE(turns_round(true, seed, 2)) << seed;
}

TEST(Emulation, missing_barrier_shows) {
  for (const uint64_t seed : kSeeds) EXPECT_FALSE(turns_round(false, seed, 1)) << seed;
}

// Reads a neighbour's value, which is there by luck in one order of threads and missing in another.
__global__ void read_left(unsigned* out) {
  __shared__ unsigned shared[64];
  shared[threadIdx.x] = 5;
  out[threadIdx.x] = threadIdx.x == 0 ? 5 : shared[threadIdx.x - 1];
  __syncthreads();
  shared[threadIdx.x] = 0;
}

TEST(Emulation, order_of_threads_shows_what_was_luck) {
  size_t wrong = 0;
  for (const uint64_t seed : kSeeds) {
    std::vector<unsigned> out(2 * 64);
    Options options;
    options.order_seed = seed;
    ASSERT_TRUE(launch(shape_of(1, 64), options, read_left, out.data()).ok());
    const bool right = std::all_of(out.begin(), out.begin() + 64, [](unsigned v) { return v == 5; });
    EXPECT_TRUE(right || seed != 0);
    wrong += right ? 0 : 1;
  }
  EXPECT_EQ(wrong, std::size(kSeeds) - 1);
}

__global__ void diverge(int how) {
  if (how == 0 && threadIdx.x == 7) return;  // ended
  if (how == 1 && threadIdx.x == 7) {
    __syncthreads();  // another barrier
    return;
  }
  if (how == 2 && threadIdx.x >= 32) {  // one warp waits for itself, one for the block
    (void)__shfl_sync(kAll, 1, 0);
    if (threadIdx.x == 40) return;
  }
  if (how == 3 && threadIdx.x == 7) (void)__ballot_sync(kAll, 1);
  if (how == 4) {
    (void)__shfl_sync(threadIdx.x == 3 ? 0xFU : kAll, 1, 0);
  }
  __syncthreads();
}

TEST(Emulation, divergence_is_reported_and_does_not_hang) {
  for (int how = 0; how < 5; ++how) {
    for (const uint64_t seed : kSeeds) {
      Options options;
      options.order_seed = seed;
      const Outcome outcome = launch(shape_of(2, 64), options, diverge, how);
      EXPECT_EQ(outcome.kind, Outcome::Kind::divergent) << how << ": " << outcome.text;
      EXPECT_NE(outcome.text.find("of block (0, 0, 0)"), std::string::npos) << outcome.text;
    }
  }
  EXPECT_TRUE(launch(shape_of(2, 64), {}, diverge, 9).ok());
}

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int* mine = out + threadIdx.x * 8;
  mine[0] = __shfl_sync(kAll, lane * 3, 5);
  mine[1] = __shfl_xor_sync(kAll, lane, 3);
  mine[2] = __shfl_up_sync(kAll, lane, 2);
  mine[3] = __shfl_down_sync(kAll, lane, 30);
  mine[4] = __shfl_down_sync(kAll, lane, 3, 8);
  mine[5] = static_cast<int>(__ballot_sync(kAll, lane % 3 == 0));
  mine[6] = __any_sync(kAll, lane == 31) * 2 + __all_sync(kAll, lane < 31);
  mine[7] = __reduce_add_sync(kAll, lane);
}

TEST(Emulation, warps_exchange_what_the_guide_says) {
  for (const uint64_t seed : kSeeds) {
    std::vector<int> out(96 * 8);
    Options options;
    options.order_seed = seed;
    ASSERT_TRUE(launch(shape_of(1, 96), options, shuffles, out.data()).ok());
    for (int t = 0; t < 96; ++t) {
      const int lane = t % 32;
      const int* mine = out.data() + t * 8;
      EXPECT_EQ(mine[0], 15);
      EXPECT_EQ(mine[1], lane ^ 3);
      EXPECT_EQ(mine[2], lane < 2 ? lane : lane - 2);
      EXPECT_EQ(mine[3], lane < 2 ? lane + 30 : lane);
      EXPECT_EQ(mine[4], lane % 8 < 5 ? lane + 3 : lane);
      EXPECT_EQ(static_cast<unsigned>(mine[5]), 0x49249249U);
      EXPECT_EQ(mine[6], 2);
      EXPECT_EQ(mine[7], 496);
    }
  }
}

// Halves of a warp run separately, with any number of steps.
__global__ void halves(unsigned* out) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned mask = lane < 16 ? 0xFFFFU : 0xFFFF0000U;
  unsigned v = lane;
  if (lane < 16) {
    for (int i = 0; i < 5; ++i) v = __shfl_xor_sync(mask, v, 1);
  } else {
    for (int i = 0; i < 9; ++i) v = __shfl_xor_sync(mask, v, 2);
  }
  __syncwarp();
  out[threadIdx.x] = v;
}

TEST(Emulation, parts_of_a_warp_are_independent) {
  for (const uint64_t seed : kSeeds) {
    std::vector<unsigned> out(64);
    Options options;
    options.order_seed = seed;
    ASSERT_TRUE(launch(shape_of(1, 64), options, halves, out.data()).ok());
    for (unsigned t = 0; t < 64; ++t) EXPECT_EQ(out[t], t % 32 < 16 ? (t % 32 ^ 1) : (t % 32 ^ 2));
  }
}

// A named barrier joins the warps of a group; groups run at their own pace.
__global__ void groups(unsigned* out, unsigned rounds_of_last) {
  __shared__ unsigned shared[2][128];
  const unsigned group = threadIdx.x / 64;
  const unsigned rounds = group == 1 ? rounds_of_last : 3;
  unsigned v = threadIdx.x % 64;
  for (unsigned i = 0; i < rounds; ++i) {
    shared[i % 2][threadIdx.x] = v;
    device::kernels::sync_some(1 + group, 64);
    v = shared[i % 2][group * 64 + (threadIdx.x + 1) % 64];
  }
  out[threadIdx.x] = v;
}

TEST(Emulation, groups_of_warps_wait_for_themselves_alone) {
  for (const uint64_t seed : kSeeds) {
    std::vector<unsigned> out(128);
    Options options;
    options.order_seed = seed;
    ASSERT_TRUE(launch(shape_of(1, 128), options, groups, out.data(), 10U).ok());
    for (unsigned t = 0; t < 128; ++t) EXPECT_EQ(out[t], (t % 64 + (t < 64 ? 3 : 10)) % 64);
  }
}

__global__ void count_up(unsigned* total, unsigned long long* least, unsigned* bits) {
  atomicAdd(total, 1U);
  atomicMin(least, 1000ULL - threadIdx.x);
  atomicOr(bits, 1U << (blockIdx.x % 32));
}

TEST(Emulation, atomics_over_blocks_on_several_threads) {
  unsigned total = 0, bits = 0;
  unsigned long long least = ~0ULL;
  Options options;
  options.os_threads = 4;
  options.order_seed = 9;
  ASSERT_TRUE(launch(shape_of(12, 64), options, count_up, &total, &least, &bits).ok());
  EXPECT_EQ(total, 12U * 64);
  EXPECT_EQ(least, 937ULL);
  EXPECT_EQ(bits, 0xFFFU);
}

// The last thread opens the door; all others wait for it by sleeping.
__global__ void wait_for_last(unsigned* door) {
  if (threadIdx.x + 1 == blockDim.x) {
    atomicExch(door, 1U);
    return;
  }
  while (atomicAdd(door, 0U) == 0) __nanosleep(100);
}

TEST(Emulation, sleeping_gives_way) {
  unsigned door = 0;
  EXPECT_TRUE(launch(shape_of(1, 64), {}, wait_for_last, &door).ok());
}

__global__ void dynamic(unsigned* out) {
  KVBM_DYNAMIC_SHARED(unsigned, shared);
  shared[threadIdx.x] = threadIdx.x * 3;
  __syncthreads();
  out[threadIdx.x] = shared[threadIdx.x ^ 1];
}

TEST(Emulation, dynamic_shared_memory_is_the_blocks) {
  std::vector<unsigned> out(64);
  ASSERT_TRUE(launch(shape_of(1, 64, 64 * sizeof(unsigned)), {}, dynamic, out.data()).ok());
  for (unsigned t = 0; t < 64; ++t) EXPECT_EQ(out[t], (t ^ 1) * 3);
}

__global__ void touch(uint64_t address) {
  if (threadIdx.x == 3) device::kernels::store16(address, make_uint4(1, 2, 3, 4));
}

TEST(Emulation, accesses_that_a_device_refuses_are_reported) {
  alignas(16) unsigned char memory[64] = {};
  const auto at = reinterpret_cast<uint64_t>(memory);
  EXPECT_EQ(launch(shape_of(1, 32), {}, touch, at + 8).kind, Outcome::Kind::misaligned);
  Options options;
  options.reaches = [&](const void* address, size_t bytes, bool writes) {
    return writes && bytes == 16 && address == memory;
  };
  EXPECT_TRUE(launch(shape_of(1, 32), options, touch, at).ok());
  EXPECT_EQ(memory[4], 2);
  const Outcome outcome = launch(shape_of(1, 32), options, touch, at + 16);
  EXPECT_EQ(outcome.kind, Outcome::Kind::illegal_address);
  EXPECT_EQ(outcome.text, "thread (3, 0, 0) of block (0, 0, 0): writes 16 bytes where the device may not");
  EXPECT_EQ(memory[20], 0);
  EXPECT_EQ(launch(shape_of(1, 1025), {}, touch, at).kind, Outcome::Kind::invalid_launch);
}

TEST(Emulation, intrinsics_are_what_the_guide_says) {
  EXPECT_EQ(__umulhi(0x80000000U, 6U), 3U);
  EXPECT_EQ(__umul64hi(1ULL << 63, 10ULL), 5ULL);
  EXPECT_EQ(__popc(0xF0F0U), 8);
  EXPECT_EQ(__popcll(0xFFULL << 40), 8);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__clzll(0), 64);
  EXPECT_EQ(__brev(1U), 0x80000000U);
  EXPECT_EQ(__brevll(2ULL), 1ULL << 62);
  EXPECT_EQ(__byte_perm(0x33221100U, 0x77665544U, 0x7531U), 0x77553311U);
  EXPECT_EQ(__byte_perm(0x80U, 0U, 0x0888U), 0x80FFFFFFU);
  EXPECT_EQ(__funnelshift_l(0x80000000U, 1U, 1), 3U);
  EXPECT_EQ(__funnelshift_r(0x80000000U, 1U, 31), 3U);
}

// Parameters as the driver passes them.
TEST(Emulation, kernel_is_called_through_an_array_of_pointers) {
  const EmulatedKernel kernel = emulated_kernel("turn_round", turn_round);
  EXPECT_EQ(kernel.parameter_bytes, (std::vector<size_t>{8, 1}));
  std::vector<unsigned> data(32);
  std::iota(data.begin(), data.end(), 0U);
  unsigned* pointer = data.data();
  bool waits = true;
  void* parameters[] = {static_cast<void*>(&pointer), static_cast<void*>(&waits)};
  ASSERT_TRUE(kernel.run(shape_of(1, 32), {}, parameters).ok());
  EXPECT_EQ(data[0], 31U);
}

// Data that a warp reads by one request (read_by_lanes() of the kernels), checked in every thread.
struct alignas(16) Told {
  uint64_t words[8];
};

__global__ void read_what_is_told(const Told* told, uint64_t* out) {
  const uint32_t thread = threadIdx.x % 32;
  const Told mine = device::kernels::read_by_lanes<Told>(reinterpret_cast<uint64_t>(told + threadIdx.x / 32), thread);
  for (uint32_t k = 0; k < 8; ++k) out[threadIdx.x * 8 + k] = mine.words[k];
}

TEST(Emulation, lanes_read_a_quarter_each_and_have_the_whole) {
  std::vector<Told> told(3);
  for (uint64_t i = 0; i < 24; ++i) told[i / 8].words[i % 8] = (i + 1) * 0x0101010203040506ULL;
  std::vector<uint64_t> out(96 * 8);
  uint64_t reads = 0;
  Options options;
  options.os_threads = 1;
  options.reaches = [&](const void*, size_t n, bool writes) {
    reads += !writes && n == 16 ? 1 : 0;
    return true;
  };
  ASSERT_TRUE(launch(shape_of(1, 96), options, read_what_is_told, told.data(), out.data()).ok());
  for (uint64_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], told[i / 8 / 32].words[i % 8]) << i;
  EXPECT_EQ(reads, 96U);  // one a thread
}

}  // namespace
}  // namespace kvbm::emulation::emulation_kernel_test
