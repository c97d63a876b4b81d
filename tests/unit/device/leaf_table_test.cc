// Leaves described once: their jobs equal jobs made of each run by itself, and groups end where they must.
#include "device/transfer/leaf_table.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/crypto/random.h"
#include "device/transfer/transfer_work.h"

namespace kvbm::device::leaf_table_test {
namespace {

constexpr uint64_t kBase = 0x7f0000000000;
constexpr uint32_t kKiB = 1024;

StridedRun flat(uint64_t address, uint64_t bytes) {
  StridedRun run;
  run.data = reinterpret_cast<std::byte*>(address);
  run.bytes = bytes;
  return run;
}

// Makes a table of `n` leaves of `bytes`, `apart` from each other in a block, blocks `stride` apart. A layer has
// `units` of them one after the other.
LeafTable table_of(uint32_t n, uint32_t bytes, uint64_t apart, uint64_t stride, uint32_t units = 1) {
  LeafTable table;
  for (uint32_t i = 0; i < n; ++i) {
    const StridedRun run = flat(kBase + i * apart, bytes);
    table.add(run, flat(kBase + i * apart + stride, bytes), i * bytes, i / 2 / units, i / 2 % units);
  }
  table.finish();
  return table;
}

TEST(LeafTable, jobs_are_those_of_the_runs) {
  SeededRandom random(7);
  LeafTable table;
  std::vector<StridedRun> runs;
  std::vector<int64_t> strides;
  uint32_t offset = 0;
  for (int i = 0; i < 200; ++i) {
    StridedRun run = flat(kBase + random.below(1 << 20), 1 + random.below(300));
    run.count0 = 1 + static_cast<uint32_t>(random.below(4));
    run.count1 = 1 + static_cast<uint32_t>(random.below(4));
    run.stride1 = static_cast<int64_t>(random.below(2) == 0 ? run.bytes : random.below(5000));
    run.stride0 = static_cast<int64_t>(random.below(50000));
    const auto stride = static_cast<int64_t>(random.below(1 << 16));
    StridedRun next = run;
    next.data += stride;
    table.add(run, next, offset, static_cast<uint32_t>(i), 0);
    offset += static_cast<uint32_t>(run.total());
    runs.push_back(run);
    strides.push_back(stride);
  }
  table.finish();
  for (uint32_t i = 0; i < table.size(); ++i) {
    const auto block = static_cast<uint32_t>(random.below(1000));
    StridedRun there = runs[i];
    there.data += int64_t{block} * strides[i];
    there = joined(there);
    const StridedRun told = table.run(i, block);
    EXPECT_EQ(told.data, there.data);
    EXPECT_EQ(told.total(), there.total());
    EXPECT_EQ(table.bytes(i), there.total());
    const LeafJob wanted = make_leaf_job(
        make_run(reinterpret_cast<uintptr_t>(there.data), there.bytes, there.count1, there.stride0, there.stride1),
        there.count0, 0, false, 0);
    const LeafJob job = table.job(i, block);
    EXPECT_EQ(std::memcmp(&job.run, &wanted.run, sizeof job.run), 0) << i;
    EXPECT_EQ(job.bytes, wanted.bytes);
    // The job's width must allow any block, so it may be smaller than the width for this one.
    const uint32_t width = job.flags >> kRunWidthShift & kWidthMask;
    EXPECT_LE(width, wanted.flags >> kRunWidthShift & kWidthMask) << i;
    EXPECT_GE(width, 1U);
  }
}

TEST(LeafTable, groups_are_whole_layers_and_more_up_to_their_bounds) {
  const LeafTable small = table_of(160, 4 * kKiB, 1 << 20, 4 * kKiB);
  EXPECT_EQ(small.group_end(0), LeafTable::kMostLeaves);
  EXPECT_EQ(small.group_end(150), 160U);
  EXPECT_EQ(small.bytes(0, 64), 64 * 4 * kKiB);
  EXPECT_FALSE(small.is_flat(0, 2));
  EXPECT_TRUE(small.is_flat(0, 1));
  const LeafTable large = table_of(64, 32 * kKiB, 1 << 20, 32 * kKiB);
  EXPECT_EQ(large.group_end(0), 8U);  // 256 KiB
}

TEST(LeafTable, a_group_is_of_one_unit) {
  const LeafTable table = table_of(16, 4 * kKiB, 1 << 20, 4 * kKiB, 2);
  EXPECT_EQ(table.group_end(0), 2U);
  EXPECT_EQ(table.group_end(2), 4U);
  EXPECT_EQ(table.group_end(3), 4U);
}

TEST(LeafTable, what_is_long_in_a_block_stays_apart_for_a_copy_of_its_own) {
  // Pages of 512 KiB, each 8 leaves in one piece, two of them.
  LeafTable table;
  for (uint32_t i = 0; i < 16; ++i) {
    const uint64_t at = kBase + i / 8 * (64ULL << 20) + i % 8 * (64ULL << 10);
    table.add(flat(at, 64 * kKiB), flat(at + (512 * kKiB), 64 * kKiB), i * 64 * kKiB, i / 8, 0);
  }
  table.finish();
  EXPECT_EQ(table.group_end(0), 4U);
  EXPECT_TRUE(table.is_flat(0, 4));
  EXPECT_EQ(table.group_end(6), 8U) << "the next page lies elsewhere";
  EXPECT_TRUE(table.is_flat(4, 8));
  EXPECT_FALSE(table.is_flat(4, 9));
}

TEST(LeafTable, what_is_not_contiguous_in_the_record_is_no_group) {
  LeafTable table;
  for (uint32_t i = 0; i < 4; ++i) table.add(flat(kBase, 100), flat(kBase, 100), i * 200, 0, 0);
  table.finish();
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(table.group_end(i), i + 1);
}

}  // namespace
}  // namespace kvbm::device::leaf_table_test
