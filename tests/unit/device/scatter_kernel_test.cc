// Compares kvbm_scatter_leaves, kvbm_check_leaves and kvbm_poison_leaves with codec::scatter_hashed.
#include <gtest/gtest.h>

#include "kernel_cases.h"

namespace kvbm::device::scatter_kernel_test {
namespace {

constexpr uint64_t kWidths[] = {1, 2, 4, 8, 16};

std::vector<std::byte> payload_of(const Case& c) { return {c.record, c.record + c.run.total()}; }

// Returns the run of `c` in a copy of its memory.
StridedRun run_in(const Case& c, std::vector<std::byte>& memory) {
  StridedRun run = c.run;
  run.data = memory.data() + (c.run.data - c.memory.data());
  return run;
}

enum class Expect { right, wrong, unchecked };

// Scatters all cases in one launch; each is right, wrong, or wrong and not checked.
void scatter_all(std::vector<Case>& cases, const Launch& launch, Random& random) {
  std::vector<LeafJob> jobs;
  std::vector<Expect> expects;
  std::vector<std::vector<std::byte>> memory, records;
  for (const Case& c : cases) {
    expects.push_back(static_cast<Expect>(random.below(3)));
    const uint64_t right = codec::leaf_hash_reference(payload_of(c));
    const uint64_t expected = expects.back() == Expect::right ? right : right ^ 1ULL << random.below(64);
    jobs.push_back(leaf_job(c.run, c.record, expects.back() != Expect::unchecked, expected));
    memory.push_back(c.memory);
    records.push_back(c.record_memory);
  }
  const Results r = run_jobs("kvbm_scatter_leaves", jobs, launch, true);
  ASSERT_TRUE(r.outcome.ok()) << r.outcome.text;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    SCOPED_TRACE("leaf " + std::to_string(i) + ": " + std::to_string(c.run.count0) + " x " +
                 std::to_string(c.run.count1) + " of " + std::to_string(c.run.bytes));
    const StridedRun want = run_in(c, memory[i]);
    EXPECT_EQ(r.hashes[i], scattered(want, c.record));
    EXPECT_EQ(r.good[i], expects[i] == Expect::wrong ? 0 : 1);
    if (expects[i] == Expect::wrong) overwrite(want, std::byte{0xFF});
    EXPECT_TRUE(c.memory == memory[i]);
    EXPECT_TRUE(c.record_memory == records[i]);
  }
}

TEST(ScatterKernel, any_run_of_any_width_right_or_wrong) {
  SeededRandom random(11221);
  for (const uint64_t width : kWidths) {
    SCOPED_TRACE("width " + std::to_string(width));
    for (uint64_t round = 0; round < 4; ++round) {
      std::vector<Case> cases;
      for (int n = 0; n < 12; ++n) cases.push_back(make_case(width, uint64_t{1} << (8 + random.below(9)), random));
      Launch launch;
      launch.blocks = static_cast<uint32_t>(1 + random.below(4));
      launch.options.order_seed = round;
      scatter_all(cases, launch, random);
    }
  }
}

TEST(ScatterKernel, sizes_around_rows_and_stripes) {
  SeededRandom random(13);
  for (const uint64_t seed : {0U, 1U, 2U}) {
    std::vector<Case> cases;
    for (const uint64_t bytes : {1U, 15U, 16U, 17U, 255U, 256U, 257U, 4095U, 4096U, 4097U, 8192U, 65535U, 65536U}) {
      Case c;
      c.memory = random_bytes(bytes + 128, random);
      c.run.data = c.memory.data() + 64;
      c.run.bytes = bytes;
      c.record_memory = random_bytes(bytes + 128, random);
      c.record = c.record_memory.data() + 64;
      cases.push_back(std::move(c));
    }
    Launch launch;
    launch.options.order_seed = seed;
    scatter_all(cases, launch, random);
  }
}

TEST(ScatterKernel, groups_of_every_size) {
  SeededRandom random(14);
  for (const uint32_t warps : {1U, 2U, 4U, 8U, 16U}) {
    std::vector<Case> cases;
    for (int n = 0; n < 23; ++n) cases.push_back(make_case(8, warps * kStripeBytes, random));
    Launch launch;
    launch.warps = warps;
    launch.options.order_seed = warps;
    launch.options.os_threads = 2;
    scatter_all(cases, launch, random);
    launch.threads = std::max(64U, warps * 32);
    scatter_all(cases, launch, random);
  }
}

// No byte of a wrong leaf is ever in the pages, not even until it is overwritten.
TEST(ScatterKernel, wrong_bytes_never_reach_the_pages) {
  SeededRandom random(15);
  for (const uint64_t width : kWidths) {
    Case c = make_case(width, 30000, random);
    std::fill(c.record_memory.begin(), c.record_memory.end(), std::byte{0x5A});
    std::fill(c.memory.begin(), c.memory.end(), std::byte{0});
    const std::vector<LeafJob> jobs = {leaf_job(c.run, c.record, true, 1)};
    Launch launch;
    launch.options.order_seed = width;
    bool seen = false;
    launch.options.reaches = [&](const void*, size_t, bool) {
      seen = seen || std::find(c.memory.begin(), c.memory.end(), std::byte{0x5A}) != c.memory.end();
      return true;
    };
    if (c.run.total() > 6000) launch.options.reaches = nullptr;  // each access looks at all of memory
    const Results r = run_jobs("kvbm_scatter_leaves", jobs, launch, true);
    ASSERT_TRUE(r.outcome.ok());
    EXPECT_EQ(r.good[0], 0);
    EXPECT_FALSE(seen);
    EXPECT_EQ(std::count(c.memory.begin(), c.memory.end(), std::byte{0xFF}), static_cast<int64_t>(c.run.total()));
    EXPECT_EQ(std::count(c.memory.begin(), c.memory.end(), std::byte{0x5A}), 0);
  }
}

// Each bit of the record counts.
TEST(ScatterKernel, one_flipped_bit_is_noticed) {
  SeededRandom random(16);
  Case c = make_case(16, 9000, random);
  const uint64_t right = codec::leaf_hash_reference(payload_of(c));
  for (int n = 0; n < 30; ++n) {
    std::byte& victim = c.record[random.below(c.run.total())];
    const auto bit = static_cast<std::byte>(1U << random.below(8));
    victim ^= bit;
    const Results r = run_jobs("kvbm_scatter_leaves", {leaf_job(c.run, c.record, true, right)}, {}, true);
    ASSERT_TRUE(r.outcome.ok());
    EXPECT_EQ(r.good[0], 0);
    victim ^= bit;
  }
  const Results r = run_jobs("kvbm_scatter_leaves", {leaf_job(c.run, c.record, true, right)}, {}, true);
  EXPECT_EQ(r.good[0], 1);
}

TEST(ScatterKernel, every_arrangement_of_engines_comes_back) {
  SeededRandom random(17);
  for (const layout::RecordShape& shape : model_shapes()) {
    SCOPED_TRACE("rows of " + std::to_string(shape.row_bytes()) + ", " + std::to_string(shape.heads()) + " heads");
    const std::vector<std::byte> record = random_bytes(shape.payload_bytes(), random);
    for (uint8_t f = 0; f < layout::kFormCount; ++f) {
      const auto form = static_cast<layout::Form>(f);
      SCOPED_TRACE("form " + std::to_string(static_cast<int>(form)));
      const uint64_t blocks = shape.units() + 1;
      Pages pages = make_pages(form, shape, blocks, random);
      std::vector<layout::BlockId> ids;
      for (uint32_t u = 0; u < shape.units(); ++u) ids.push_back(static_cast<layout::BlockId>(blocks - 1 - u));
      const auto run_of = [&](const layout::LeafExtent& leaf) {
        return layout::plan_leaf(pages.arrangement, leaf, ids[leaf.unit]);
      };
      const std::vector<std::vector<std::byte>> before = pages.memory;
      const auto wrong = static_cast<uint32_t>(random.below(shape.leaf_count()));
      std::vector<LeafJob> jobs;
      std::vector<uint64_t> hashes;
      for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
        const layout::LeafExtent leaf = shape.leaf(i);
        hashes.push_back(codec::leaf_hash_reference(ConstBytes(record).subspan(leaf.offset, leaf.bytes)));
        jobs.push_back(leaf_job(run_of(leaf), record.data() + leaf.offset, true, hashes.back() + (i == wrong ? 1 : 0)));
      }
      Launch launch;
      launch.options.order_seed = f;
      const Results r = run_jobs("kvbm_scatter_leaves", jobs, launch, true);
      ASSERT_TRUE(r.outcome.ok()) << r.outcome.text;
      const std::vector<std::vector<std::byte>> after = pages.memory;
      // Scatter by the reference, on the original pages.
      for (size_t t = 0; t < before.size(); ++t) std::copy(before[t].begin(), before[t].end(), pages.memory[t].begin());
      for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
        ASSERT_EQ(r.hashes[i], hashes[i]);
        ASSERT_EQ(r.good[i], i == wrong ? 0 : 1);
        const StridedRun run = run_of(shape.leaf(i));
        scattered(run, record.data() + shape.leaf(i).offset);
        if (i == wrong) overwrite(run, std::byte{0xFF});
      }
      ASSERT_TRUE(after == pages.memory);
    }
  }
}

