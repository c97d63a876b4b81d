// Coded leaves through Transfers, on the fake of the CUDA driver with the kernels' own source. They land as the CPU
// would have decoded them, among plain ones, on every path. Damaged leaves are reported and overwritten.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "codec/coded/leaf_codec.h"
#include "codec/hash/leaf_hash.h"
#include "codec/leaf/frame.h"
#include "device/transfer/transfers.h"
#include "support/lossy_leaves.h"
#include "support/transfer_world.h"

namespace kvbm::device::coded_transfers_test {
namespace {

using codec::LeafCodec;
using test::Outcome;
using test::TransferWorld;
using Bytes = std::vector<std::byte>;

struct Coded {
  LeafCodec codec = LeafCodec::raw;
  Bytes stored;
  Bytes plain;  // of decoding
};

// Returns a coded leaf of `values` values of the real cache.
Coded code(codec::Mode mode, size_t first, size_t values) {
  static const Bytes cache = test::real_cache(KVBM_TEST_DATA);
  static codec::Workspace workspace;
  const size_t begin = 2 * (first % (cache.size() / 2 - values));
  const Bytes raw(cache.begin() + static_cast<ptrdiff_t>(begin),
                  cache.begin() + static_cast<ptrdiff_t>(begin + 2 * values));
  Bytes room(codec::encode_room(raw.size()));
  const auto encoded =
      codec::encode_leaf({codec::Element::bf16, 64, 16}, mode, raw, codec::leaf_hash(raw), room, workspace);
  EXPECT_TRUE(encoded.ok() && encoded.value().codec != LeafCodec::raw);
  room.resize(encoded.value().bytes);
  Coded coded{encoded.value().codec, room, Bytes(raw.size())};
  EXPECT_TRUE(codec::decode_leaf(coded.codec, coded.stored, coded.plain, workspace).ok());
  return coded;
}

struct Mixed {
  std::vector<LeafMove> leaves;
  std::vector<Bytes> plain;  // of each leaf, as it should land
};

// Makes plain and coded leaves in turn, with records almost contiguous but for some odd bytes, `loose` of 100 not
// pinned.
Mixed make_mixed(TransferWorld& world, size_t n, uint32_t loose) {
  constexpr codec::Mode kModes[] = {codec::Mode::standard, codec::Mode::int8, codec::Mode::fast,
                                    codec::Mode::fp8_e4m3, codec::Mode::max,  codec::Mode::int4};
  Mixed mixed;
  uint64_t record = 0, page = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t values = 64 * (16 + world.random.below(80));
    const Coded coded = code(kModes[world.random.below(std::size(kModes))], world.random.below(100000), values);
    LeafMove leaf;
    const bool plain = world.random.below(4) == 0;
    const Bytes& at_record = plain ? coded.plain : coded.stored;
    if (world.random.below(3) == 0) record += world.random.below(100);
    const bool is_loose = world.random.below(100) < loose;
    leaf.record = (is_loose ? world.loose.data() : world.pinned) + record;
    EXPECT_LT(record + at_record.size(), TransferWorld::kBytes);
    std::memcpy(leaf.record, at_record.data(), at_record.size());
    record += at_record.size();
    // Rows of 128 bytes with gaps between them, or all in one piece.
    leaf.device.bytes = world.random.below(2) == 0 ? 2 * values : 128;
    leaf.device.count0 = static_cast<uint32_t>(2 * values / leaf.device.bytes);
    leaf.device.stride0 = static_cast<int64_t>(leaf.device.bytes + 16 * world.random.below(3));
    leaf.device.data = world.pages + page;
    page += static_cast<uint64_t>(leaf.device.stride0) * leaf.device.count0;
    EXPECT_LT(page, TransferWorld::kBytes);
    leaf.expected = codec::leaf_hash(coded.plain);
    if (!plain) {
      leaf.codec = coded.codec;
      leaf.coded_bytes = static_cast<uint32_t>(coded.stored.size());
      EXPECT_TRUE(world.transfers->decodes(leaf.codec, ConstBytes(leaf.record, leaf.coded_bytes)));
    }
    mixed.leaves.push_back(leaf);
    mixed.plain.push_back(coded.plain);
  }
  return mixed;
}

// Returns the pages with those leaves in them, and nothing else changed.
Bytes pages_with(const TransferWorld& world, const Mixed& mixed, const std::vector<bool>& poisoned) {
  Bytes pages(world.pages, world.pages + TransferWorld::kBytes);
  for (size_t i = 0; i < mixed.leaves.size(); ++i) {
    const StridedRun& run = mixed.leaves[i].device;
    for (uint32_t p = 0; p < run.count0; ++p) {
      std::byte* const to = pages.data() + (run.data - world.pages) + int64_t{p} * run.stride0;
      if (poisoned[i]) {
        std::fill_n(to, run.bytes, std::byte{0xFF});
      } else {
        std::memcpy(to, mixed.plain[i].data() + p * run.bytes, run.bytes);
      }
    }
  }
  return pages;
}

struct Way {
  const char* name;
  TransferOptions options;
  uint32_t loose;
};

std::vector<Way> ways() {
  TransferOptions shared = TransferWorld::small_options();
  shared.plan.always_mapped = true;
  TransferOptions one_part = TransferWorld::small_options();
  one_part.part_bytes = 1U << 20;
  return {{"by size", TransferWorld::small_options(), 0},
          {"bounced", TransferWorld::small_options(), 100},
          {"some bounced", TransferWorld::small_options(), 30},
          {"large parts", one_part, 20},
          {"one memory", shared, 0},
          {"one memory, bounced", shared, 50}};
}

// Batches that streams wait for use no copy engine, so their coded leaves are decoded where they lie.
TEST(CodedTransfers, coded_leaves_that_streams_wait_for_are_not_copied) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    TransferWorld world;
    ASSERT_TRUE(world.open(way.options).ok());
    const Mixed mixed = make_mixed(world, 60, way.loose);
    const Bytes want = pages_with(world, mixed, std::vector<bool>(mixed.leaves.size()));
    TransferBatch batch;
    batch.leaves = mixed.leaves;
    batch.landmark = world.transfers->landmark();
    ASSERT_NE(batch.landmark, nullptr);
    batch.marks = {{20, 1}, {mixed.leaves.size(), 2}};
    Outcome outcome = world.scatter(std::move(batch));
    ASSERT_EQ(outcome.wait(), Code::ok);
    EXPECT_TRUE(std::equal(want.begin(), want.end(), world.pages));
    EXPECT_EQ(world.cuda.copied_bytes(), 0U);
    EXPECT_NE(world.transfers->scatters().decoded_leaves, 0U);
  }
}

