// `kvbm bench gpu` against a fake driver with faults. Its rows are those of integration.gpu_command_test.
#include "benchmark/gpu.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "benchmark/gpu_coding.h"
#include "benchmark/gpu_host.h"
#include "benchmark/gpu_pace.h"
#include "benchmark/gpu_world.h"
#include "device/kernels/codec_job.h"
#include "support/cuda_emulation/fake_kernels.h"
#include "support/fake_cuda/bench_kernels.h"
#include "support/fake_cuda/fake_cuda.h"

namespace kvbm::benchmark::gpu_test {
namespace {

GpuOptions small() {
  GpuOptions options;
  options.rounds = 1;
  options.calls = 1;
  options.bytes = 4ULL << 20;
  options.multiprocessors = 2;
  options.quiet = true;
  return options;
}

void expect_nothing_left(test::FakeCuda& fake) {
  const auto left = fake.left(0);
  EXPECT_EQ(left.device_allocations + left.host_allocations + left.registrations, 0U);
  EXPECT_EQ(left.streams + left.events + left.modules + left.contexts, 0U);
}

TEST(GpuBenchmark, tells_a_driver_that_fails_and_gives_no_figures) {
  for (const uint64_t nth : {1, 3}) {  // staging; what is moved
    test::FakeCuda fake;
    test::add_emulated_kernels(fake);
    test::add_bench_kernels(fake);
    fake.fail("cuMemAlloc", nth, device::kCuOutOfMemory, 1000);
    const Status status = bench_gpu(fake.driver(), small()).status();
    EXPECT_EQ(status.code(), Code::no_memory);
    EXPECT_NE(
        status.message().find(nth == 3 ? "--bytes asks for more than there is: 4194304 bytes of the device's memory"
                                       : "no memory of the device: "),
        std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("CUDA_ERROR_OUT_OF_MEMORY (2)"), std::string::npos) << status.message();
    expect_nothing_left(fake);
  }
}

TEST(GpuBenchmark, says_of_bytes_that_the_host_has_not_that_they_were_asked_for) {
  test::FakeCuda fake;
  test::add_emulated_kernels(fake);
  GpuOptions options = small();
  options.bytes = 1ULL << 60;
  const Status status = bench_gpu(fake.driver(), options).status();
  EXPECT_NE(
      status.message().find("--bytes asks for more than there is: 1152921504606846976 bytes of the host's memory"),
      std::string::npos)
      << status.message();
  expect_nothing_left(fake);
}

// The benchmark measures the library's own work for engines: batches of its size, and records at scattered slots.
TEST(GpuBenchmark, moves_batches_as_the_library_does_between_records_that_lie_apart) {
  test::FakeCuda fake;
  test::add_emulated_kernels(fake);
  GpuOptions options = small();
  options.bytes = 40ULL << 20;
  auto world = GpuWorld::open(fake.driver(), options);
  ASSERT_TRUE(world.ok()) << world.status().message();
  const PagedShape shape = paged_shape(64ULL << 10, options.bytes);
  std::vector<device::LeafMove> leaves = world.value()->leaves(shape, shape.blocks);
  size_t neighbours = 0;
  const size_t leaves_of_block = leaves.size() / shape.blocks;
  for (size_t block = 1; block < shape.blocks; ++block) {
    const device::LeafMove& last = leaves[block * leaves_of_block - 1];
    neighbours += last.record + last.device.total() == leaves[block * leaves_of_block].record ? 1 : 0;
  }
  EXPECT_LT(neighbours, shape.blocks / 3) << "of " << shape.blocks;
  std::vector<uint64_t> hashes;
  ASSERT_TRUE(world.value()->gather(leaves, &hashes).ok());
  EXPECT_EQ(world.value()->transfers().gathers().batches, 3U);  // 16, 16 and 8 MiB
  ASSERT_EQ(hashes.size(), leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i].expected = hashes[i];
  EXPECT_TRUE(world.value()->scatter(leaves).ok());
  EXPECT_GT(world.value()->worked(), 0);
  EXPECT_GT(world.value()->planning(leaves, false), 0);
  leaves.back().expected ^= 1;
  EXPECT_EQ(world.value()->scatter(leaves).status().code(), Code::damaged);
}

TEST(GpuBenchmark, gives_no_figures_of_a_device_that_is_lost_in_the_middle) {
  test::FakeCuda fake;
  test::add_emulated_kernels(fake);
  test::add_bench_kernels(fake);
  fake.fail_kernel("kvbm_scatter_leaves", 3, device::kCuIllegalAddress);
  EXPECT_EQ(bench_gpu(fake.driver(), small()).status().code(), Code::tier_disabled);
}

// Runs the last rows only.
Status bench_coding(const device::Driver& driver) {
  const GpuOptions options = small();
  auto world = GpuWorld::open(driver, options);
  if (!world.ok()) return world.status();
  GpuPace pace(options.seconds, gpu_coding_figures(), 1, true);
  std::vector<Row> rows;
  return bench_gpu_coding(*world.value(), options, pace, rows);
}

// Covers the last rows: there is no figure where a kernel codes wrong, or the driver refuses.
TEST(GpuBenchmark, gives_no_figures_of_blocks_that_are_coded_wrong_or_not_at_all) {
  for (const std::string kernel : {"kvbm_quantize", "kvbm_dequantize"}) {
    SCOPED_TRACE(kernel);
    test::FakeCuda fake;
    uint64_t spoilt = 0;
    test::add_emulated_kernels(fake, [&](const std::string& name, const test::FakeLaunch& launch) {
      if (name != kernel || launch.parameter<uint32_t>(1) == 0) return;
      const auto* const job = reinterpret_cast<const device::CodedJob*>(launch.parameter<device::CuPointer>(0));
      // Changes a byte that the kernel wrote: of the coded leaf, or of the plain one.
      const uint64_t wrote = name == "kvbm_quantize" ? job->leaf.record : job->leaf.run.address;
      reinterpret_cast<std::byte*>(wrote)[1000] ^= std::byte{0x40};
      ++spoilt;
    });
    test::add_bench_kernels(fake);
    // Leaves out the figures before these, which take a second and are tested elsewhere.
    const Status status =
        kernel == "kvbm_quantize" ? bench_gpu(fake.driver(), small()).status() : bench_coding(fake.driver());
    EXPECT_EQ(status.code(), Code::damaged) << status.message();
    EXPECT_GT(spoilt, 0U);
  }
}

TEST(GpuBenchmark, says_that_there_is_no_such_device) {
  test::FakeCuda fake;
  GpuOptions options = small();
  options.device = 1;
  const auto figures = bench_gpu(fake.driver(), options);
  EXPECT_FALSE(figures.ok());
  EXPECT_FALSE(figures.status().message().empty());
}

// With a driver that costs nothing: every figure is there, and calls do not grow with the leaves of a block.
TEST(GpuHostBenchmark, says_what_the_processor_works_for_a_block) {
  const auto rows = bench_gpu_host({1, true});
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  std::map<std::string, double> values;
  for (const Row& row : rows.value()) values[row.name] = row.value;
  EXPECT_EQ(values.size(), 27U);
  for (const char* model : {"8b", "70b_tp8", "mla"}) {
    for (const char* what : {"store", "load", "load_layers"}) {
      const std::string name = "gpu.host." + std::string(what) + "." + model;
      ASSERT_EQ(values.count(name), 1U) << name;
      EXPECT_GT(values[name], 0);
      EXPECT_GT(values[name + ".work"], 0);
      EXPECT_GT(values[name + ".calls"], 0);
      EXPECT_LT(values[name + ".calls"], 8) << "of a block of 61 to 160 leaves";
    }
  }
}

}  // namespace
}  // namespace kvbm::benchmark::gpu_test
