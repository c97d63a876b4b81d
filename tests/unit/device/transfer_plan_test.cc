#include "device/transfer/transfer_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crypto/random.h"

namespace kvbm::device::transfer_plan_test {
namespace {

constexpr uint64_t kPages = 0x7f0000000000;
constexpr uint64_t kHost = 0x10000000;
constexpr uint32_t kKiB = 1024;
constexpr uint32_t kPart = 256 * kKiB;

// Makes leaves of one record: contiguous in host memory, their pages apart.
std::vector<PlanLeaf> record_of(size_t n, uint32_t bytes, uint64_t record = kHost, bool pinned = true) {
  std::vector<PlanLeaf> leaves;
  for (size_t i = 0; i < n; ++i) leaves.push_back({kPages + i * 16 * bytes, record + i * bytes, bytes, true, pinned});
  return leaves;
}

// Makes leaves of one record with contiguous pages.
std::vector<PlanLeaf> flat_record(size_t n, uint32_t bytes, uint64_t record = kHost, bool pinned = true) {
  std::vector<PlanLeaf> leaves = record_of(n, bytes, record, pinned);
  for (size_t i = 0; i < n; ++i) leaves[i].device = kPages + i * bytes;
  return leaves;
}

// Lowers the limit for copies, because batches of tests are small.
PlanLimits short_runs() {
  PlanLimits limits;
  limits.staged_run_bytes = 32 * kKiB;
  return limits;
}

TransferPlan plan(const std::vector<PlanLeaf>& leaves, const std::vector<size_t>& marks = {},
                  const PlanLimits& limits = short_runs(), size_t part_leaves = 2048) {
  return plan_transfer(leaves, marks, limits, kPart, part_leaves);
}

std::string paths(const TransferPlan& plan) {
  std::string text;
  for (const PlannedLeaf& leaf : plan.leaves) text += "mst"[static_cast<int>(leaf.path)];
  return text;
}

TEST(TransferPlan, maps_little) {
  const TransferPlan p = plan(record_of(8, 4 * kKiB));
  EXPECT_EQ(paths(p), "mmmmmmmm");
  ASSERT_EQ(p.parts.size(), 1U);
  EXPECT_EQ(p.parts[0].kernel_leaves, 8U);
  EXPECT_EQ(p.parts[0].copies, 0U);
  EXPECT_FALSE(p.straight);
}

TEST(TransferPlan, copies_stay_within_one_registered_range) {
  std::vector<PlanLeaf> packed = record_of(48, 4 * kKiB);
  std::vector<PlanLeaf> flat = flat_record(48, 16 * kKiB);  // the border is inside the second part
  for (size_t i = 0; i < 48; ++i) packed[i].range = flat[i].range = i < 24 ? 1 : 2;
  const TransferPlan staged = plan(packed);
  EXPECT_EQ(paths(staged), std::string(48, 's'));
  ASSERT_EQ(staged.parts.size(), 1U);
  EXPECT_EQ(staged.parts[0].copies, 2U);
  EXPECT_TRUE(staged.leaves[24].run_begins);
  const TransferPlan straight = plan(flat);
  EXPECT_EQ(paths(straight), std::string(48, 't'));
  EXPECT_TRUE(straight.leaves[24].run_begins);
  EXPECT_EQ(straight.parts[1].copies, 2U);
}

TEST(TransferPlan, stages_much_as_one_copy_for_a_record) {
  const TransferPlan p = plan(record_of(48, 4 * kKiB));
  EXPECT_EQ(paths(p), std::string(48, 's'));
  ASSERT_EQ(p.parts.size(), 1U);
  EXPECT_EQ(p.parts[0].copies, 1U);
  EXPECT_EQ(p.parts[0].bytes, 48 * 4 * kKiB);
}

TEST(TransferPlan, records_on_the_device_are_read_there_whatever_the_others_do) {
  std::vector<PlanLeaf> leaves = flat_record(40, 8 * kKiB);  // long enough to go straight
  for (PlanLeaf& leaf : leaves) leaf.on_device = true;
  EXPECT_EQ(paths(plan(leaves)), std::string(40, 'm'));
  EXPECT_EQ(plan(leaves).parts[0].copies, 0U);
  std::vector<PlanLeaf> mixed = record_of(48, 2 * kKiB, kHost + (1U << 20));
  for (size_t i = 12; i < 24; ++i) mixed[i].on_device = true;
  PlanLimits limits;
  limits.mapped_bytes = 0;
  limits.staged_run_bytes = 0;
  const TransferPlan p = plan(mixed, {}, limits);
  EXPECT_EQ(paths(p), std::string(12, 's') + std::string(12, 'm') + std::string(24, 's'));
  ASSERT_EQ(p.parts.size(), 1U);
  EXPECT_EQ(p.parts[0].copies, 2U);
  EXPECT_EQ(p.parts[0].kernel_leaves, 48U);
}

TEST(TransferPlan, makes_a_copy_for_each_record_of_a_part) {
  std::vector<PlanLeaf> leaves = record_of(20, 4 * kKiB);
  const std::vector<PlanLeaf> other = record_of(20, 4 * kKiB, kHost + (16U << 20));
  leaves.insert(leaves.end(), other.begin(), other.end());
  const TransferPlan p = plan(leaves);
  EXPECT_EQ(paths(p), std::string(40, 's'));
  EXPECT_EQ(p.parts[0].copies, 2U);
  EXPECT_TRUE(p.leaves[20].run_begins);
  EXPECT_FALSE(p.leaves[21].run_begins);
}

TEST(TransferPlan, maps_what_lies_apart_in_host_memory) {
  std::vector<PlanLeaf> leaves = record_of(64, 4 * kKiB);
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i].record = kHost + i * 1000 * kKiB;
  const TransferPlan p = plan(leaves);
  EXPECT_EQ(paths(p), std::string(64, 'm'));
  ASSERT_EQ(p.parts.size(), 1U);
  EXPECT_EQ(p.parts[0].copies, 0U);
}

TEST(TransferPlan, goes_straight_where_both_sides_are_long) {
  const TransferPlan p = plan(flat_record(8, 64 * kKiB));
  EXPECT_EQ(paths(p), "tttttttt");
  EXPECT_TRUE(p.straight);
  ASSERT_EQ(p.parts.size(), 2U);
  EXPECT_EQ(p.parts[0].copies, 1U);
  EXPECT_EQ(p.parts[0].kernel_leaves, 0U);
  EXPECT_EQ(p.parts[1].count, 4U);
}

TEST(TransferPlan, packs_where_only_one_side_is_long) {
  EXPECT_EQ(paths(plan(record_of(8, 64 * kKiB))), "ssssssss");
  std::vector<PlanLeaf> strided = flat_record(8, 64 * kKiB);
  for (PlanLeaf& leaf : strided) leaf.flat = false;
  EXPECT_EQ(paths(plan(strided)), "ssssssss");
  std::vector<PlanLeaf> apart = flat_record(8, 64 * kKiB);
  for (size_t i = 0; i < apart.size(); ++i) apart[i].record = kHost + i * 100 * kKiB;
  EXPECT_EQ(paths(plan(apart)), "ssssssss");
}

TEST(TransferPlan, ends_a_straight_run_where_either_side_breaks) {
  std::vector<PlanLeaf> leaves = flat_record(8, 64 * kKiB);
  for (size_t i = 4; i < 8; ++i) leaves[i].device += 4096;
  PlanLimits limits;
  const TransferPlan p = plan_transfer(leaves, {}, limits, 1 << 20, 2048);
  EXPECT_EQ(paths(p), "tttttttt");
  ASSERT_EQ(p.parts.size(), 1U);
  EXPECT_EQ(p.parts[0].copies, 2U);
  limits.straight_bytes = 257 * kKiB;
  EXPECT_EQ(paths(plan_transfer(leaves, {}, limits, 1 << 20, 2048)), "ssssssss");
}

TEST(TransferPlan, takes_unpinned_records_as_neighbours_in_the_pinned_memory_between) {
  std::vector<PlanLeaf> leaves = record_of(16, 16 * kKiB, kHost, false);
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i].record = kHost + i * 7 * 16 * kKiB;
  const TransferPlan p = plan(leaves);
  EXPECT_EQ(paths(p), std::string(16, 's'));
  EXPECT_EQ(p.parts[0].copies, 1U);
  EXPECT_TRUE(p.parts[0].bounced);
  EXPECT_TRUE(p.leaves[3].bounced);
}

