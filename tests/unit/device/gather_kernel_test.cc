// Compares kvbm_gather_leaves with codec::gather_hashed.
#include <gtest/gtest.h>

#include "kernel_cases.h"

namespace kvbm::device::gather_kernel_test {
namespace {

constexpr uint64_t kWidths[] = {1, 2, 4, 8, 16};

// Gathers all cases in one launch and compares every byte, also those outside of the runs.
void gather_all(std::vector<Case>& cases, const Launch& launch) {
  std::vector<LeafJob> jobs;
  std::vector<std::vector<std::byte>> memory, records;
  for (const Case& c : cases) {
    jobs.push_back(leaf_job(c.run, c.record));
    memory.push_back(c.memory);
    records.push_back(c.record_memory);
  }
  const Results r = run_jobs("kvbm_gather_leaves", jobs, launch, false);
  ASSERT_TRUE(r.outcome.ok()) << r.outcome.text;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    SCOPED_TRACE("leaf " + std::to_string(i) + ": " + std::to_string(c.run.count0) + " x " +
                 std::to_string(c.run.count1) + " of " + std::to_string(c.run.bytes));
    std::byte* want = records[i].data() + (c.record - c.record_memory.data());
    const uint64_t h = gathered(want, c.run);
    EXPECT_EQ(r.hashes[i], h);
    EXPECT_TRUE(c.record_memory == records[i]);
    EXPECT_TRUE(c.memory == memory[i]);
  }
}

TEST(GatherKernel, any_run_of_any_width_gives_the_references_bytes_and_hash) {
  SeededRandom random(20261122);
  for (const uint64_t width : kWidths) {
    SCOPED_TRACE("width " + std::to_string(width));
    for (uint64_t round = 0; round < 4; ++round) {
      std::vector<Case> cases;
      for (int n = 0; n < 12; ++n) cases.push_back(make_case(width, uint64_t{1} << (8 + random.below(9)), random));
      Launch launch;
      launch.blocks = static_cast<uint32_t>(1 + random.below(4));
      launch.options.order_seed = round;
      gather_all(cases, launch);
    }
  }
}

TEST(GatherKernel, sizes_around_rows_and_stripes) {
  SeededRandom random(3);
  std::vector<Case> cases;
  for (const uint64_t bytes : {1U, 7U, 8U, 15U, 16U, 17U, 255U, 256U, 257U, 4080U, 4095U, 4096U, 4097U, 4352U, 8192U,
                               61440U, 65535U, 65536U}) {
    Case c;
    c.memory = random_bytes(bytes + 128, random);
    c.run.data = c.memory.data() + 64;
    c.run.bytes = bytes;
    c.record_memory = random_bytes(bytes + 128, random);
    c.record = c.record_memory.data() + 64;
    cases.push_back(std::move(c));
  }
  for (const uint64_t seed : {0U, 1U, 2U}) {
    Launch launch;
    launch.options.order_seed = seed;
    gather_all(cases, launch);
  }
}

TEST(GatherKernel, leaves_of_one_warp_and_of_sixteen_at_every_launch) {
  SeededRandom random(4);
  std::vector<Case> cases;
  for (int n = 0; n < 37; ++n) cases.push_back(make_case(8, 4096, random));
  for (const uint32_t warps : {1U, 2U, 4U, 8U, 16U}) {
    Launch launch;
    launch.warps = warps;
    launch.options.order_seed = warps;
    launch.options.os_threads = 2;
    gather_all(cases, launch);
    launch.threads = std::max(64U, warps * 32);  // a block of fewer warps
    gather_all(cases, launch);
  }
}

TEST(GatherKernel, no_leaves_and_more_blocks_than_leaves) {
  std::vector<Case> cases;
  gather_all(cases, {});
  SeededRandom random(5);
  cases.push_back(make_case(16, 65536, random));
  Launch launch;
  launch.blocks = 9;
  gather_all(cases, launch);
}

TEST(GatherKernel, every_arrangement_of_engines) {
  SeededRandom random(6);
  for (const layout::RecordShape& shape : model_shapes()) {
    SCOPED_TRACE("rows of " + std::to_string(shape.row_bytes()) + ", " + std::to_string(shape.heads()) + " heads");
    for (uint8_t f = 0; f < layout::kFormCount; ++f) {
      const auto form = static_cast<layout::Form>(f);
      SCOPED_TRACE("form " + std::to_string(static_cast<int>(form)));
      const uint64_t blocks = shape.units() + 1;
      const Pages pages = make_pages(form, shape, blocks, random);
      std::vector<layout::BlockId> ids;
      for (uint32_t u = 0; u < shape.units(); ++u) ids.push_back(static_cast<layout::BlockId>(blocks - 1 - u));
      const auto run_of = [&](const layout::LeafExtent& leaf) {
        return layout::plan_leaf(pages.arrangement, leaf, ids[leaf.unit]);
      };
      std::vector<std::byte> record(shape.payload_bytes()), want(record.size());
      std::vector<LeafJob> jobs;
      for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
        jobs.push_back(leaf_job(run_of(shape.leaf(i)), record.data() + shape.leaf(i).offset));
      }
      Launch launch;
      launch.options.order_seed = f;
      const Results r = run_jobs("kvbm_gather_leaves", jobs, launch, false);
      ASSERT_TRUE(r.outcome.ok()) << r.outcome.text;
      for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
        const StridedRun run = run_of(shape.leaf(i));
        ASSERT_EQ(r.hashes[i], gathered(want.data() + shape.leaf(i).offset, run));
      }
      ASSERT_TRUE(record == want);
    }
  }
}

TEST(GatherKernel, touches_nothing_beyond_the_leaf) {
  SeededRandom random(7);
  for (const uint64_t width : kWidths) {
    Case c = make_case(width, 20000, random);
    const auto inside = [](const void* p, size_t n, const void* begin, uint64_t bytes) {
      return address_of(p) >= address_of(begin) && address_of(p) + n <= address_of(begin) + bytes;
    };
    Launch launch;
    Results r;
    std::vector<LeafJob> jobs = {leaf_job(c.run, c.record)};
    launch.options.reaches = [&](const void* p, size_t n, bool writes) {
      if (writes)
        return !inside(p, n, c.memory.data(), c.memory.size()) && (inside(p, n, c.record, c.run.total()) || n == 8);
      for (uint32_t i = 0; i < c.run.count0; ++i)
        for (uint32_t j = 0; j < c.run.count1; ++j) {
          if (inside(p, n, c.run.data + int64_t{i} * c.run.stride0 + int64_t{j} * c.run.stride1, c.run.bytes))
            return true;
        }
      return false;
    };
    r = run_jobs("kvbm_gather_leaves", jobs, launch, false);
    EXPECT_TRUE(r.outcome.ok()) << r.outcome.text;
    // With one byte less of record an access is refused, so the check above is effective.
    launch.options.reaches = [&](const void* p, size_t n, bool writes) {
      return !writes || !inside(p, n, c.record_memory.data(), c.record_memory.size()) ||
             inside(p, n, c.record, c.run.total() - 1);
    };
    r = run_jobs("kvbm_gather_leaves", jobs, launch, false);
    EXPECT_EQ(r.outcome.kind, emulation::Outcome::Kind::illegal_address);
  }
}

}  // namespace
}  // namespace kvbm::device::gather_kernel_test