TEST(CheckKernel, leaves_in_their_pages_are_left_or_spoilt) {
  SeededRandom random(18);
  for (const uint64_t width : kWidths) {
    std::vector<Case> cases;
    for (int n = 0; n < 20; ++n) cases.push_back(make_case(width, 20000, random));
    std::vector<LeafJob> jobs;
    std::vector<uint64_t> hashes;
    for (size_t i = 0; i < cases.size(); ++i) {
      std::vector<std::byte> bytes(cases[i].run.total());
      hashes.push_back(gathered(bytes.data(), cases[i].run));
      jobs.push_back(leaf_job(cases[i].run, nullptr, i % 3 != 2, hashes[i] + (i % 3 == 0 ? 0 : 1)));
    }
    std::vector<std::vector<std::byte>> want;
    for (const Case& c : cases) want.push_back(c.memory);
    Launch launch;
    launch.options.order_seed = width;
    const Results r = run_jobs("kvbm_check_leaves", jobs, launch, true);
    ASSERT_TRUE(r.outcome.ok()) << r.outcome.text;
    for (size_t i = 0; i < cases.size(); ++i) {
      EXPECT_EQ(r.hashes[i], hashes[i]);
      EXPECT_EQ(r.good[i], i % 3 == 1 ? 0 : 1);
      if (i % 3 == 1) overwrite(run_in(cases[i], want[i]), std::byte{0xFF});
      EXPECT_TRUE(cases[i].memory == want[i]) << i;
    }
  }
}

TEST(PoisonKernel, every_run_and_nothing_else_is_spoilt) {
  SeededRandom random(19);
  for (const uint64_t width : kWidths) {
    std::vector<Case> cases;
    std::vector<LeafJob> jobs;
    std::vector<std::vector<std::byte>> want;
    for (int n = 0; n < 20; ++n) cases.push_back(make_case(width, 20000, random));
    for (const Case& c : cases) {
      jobs.push_back(leaf_job(c.run, nullptr));
      want.push_back(c.memory);
      overwrite(run_in(c, want.back()), std::byte{0xFF});
    }
    const auto count = static_cast<uint32_t>(jobs.size());
    const auto outcome =
        emulation::launch_named("kvbm_poison_leaves", {{3, 1, 1}, {kBlockThreads, 1, 1}, 0}, {},
                                static_cast<const LeafJob*>(jobs.data()), count, warps_for(largest_of(jobs)));
    ASSERT_TRUE(outcome.ok()) << outcome.text;
    for (size_t i = 0; i < cases.size(); ++i) EXPECT_TRUE(cases[i].memory == want[i]) << i;
  }
}

}  // namespace
}  // namespace kvbm::device::scatter_kernel_test