TEST(TransferPlan, maps_everything_where_memory_is_shared) {
  PlanLimits limits;
  limits.always_mapped = true;
  EXPECT_EQ(paths(plan(flat_record(8, 64 * kKiB), {}, limits)), "mmmmmmmm");
  EXPECT_EQ(paths(plan(record_of(8, 64 * kKiB), {}, limits)), "mmmmmmmm");
}

TEST(TransferPlan, ends_a_part_at_a_mark_only_when_it_holds_enough) {
  PlanLimits limits;
  limits.mark_bytes = 32 * kKiB;
  // Layers of 16 KiB: every second mark ends a part, which also covers the mark before.
  const TransferPlan p = plan(record_of(16, 4 * kKiB), {4, 8, 12, 16}, limits);
  ASSERT_EQ(p.parts.size(), 2U);
  EXPECT_TRUE(p.parts[0].has_mark);
  EXPECT_EQ(p.parts[0].mark, 1U);
  EXPECT_EQ(p.parts[0].count, 8U);
  EXPECT_EQ(p.parts[1].mark, 3U);
}

TEST(TransferPlan, raises_a_mark_in_the_part_that_completes_it) {
  // Marks in the middle of parts that their size ends.
  PlanLimits limits;
  limits.mark_bytes = 1ULL << 40;
  const TransferPlan p = plan(record_of(8, 64 * kKiB), {0, 3, 5, 5}, limits);
  ASSERT_EQ(p.parts.size(), 2U);
  EXPECT_TRUE(p.parts[0].has_mark);
  EXPECT_EQ(p.parts[0].mark, 1U);  // three of the first four leaves are marked
  EXPECT_TRUE(p.parts[1].has_mark);
  EXPECT_EQ(p.parts[1].mark, 3U);
}

