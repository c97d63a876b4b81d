// Compares kvbm_hash_leaves with codec::leaf_hash_reference, and tests the arithmetic of jobs.
#include <gtest/gtest.h>

#include "kernel_cases.h"

namespace kvbm::device::hash_kernel_test {
namespace {

TEST(HashKernel, any_run_has_the_references_hash_and_is_left_alone) {
  SeededRandom random(21);
  for (const uint64_t width : {1U, 2U, 4U, 8U, 16U}) {
    for (uint64_t round = 0; round < 3; ++round) {
      std::vector<Case> cases;
      std::vector<LeafJob> jobs;
      std::vector<uint64_t> hashes;
      std::vector<std::vector<std::byte>> memory;
      for (int n = 0; n < 20; ++n) cases.push_back(make_case(width, uint64_t{1} << (8 + random.below(9)), random));
      for (const Case& c : cases) {
        std::vector<std::byte> bytes(c.run.total());
        gathered(bytes.data(), c.run);
        hashes.push_back(codec::leaf_hash_reference(bytes));
        jobs.push_back(leaf_job(c.run, nullptr));
        memory.push_back(c.memory);
      }
      Launch launch;
      launch.blocks = 3;
      launch.options.order_seed = round;
      const Results r = run_jobs("kvbm_hash_leaves", jobs, launch, false);
      ASSERT_TRUE(r.outcome.ok()) << r.outcome.text;
      for (size_t i = 0; i < cases.size(); ++i) {
        EXPECT_EQ(r.hashes[i], hashes[i]) << i;
        EXPECT_TRUE(cases[i].memory == memory[i]);
      }
    }
  }
}

// Sums of stripes carry into the high half, and zeros and ones are not special.
TEST(HashKernel, plain_contents) {
  for (const int value : {0x00, 0xFF, 0x80, 0x01}) {
    std::vector<std::byte> bytes(65536, static_cast<std::byte>(value));
    std::vector<LeafJob> jobs;
    std::vector<uint64_t> want;
    for (const uint32_t n : {256U, 4096U, 4100U, 32768U, 65536U}) {
      jobs.push_back(leaf_job({bytes.data(), n, 1, 1, 0, 0}, nullptr));
      want.push_back(codec::leaf_hash_reference(ConstBytes(bytes).first(n)));
    }
    const Results r = run_jobs("kvbm_hash_leaves", jobs, {}, false);
    ASSERT_TRUE(r.outcome.ok()) << r.outcome.text;
    for (size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(r.hashes[i], want[i]);
  }
}

TEST(LeafJob, division_by_multiplication_is_exact) {
  SeededRandom random(22);
  const auto check = [](uint32_t n, uint32_t d) {
    uint64_t q = uint64_t{n} * inverse_of(d) >> 32;
    if (n - q * d >= d) ++q;
    ASSERT_EQ(q, n / d) << n << " / " << d;
  };
  for (uint32_t d = 1; d < 700; ++d)
    for (uint32_t n = 0; n < 3000; ++n) check(n, d);
  for (int i = 0; i < 200000; ++i) {
    const auto d = static_cast<uint32_t>(1 + random.below(uint64_t{1} << (1 + random.below(32))) % UINT32_MAX);
    const auto n = static_cast<uint32_t>(random.next());
    check(n, d);
    check(UINT32_MAX, d);
    check(n / d * d, d);
    if (n / d * d > 0) check(n / d * d - 1, d);
  }
}

TEST(LeafJob, widths_are_the_widest_that_all_places_allow) {
  EXPECT_EQ(width_of_run(make_run(0x1000, 256, 16, 4096, 256), 8), 16u);
  EXPECT_EQ(width_of_run(make_run(0x1000, 132, 16, 4096, 132), 1), 4u);
  EXPECT_EQ(width_of_run(make_run(0x1008, 256, 1, 4096, 3), 2), 8u);  // one piece: its stride is ignored
  EXPECT_EQ(width_of_run(make_run(0x1000, 256, 2, 4098, 256), 2), 1u);
  EXPECT_EQ(width_of_run(make_run(0x1000, 256, 2, 4098, 256), 1), 16u);
  EXPECT_EQ(warps_for(0), 1u);
  EXPECT_EQ(warps_for(4096), 1u);
  EXPECT_EQ(warps_for(4097), 2u);
  EXPECT_EQ(warps_for(12289), 4u);
  EXPECT_EQ(warps_for(65536), 16u);
  EXPECT_EQ(jobs_per_block(16), 1u);
  EXPECT_EQ(jobs_per_block(1), 16u);
}

}  // namespace
}  // namespace kvbm::device::hash_kernel_test