TEST(CodedTransfers, coded_leaves_land_as_the_cpu_decodes_them) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    TransferWorld world;
    const Status opened = world.open(way.options);
    ASSERT_TRUE(opened.ok()) << opened.message();
    const Mixed mixed = make_mixed(world, 60, way.loose);
    const Bytes want = pages_with(world, mixed, std::vector<bool>(mixed.leaves.size()));
    TransferBatch batch;
    batch.leaves = mixed.leaves;
    Outcome outcome = world.scatter(std::move(batch));
    ASSERT_EQ(outcome.wait(), Code::ok);
    size_t coded = 0;
    for (size_t i = 0; i < mixed.leaves.size(); ++i) {
      EXPECT_EQ(1, outcome.good[i]) << i;
      EXPECT_EQ(mixed.leaves[i].expected, outcome.hashes[i]) << i;
      coded += mixed.leaves[i].codec != LeafCodec::raw;
    }
    EXPECT_TRUE(std::equal(want.begin(), want.end(), world.pages));
    EXPECT_EQ(coded, world.transfers->scatters().decoded_leaves);
    EXPECT_EQ(0U, world.transfers->scatters().bad_leaves);
    world.close();
  }
}

TEST(CodedTransfers, what_is_damaged_or_not_expected_is_told_and_overwritten) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    TransferWorld world;
    ASSERT_TRUE(world.open(way.options).ok());
    Mixed mixed = make_mixed(world, 40, way.loose);
    std::vector<bool> bad(mixed.leaves.size());
    for (size_t i = 0; i < mixed.leaves.size(); ++i) {
      LeafMove& leaf = mixed.leaves[i];
      const uint64_t what = world.random.below(4);
      bad[i] = what != 0;
      if (what == 1) leaf.record[leaf.record_bytes() / 2] ^= std::byte{1};
      if (what == 2) leaf.expected ^= 1;
      if (what == 3) leaf.record[leaf.codec == LeafCodec::raw ? 8 : 1] ^= std::byte{0x40};
    }
    const Bytes want = pages_with(world, mixed, bad);
    TransferBatch batch;
    batch.leaves = mixed.leaves;
    Outcome outcome = world.scatter(std::move(batch));
    ASSERT_EQ(outcome.wait(), Code::ok);
    for (size_t i = 0; i < bad.size(); ++i) EXPECT_EQ(bad[i] ? 0 : 1, outcome.good[i]) << i;
    EXPECT_TRUE(std::equal(want.begin(), want.end(), world.pages));
    world.close();
  }
}

