// kvbm_copy_runs: runs to runs, and tensor-parallel re-slicing by layout::Reslice's moves.
#include <gtest/gtest.h>

#include "device/kernels/copy_jobs.h"
#include "kernel_cases.h"
#include "layout/reslice.h"

namespace kvbm::device::reslice_kernel_test {
namespace {

emulation::Outcome copy(const std::vector<CopyJob>& jobs, uint64_t seed) {
  uint32_t largest = 0;
  for (const CopyJob& job : jobs) largest = std::max(largest, job.bytes);
  emulation::Options options;
  options.order_seed = seed;
  return emulation::launch_named("kvbm_copy_runs", {{3, 1, 1}, {kBlockThreads, 1, 1}, 0}, options, jobs.data(),
                                 static_cast<uint32_t>(jobs.size()), warps_for(largest));
}

TEST(CopyKernel, runs_cut_into_other_pieces) {
  SeededRandom random(31);
  for (const uint64_t width : {1U, 2U, 4U, 8U, 16U}) {
    SCOPED_TRACE("width " + std::to_string(width));
    std::vector<CopyJob> jobs;
    std::vector<Case> from;
    std::vector<std::vector<std::byte>> to, want;
    for (int n = 0; n < 16; ++n) {
      // An equal number of bytes in fewer, longer or more, shorter pieces.
      Case c = make_case(width * 12, 60000, random);
      const uint64_t piece = width * std::vector<uint64_t>{1, 2, 3, 4, 6, 12}[random.below(6)];
      StridedRun target;
      target.bytes = piece;
      target.count0 = static_cast<uint32_t>(c.run.total() / piece);
      target.stride0 = static_cast<int64_t>(piece + width * random.below(5));
      if (target.count0 % 4 == 0 && random.below(2) == 0) {  // and in two levels, the inner one outside
        target.count0 /= 4;
        target.count1 = 4;
        target.stride1 = target.stride0 * target.count0 + static_cast<int64_t>(width);
      }
      const uint64_t extent = static_cast<uint64_t>(target.stride0) * (target.count0 - 1) +
                              static_cast<uint64_t>(target.stride1) * (target.count1 - 1) + piece;
      to.push_back(random_bytes(64 + extent + 64, random));
      want.push_back(to.back());
      std::vector<std::byte> bytes(c.run.total());
      gathered(bytes.data(), c.run);
      target.data = want.back().data() + 64;
      scattered(target, bytes.data());
      target.data = to.back().data() + 64;
      append_copy_jobs(c.run, address_of(c.run.data), target, address_of(target.data), jobs);
      from.push_back(std::move(c));
    }
    const emulation::Outcome outcome = copy(jobs, width);
    ASSERT_TRUE(outcome.ok()) << outcome.text;
    EXPECT_TRUE(to == want);
  }
}

TEST(CopyKernel, long_runs_are_cut) {
  SeededRandom random(32);
  const std::vector<std::byte> from = random_bytes(300'016, random);
  std::vector<std::byte> to(from.size());
  std::vector<CopyJob> jobs;
  // Contiguous in the source, rows of 48 bytes with gaps of 16 in the target.
  const StridedRun target{to.data(), 48, 4000, 1, 64, 0};
  const StridedRun source{const_cast<std::byte*>(from.data()) + 16, 192'000, 1, 1, 0, 0};
  append_copy_jobs(source, address_of(source.data), target, address_of(target.data), jobs);
  EXPECT_EQ(jobs.size(), 3u);
  for (const CopyJob& job : jobs) EXPECT_LE(job.bytes, kMaxJobBytes);
  ASSERT_TRUE(copy(jobs, 1).ok());
  for (size_t i = 0; i < 4000; ++i) {
    ASSERT_TRUE(std::equal(from.begin() + 16 + static_cast<int64_t>(i * 48),
                           from.begin() + 64 + static_cast<int64_t>(i * 48),
                           to.begin() + static_cast<int64_t>(i * 64)));
    if (i + 1 < 4000) {
      ASSERT_EQ(to[i * 64 + 48], std::byte{0});
    }
  }
}

// Records of some ranks become those of other ranks; every byte is where the whole model has it.
TEST(CopyKernel, tensor_parallel_shapes_change) {
  using namespace layout;
  SeededRandom random(33);
  const ComponentGeometry c = attention(2, 8, 40, Element::bf16);
  const Geometry geometry = Geometry::make(16, {c}, 2).value();
  const auto shapes_of = [&](uint32_t ranks) {
    std::vector<PlacedRecord> records;
    for (uint32_t r = 0; r < ranks; ++r) {
      Shard shard = whole_shard(c);
      shard.first_head = static_cast<decltype(shard.first_head)>(8 / ranks * r);
      shard.heads = static_cast<decltype(shard.heads)>(8 / ranks);
      records.push_back({RecordShape::make(geometry, 0, shard, 2).value(), 0});
    }
    return records;
  };
  const auto reslice = [&](const std::vector<PlacedRecord>& sources, std::vector<std::vector<std::byte>>& from,
                           const std::vector<PlacedRecord>& targets, uint64_t seed) {
    std::vector<std::vector<std::byte>> to;
    std::vector<CopyJob> jobs;
    for (const PlacedRecord& target : targets) {
      to.emplace_back(target.shape.payload_bytes());
      const Reslice plan = Reslice::make(sources, target).value();
      EXPECT_TRUE(plan.complete());
      for (const Move& move : plan.moves()) {
        append_copy_jobs(move, address_of(from[move.source].data()), address_of(to.back().data()), jobs);
      }
    }
    const emulation::Outcome outcome = copy(jobs, seed);
    EXPECT_TRUE(outcome.ok()) << outcome.text;
    return to;
  };
  std::vector<std::vector<std::byte>> whole = {random_bytes(shapes_of(1)[0].shape.payload_bytes(), random)};
  for (const uint32_t ranks : {2U, 4U, 8U}) {
    std::vector<std::vector<std::byte>> parts = reslice(shapes_of(1), whole, shapes_of(ranks), ranks);
    // The CPU's moves give equal bytes.
    for (uint32_t r = 0; r < ranks; ++r) {
      std::vector<std::byte> want(parts[r].size());
      const Reslice plan = Reslice::make(shapes_of(1), shapes_of(ranks)[r]).value();
      for (const Move& m : plan.moves())
        for (uint32_t i = 0; i < m.count; ++i) {
          std::copy_n(whole[0].data() + m.source_offset + i * m.source_stride, m.bytes,
                      want.data() + m.target_offset + i * m.target_stride);
        }
      EXPECT_TRUE(parts[r] == want);
    }
    EXPECT_TRUE(reslice(shapes_of(ranks), parts, shapes_of(1), 0) == whole);
    std::vector<std::vector<std::byte>> pairs = reslice(shapes_of(ranks), parts, shapes_of(2), 5);
    EXPECT_TRUE(reslice(shapes_of(2), pairs, shapes_of(ranks), 6) == parts);
  }
}

}  // namespace
}  // namespace kvbm::device::reslice_kernel_test
