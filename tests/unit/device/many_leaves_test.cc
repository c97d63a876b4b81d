// Batch entries that are many leaves: every byte, hash and fault as with single leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "codec/hash/leaf_hash.h"
#include "device/transfer/landmark.h"
#include "device/transfer/leaf_table.h"
#include "device/transfer/transfer_work.h"
#include "device/transfer/transfers.h"
#include "support/transfer_world.h"

namespace kvbm::device::many_leaves_test {
namespace {

using test::Outcome;
using test::TransferWorld;

constexpr uint32_t kLeaf = 2048;
constexpr uint32_t kLeaves = 24;  // of a block
constexpr uint32_t kBlocks = 8;
constexpr uint64_t kRecord = uint64_t{kLeaf} * kLeaves;

struct Way {
  const char* name;
  Path path;
  bool loose;
  bool one_piece;   // a block is one piece on the device
  uint32_t tokens;  // of a leaf's own pieces
};
constexpr Way kWays[] = {
    {"mapped", Path::mapped, false, false, 1},         {"staged", Path::staged, false, false, 1},
    {"in rows", Path::staged, false, false, 8},        {"straight", Path::straight, false, true, 1},
    {"mapped, bounced", Path::mapped, true, false, 1}, {"staged, bounced", Path::staged, true, false, 8}};

TransferOptions options_of(const Way& way) {
  TransferOptions options = TransferWorld::small_options();
  constexpr uint64_t kNever = 1ULL << 40;
  options.plan.mapped_bytes = way.path == Path::mapped ? kNever : 0;
  options.plan.staged_run_bytes = 0;
  options.plan.straight_bytes = way.path == Path::straight ? 1 : kNever;
  return options;
}

class ManyLeaves : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    const Way& way = GetParam();
    const Status opened = world_.open(options_of(way));
    ASSERT_TRUE(opened.ok()) << opened.message();
    for (uint32_t i = 0; i < kLeaves; ++i) table_.add(run(i, 0), run(i, 1), i * kLeaf, i / 2, 0);
    table_.finish();
    ASSERT_GT(table_.group_end(0), 2U);
  }

  // Returns the run of leaf i of a block: the device's tensors are a layer and plane each, or a block is one piece.
  [[nodiscard]] StridedRun run(uint32_t i, uint32_t block) const {
    const Way& way = GetParam();
    StridedRun run;
    run.data = world_.pages + (way.one_piece ? block * kRecord + i * kLeaf : (uint64_t{i} * kBlocks + block) * kLeaf);
    run.bytes = kLeaf / way.tokens;
    // Puts the rows in reverse order.
    run.count1 = way.tokens;
    run.stride1 = -static_cast<int64_t>(run.bytes);
    if (way.tokens != 1) run.data += kLeaf - run.bytes;
    return run;
  }
  [[nodiscard]] std::byte* record(uint32_t block) {
    return (GetParam().loose ? world_.loose.data() : world_.pinned) + (kBlocks - 1 - block) * (kRecord + 4096);
  }
  // Makes a batch of all blocks, each as groups, with single leaves between them on request.
  TransferBatch batch(bool checked) {
    TransferBatch out;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      for (uint32_t i = 0; i < kLeaves;) {
        LeafMove move;
        uint32_t end = table_.group_end(i);
        if (i % 5 == 0) {
          move.device = run(i, block);
          end = i + 1;
          if (checked) move.expected = wanted_[block * kLeaves + i];
        } else {
          move.table = &table_;
          move.block = block;
          move.first_leaf = i;
          end = std::min(end, i + 3 + block % 2);
          move.leaf_count = end - i;
          move.device = LeafMove::table_run(table_, i, end - i, block);
          move.expected = out.expected.size();
          for (uint32_t k = i; checked && k < end; ++k) out.expected.push_back(wanted_[block * kLeaves + k]);
        }
        move.record = record(block) + i * kLeaf;
        move.check = checked;
        out.leaves.push_back(move);
        i = end;
      }
    }
    return out;
  }
  [[nodiscard]] std::vector<std::byte> page(uint32_t i, uint32_t block) const {
    LeafMove one;
    one.device = run(i, block);
    return TransferWorld::pages_of(one);
  }
  void remember_records() {
    wanted_.clear();
    for (uint32_t block = 0; block < kBlocks; ++block) {
      for (uint32_t i = 0; i < kLeaves; ++i) wanted_.push_back(codec::leaf_hash({record(block) + i * kLeaf, kLeaf}));
    }
  }

  TransferWorld world_;
  LeafTable table_;
  std::vector<uint64_t> wanted_;
};