TEST(TransferPlan, has_a_part_for_marks_without_leaves) {
  const TransferPlan p = plan({}, {0});
  ASSERT_EQ(p.parts.size(), 1U);
  EXPECT_TRUE(p.parts[0].has_mark);
  EXPECT_EQ(p.parts[0].count, 0U);
  EXPECT_TRUE(plan({}, {}).parts.empty());
}

TEST(TransferPlan, holds_no_more_leaves_in_a_part_than_there_are_jobs) {
  const TransferPlan p = plan(record_of(50, 64), {}, {}, 7);
  ASSERT_EQ(p.parts.size(), 8U);
  for (const PlannedPart& part : p.parts) EXPECT_LE(part.count, 7U);
}

// Invariants for any leaves: every leaf is in one part, in order. Offsets of a part do not overlap, fit, and follow
// each other inside of a run exactly as in host memory. Every mark comes with its last leaf.
TEST(TransferPlan, keeps_its_invariants_for_any_leaves) {
  SeededRandom random(20261122);
  for (int round = 0; round < 300; ++round) {
    std::vector<PlanLeaf> leaves;
    const size_t n = random.below(400);
    uint64_t device = kPages, record = kHost;
    for (size_t i = 0; i < n; ++i) {
      const auto bytes = static_cast<uint32_t>(1 + random.below(random.below(2) == 0 ? 64 * kKiB : 2 * kKiB));
      if (random.below(4) == 0) device += random.below(100000);
      if (random.below(6) == 0) record += random.below(100000);
      leaves.push_back({device, record, bytes, random.below(8) != 0, random.below(40) != 0});
      device += bytes;
      record += bytes;
    }
    std::vector<size_t> marks;
    for (size_t at = 0; at <= n; at += 1 + random.below(60)) marks.push_back(at);
    PlanLimits limits;
    limits.straight_bytes = 1 + random.below(300 * kKiB);
    limits.staged_run_bytes = random.below(40 * kKiB);
    limits.mark_bytes = random.below(kPart);
    const size_t part_leaves = 1 + random.below(200);
    const TransferPlan p = plan_transfer(leaves, marks, limits, kPart, part_leaves);
    ASSERT_EQ(p.leaves.size(), n);
    size_t next = 0, next_mark = 0;
    for (const PlannedPart& part : p.parts) {
      ASSERT_EQ(part.first, next);
      ASSERT_LE(part.count, part_leaves);
      next += part.count;
      size_t kernel = 0, copies = 0;
      uint64_t used = 0;
      bool bounced = false;
      for (size_t i = part.first; i < next; ++i) {
        const PlannedLeaf& leaf = p.leaves[i];
        ASSERT_GE(leaf.offset, used);
        used = uint64_t{leaf.offset} + leaves[i].bytes;
        ASSERT_EQ(leaf.bounced, !leaves[i].pinned);
        bounced |= leaf.bounced;
        kernel += leaf.path != Path::straight;
        copies += leaf.path != Path::mapped && leaf.run_begins;
        ASSERT_TRUE(i > part.first || leaf.run_begins);
        if (leaf.path == Path::straight) {
          ASSERT_TRUE(leaves[i].flat);
        }
        if (leaf.run_begins) continue;
        ASSERT_EQ(leaf.path, p.leaves[i - 1].path);
        ASSERT_EQ(leaf.offset, p.leaves[i - 1].offset + leaves[i - 1].bytes);
        ASSERT_EQ(leaf.bounced, p.leaves[i - 1].bounced);
        if (!leaf.bounced) {
          ASSERT_EQ(leaves[i].record, leaves[i - 1].record + leaves[i - 1].bytes);
        }
        if (leaf.path == Path::straight) {
          ASSERT_EQ(leaves[i].device, leaves[i - 1].device + leaves[i - 1].bytes);
        }
      }
      ASSERT_LE(used, kPart);
      ASSERT_EQ(part.bytes, used);
      ASSERT_EQ(part.kernel_leaves, kernel);
      ASSERT_EQ(part.copies, copies);
      ASSERT_EQ(part.bounced, bounced);
      const size_t reached = static_cast<size_t>(std::upper_bound(marks.begin(), marks.end(), next) - marks.begin());
      ASSERT_EQ(part.has_mark, reached > next_mark);
      if (part.has_mark) {
        ASSERT_EQ(part.mark, reached - 1);
      }
      next_mark = reached;
    }
    ASSERT_EQ(next, n);
    if (n > 0) {
      ASSERT_EQ(next_mark, marks.size());
    }
  }
}

}  // namespace
}  // namespace kvbm::device::transfer_plan_test