// A leaf of another block is intact and vouches for itself: only the hash of the stored bytes detects it.
TEST(CodedTransfers, a_coded_leaf_that_is_not_the_one_that_was_stored_is_overwritten) {
  for (const Way& way : ways()) {
    SCOPED_TRACE(way.name);
    TransferWorld world;
    ASSERT_TRUE(world.open(way.options).ok());
    Mixed mixed = make_mixed(world, 40, way.loose);
    std::vector<bool> bad(mixed.leaves.size());
    for (size_t i = 0; i < mixed.leaves.size(); ++i) {
      LeafMove& leaf = mixed.leaves[i];
      leaf.check = false;  // nothing but the frame tells the plain hash
      leaf.check_coded = leaf.codec != LeafCodec::raw && world.random.below(4) != 0;
      leaf.coded_hash = codec::leaf_hash(ConstBytes(leaf.record, leaf.record_bytes()));
      bad[i] = leaf.check_coded && world.random.below(2) == 0;
      if (bad[i]) leaf.coded_hash ^= 1;
    }
    const Bytes want = pages_with(world, mixed, bad);
    TransferBatch batch;
    batch.leaves = mixed.leaves;
    Outcome outcome = world.scatter(std::move(batch));
    ASSERT_EQ(outcome.wait(), Code::ok);
    for (size_t i = 0; i < bad.size(); ++i) EXPECT_EQ(bad[i] ? 0 : 1, outcome.good[i]) << i;
    EXPECT_TRUE(std::equal(want.begin(), want.end(), world.pages));
    world.close();
  }
}

TEST(CodedTransfers, leaves_that_no_kernel_decodes_are_refused) {
  TransferWorld world;
  ASSERT_TRUE(world.open().ok());
  const Coded planar = code(codec::Mode::standard, 0, 2048);
  const Coded entropy = code(codec::Mode::int4_coded, 0, 4096);
  EXPECT_TRUE(world.transfers->decodes(planar.codec, planar.stored));
  EXPECT_FALSE(world.transfers->decodes(entropy.codec, entropy.stored));
  EXPECT_FALSE(world.transfers->decodes(LeafCodec::zstd, planar.stored));
  EXPECT_FALSE(world.transfers->decodes(LeafCodec::delta, planar.stored));
  Bytes newer = planar.stored;
  newer[codec::kFrameShapeAt] = std::byte{9};  // of a later version
  EXPECT_FALSE(world.transfers->decodes(planar.codec, newer));
  newer[codec::kFrameShapeAt] = std::byte{18};
  EXPECT_FALSE(world.transfers->decodes(planar.codec, newer));
  newer[codec::kFrameShapeAt] = std::byte{17};  // coded signs
  EXPECT_TRUE(world.transfers->decodes(planar.codec, newer));
  EXPECT_FALSE(world.transfers->decodes(LeafCodec::planar, ConstBytes(planar.stored).first(63)));
  const auto ends_with = [&](LeafCodec codec, uint32_t coded_bytes, bool out) {
    LeafMove leaf;
    leaf.device.data = world.pages;
    leaf.device.bytes = 4096;
    leaf.record = world.pinned;
    leaf.codec = codec;
    leaf.coded_bytes = coded_bytes;
    TransferBatch batch;
    batch.leaves.push_back(leaf);
    Outcome outcome = out ? world.gather(std::move(batch)) : world.scatter(std::move(batch));
    return outcome.wait();
  };
  EXPECT_EQ(Code::invalid_argument, ends_with(LeafCodec::planar, 0, false));
  EXPECT_EQ(Code::invalid_argument, ends_with(LeafCodec::planar, 4096, false));
  EXPECT_EQ(Code::invalid_argument, ends_with(LeafCodec::zstd, 1024, false));
  EXPECT_EQ(Code::invalid_argument, ends_with(LeafCodec::delta, 1024, false));
  EXPECT_EQ(Code::invalid_argument, ends_with(LeafCodec::planar, 1024, true));
  // No coded leaf has this length: the kernel refuses it.
  EXPECT_EQ(Code::ok, ends_with(LeafCodec::planar, 100, false));
  EXPECT_EQ(1U, world.transfers->scatters().bad_leaves);
  world.close();
}

}  // namespace
}  // namespace kvbm::device::coded_transfers_test