TEST_P(ManyLeaves, are_gathered_with_the_hash_of_each) {
  Outcome outcome = world_.gather(batch(false));
  ASSERT_EQ(outcome.wait(), Code::ok);
  ASSERT_EQ(outcome.hashes.size(), size_t{kLeaves} * kBlocks);
  for (uint32_t block = 0; block < kBlocks; ++block) {
    for (uint32_t i = 0; i < kLeaves; ++i) {
      const std::vector<std::byte> bytes = page(i, block);
      ASSERT_EQ(std::memcmp(bytes.data(), record(block) + i * kLeaf, kLeaf), 0) << block << " " << i;
      ASSERT_EQ(outcome.hashes[block * kLeaves + i], codec::leaf_hash(bytes)) << block << " " << i;
      ASSERT_EQ(outcome.good[block * kLeaves + i], 1);
    }
  }
  const TransferStats stats = world_.transfers->gathers();
  EXPECT_EQ(stats.leaves, uint64_t{kLeaves} * kBlocks);
  EXPECT_EQ(stats.bytes, kRecord * kBlocks);
  EXPECT_EQ(stats.bounced_leaves, GetParam().loose ? stats.leaves : 0);
  const uint64_t on_way = GetParam().path == Path::mapped   ? stats.mapped_leaves
                          : GetParam().path == Path::staged ? stats.staged_leaves
                                                            : stats.straight_leaves;
  EXPECT_EQ(on_way, stats.leaves);
}

TEST_P(ManyLeaves, are_scattered_and_only_what_is_wrong_becomes_poison) {
  world_.fill_records();
  remember_records();
  constexpr uint32_t kBadBlock = 3;
  for (const uint32_t bad : {1U, 7U, 20U}) record(kBadBlock)[bad * kLeaf + 11] ^= std::byte{1};
  TransferBatch in = batch(true);
  in.landmark = world_.transfers->landmark();
  ASSERT_NE(in.landmark, nullptr);
  in.marks = {{in.leaves.size() / 2, 1}, {in.leaves.size(), 2}};
  Outcome outcome = world_.scatter(std::move(in));
  ASSERT_EQ(outcome.wait(), Code::ok);
  for (uint32_t block = 0; block < kBlocks; ++block) {
    for (uint32_t i = 0; i < kLeaves; ++i) {
      const bool bad = block == kBadBlock && (i == 1 || i == 7 || i == 20);
      ASSERT_EQ(outcome.good[block * kLeaves + i], bad ? 0 : 1) << block << " " << i;
      const std::vector<std::byte> bytes = page(i, block);
      if (bad) {
        EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xFF}; })) << i;
      } else {
        ASSERT_EQ(std::memcmp(bytes.data(), record(block) + i * kLeaf, kLeaf), 0) << block << " " << i;
      }
    }
  }
  EXPECT_EQ(world_.transfers->scatters().bad_leaves, 3U);
}

