#include "tier/disk/inspect.h"

#include <algorithm>
#include <map>

#include "support/disk_world.h"

namespace kvbm::test::disk_inspect_test {
namespace {

TEST(DiskInspect, counts_records_by_segment_and_finds_damage) {
  DiskWorld w(1);
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 60; ++n) ASSERT_EQ(w.put_now(n, 8192, true), Code::ok);
  auto live = tier::disk::inspect(w.disk, "/tier", true, UINT64_MAX, {}, {});
  ASSERT_TRUE(live.ok());
  EXPECT_TRUE(live.value().in_use);
  EXPECT_EQ(live.value().records, 60U);
  ASSERT_TRUE(w.close());
  ASSERT_TRUE(w.disk.flip_bit("/tier", "segment-000001.kv", (4096 + 4096 + 100) * 8));
  uint64_t damaged = 0;
  auto after = tier::disk::inspect(
      w.disk, "/tier", true, UINT64_MAX, {},
      [&](const tier::disk::SegmentReport&, const tier::disk::Row&, bool bad) { damaged += bad ? 1 : 0; });
  ASSERT_TRUE(after.ok());
  EXPECT_FALSE(after.value().in_use);
  EXPECT_EQ(after.value().records, 60U);
  EXPECT_EQ(after.value().damaged, 1U);
  EXPECT_EQ(damaged, 1U);
  EXPECT_EQ(after.value().segments.at(0).state, "closed");
}

TEST(DiskInspect, reads_as_many_heads_of_each_segment_as_it_is_told) {
  DiskWorld w(3);
  ASSERT_TRUE(w.open().ok());
  for (uint64_t n = 1; n <= 60; ++n) ASSERT_EQ(w.put_now(n, 8192, true), Code::ok);
  ASSERT_TRUE(w.close());
  auto all = tier::disk::inspect(w.disk, "/tier", true, UINT64_MAX, {}, {});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all.value().coding.heads, 60U);
  auto some = tier::disk::inspect(w.disk, "/tier", true, 3, {}, {});
  ASSERT_TRUE(some.ok());
  uint64_t expected = 0;
  for (const auto& segment : some.value().segments) expected += std::min<uint64_t>(3, segment.records);
  EXPECT_EQ(some.value().coding.heads, expected);
  EXPECT_LT(expected, 60U);
  EXPECT_EQ(some.value().records, 60U);
  EXPECT_EQ(some.value().coding.coded + some.value().coding.sealed, 0U);
}

Code put_record(DiskWorld& w, uint64_t n, const TestRecord& record) {
  auto batch = std::make_unique<tier::PutBatch>();
  tier::PutItem item;
  item.id = w.id(n);
  item.head = record.head;
  item.payload = record.payload();
  batch->items.push_back(item);
  std::vector<Code> codes;
  batch->done = [&codes](tier::PutBatch& b) { codes = b.status; };
  w.tier->put(std::move(batch));
  w.sim.run_until([&] { return !codes.empty(); });
  return codes.empty() ? Code::internal : codes[0];
}

// One record of each kind: the facts in heads about coding and sealing, and their counts.
TEST(DiskInspect, tells_coded_and_sealed_records_from_plain_ones) {
  DiskWorld w(4);
  ASSERT_TRUE(w.open().ok());
  constexpr uint64_t kRaw = 8192;
  constexpr uint64_t kSealed = codec::kSealTagBytes + codec::kSealedHashBytes;
  const struct {
    uint16_t flags;
    uint64_t stored;
  } kinds[] = {{0, kRaw},
               {0, 4096},
               {codec::kLossy, 2048},
               {codec::kSealed, kRaw + kSealed},
               {codec::kSealed, 4096 + codec::kSealTagBytes}};
  uint64_t n = 0;
  for (const auto& kind : kinds) {
    TestRecord record(++n, kind.stored, family_of(1));
    const auto view = codec::HeadView::parse(record.head);
    ASSERT_TRUE(view.ok());
    codec::Header header = view.value().header();
    header.flags = static_cast<uint16_t>(header.flags | kind.flags);
    header.raw_bytes = kRaw;
    header.key_id = (kind.flags & codec::kSealed) != 0 ? 7 : 0;
    codec::Leaf leaf = view.value().leaf(0);
    leaf.raw_bytes = kRaw;
    leaf.codec = kind.stored < kRaw ? codec::LeafCodec::planar : codec::LeafCodec::raw;
    ASSERT_TRUE(codec::encode_head(header, std::span(&leaf, 1), {}, record.head).ok());
    ASSERT_EQ(put_record(w, n, record), Code::ok);
  }
  ASSERT_TRUE(w.close());
  const auto report = tier::disk::inspect(w.disk, "/tier", true, UINT64_MAX, {}, {});
  ASSERT_TRUE(report.ok());
  const tier::disk::CodingReport& coding = report.value().coding;
  EXPECT_EQ(coding.heads, 5U);
  EXPECT_EQ(coding.coded, 3U);
  EXPECT_EQ(coding.lossy, 1U);
  EXPECT_EQ(coding.sealed, 2U);
  EXPECT_EQ(coding.keys, (std::map<uint32_t, uint64_t>{{7, 2}}));
  EXPECT_EQ(coding.plain_bytes, 4 * kRaw);
  EXPECT_EQ(coding.stored_bytes, 4096 + 2048 + kRaw + kSealed + 4096 + codec::kSealTagBytes);
}

TEST(DiskInspect, says_that_a_directory_is_no_tier) {
  DiskWorld w(2);
  ASSERT_TRUE(w.disk.open_directory("/other", true).ok());
  EXPECT_EQ(tier::disk::inspect(w.disk, "/other", true, UINT64_MAX, {}, {}).status().code(), Code::miss);
}

}  // namespace
}  // namespace kvbm::test::disk_inspect_test