// Leaves of a refused batch that did not land are poison before a stream is let past, every one of them.
TEST_P(ManyLeaves, of_a_batch_that_was_refused_are_right_or_poison) {
  for (const char* entry : {"cuLaunchKernel", "cuEventRecord"}) {
    world_.fill_pages();
    world_.fill_records();
    remember_records();
    TransferBatch in = batch(true);
    in.landmark = world_.transfers->landmark();
    in.marks = {{in.leaves.size() / 3, 1}, {in.leaves.size(), 2}};
    world_.cuda.fail(entry, 3, kCuInvalidValue);
    Outcome outcome = world_.scatter(std::move(in));
    EXPECT_EQ(outcome.wait(), Code::internal) << entry;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      for (uint32_t i = 0; i < kLeaves; ++i) {
        const std::vector<std::byte> bytes = page(i, block);
        const bool poison = std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xFF}; });
        ASSERT_TRUE(poison || std::memcmp(bytes.data(), record(block) + i * kLeaf, kLeaf) == 0)
            << entry << block << " " << i;
      }
    }
  }
}

// When leaves are split into single entries, marks stay behind the leaves that they were behind.
TEST_P(ManyLeaves, that_are_taken_apart_have_their_marks_where_they_were) {
  remember_records();
  TransferBatch in = batch(true);
  in.landmark = world_.transfers->landmark();
  const size_t half = in.leaves.size() / 2;
  in.marks = {{0, 1}, {half, 2}, {in.leaves.size(), 3}};
  size_t before = 0;
  for (size_t i = 0; i < half; ++i) before += in.leaves[i].leaf_count;
  ASSERT_GT(before, half);
  const TransferOptions options = options_of(GetParam());
  // No host memory is known, so all of it is bounced.
  const auto work =
      make_work(std::move(in), Direction::scatter, {}, options.plan, static_cast<uint32_t>(options.part_bytes), 64);
  ASSERT_EQ(work->code, Code::ok);
  ASSERT_EQ(work->batch.leaves.size(), size_t{kLeaves} * kBlocks);
  EXPECT_EQ(work->batch.marks[0].leaf_count, 0U);
  EXPECT_EQ(work->batch.marks[1].leaf_count, before);
  EXPECT_EQ(work->batch.marks[2].leaf_count, work->batch.leaves.size());
  for (size_t i = 0; i < work->batch.leaves.size(); ++i) {
    EXPECT_EQ(work->batch.leaves[i].expected, wanted_[i]) << i;
    EXPECT_EQ(work->leaf_at[i], i);
  }
}

TEST_P(ManyLeaves, that_are_none_are_refused) {
  const auto code_of = [&](auto&& spoil) {
    remember_records();
    TransferBatch in = batch(true);
    const auto many =
        std::find_if(in.leaves.begin(), in.leaves.end(), [](const LeafMove& m) { return m.table != nullptr; });
    spoil(in, *many);
    return world_.scatter(std::move(in)).wait();
  };
  EXPECT_EQ(code_of([](TransferBatch&, LeafMove& m) { m.leaf_count = 0; }), Code::invalid_argument);
  EXPECT_EQ(code_of([](TransferBatch&, LeafMove& m) { m.leaf_count = kLeaves; }), Code::invalid_argument);
  EXPECT_EQ(code_of([](TransferBatch&, LeafMove& m) { m.first_leaf = kLeaves; }), Code::invalid_argument);
  EXPECT_EQ(code_of([](TransferBatch&, LeafMove& m) { m.record = nullptr; }), Code::invalid_argument);
  EXPECT_EQ(code_of([](TransferBatch&, LeafMove& m) { m.poison = true; }), Code::invalid_argument);
  EXPECT_EQ(code_of([](TransferBatch& b, LeafMove&) { b.expected.pop_back(); }), Code::invalid_argument);
  EXPECT_EQ(code_of([](TransferBatch& b, LeafMove&) { b.leaves[0].leaf_count = 2; }), Code::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Ways, ManyLeaves, ::testing::ValuesIn(kWays), [](const auto& way) {
  std::string name = way.param.name;
  std::erase_if(name, [](char c) { return c == ',' || c == ' '; });
  return name;
});

}  // namespace
}  // namespace kvbm::device::many_leaves_test
