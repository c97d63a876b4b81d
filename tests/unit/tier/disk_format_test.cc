#include <gtest/gtest.h>

#include "support/disk_world.h"
#include "tier/disk/segment.h"
#include "tier/disk/segment_format.h"
#include "tier/disk/superblock.h"

namespace kvbm::tier::disk::disk_format_test {
namespace {

SegmentLife life() { return SegmentLife{0x1122334455667788, 3, 9, 2, 9, 1 << 20}; }

std::vector<Row> rows(uint32_t n) {
  std::vector<Row> out(n);
  for (uint32_t i = 0; i < n; ++i) {
    out[i].key = test::key_of(i);
    // Two of three heads share a page with the next one.
    out[i].page = i % 3 == 0 ? 2 + 3 * i : 3 + 3 * i;
    out[i].back = i % 3 == 0 ? 0 : i % 3 + 3;
    out[i].head_bytes = 184;
    out[i].payload_bytes = 4096;
    out[i].family = test::family_of(static_cast<uint8_t>(i % 3));
    out[i].has_parent = i > 0;
    if (i > 0) out[i].parent = test::key_of(i % 5 == 0 ? 1000 + i : i - 3 < n ? i - 3 : i);
    out[i].uses = static_cast<uint8_t>(i);
  }
  return out;
}

TEST(SegmentFormat, a_footer_gives_back_its_rows) {
  const auto want = rows(50);
  const auto bytes = encode_footer(life(), want);
  FooterSize size;
  for (const Row& row : want) size.add(row.family);
  EXPECT_LE(bytes.size(), size.bytes());
  auto got = decode_footer(life(), bytes);
  ASSERT_TRUE(got.ok());
  ASSERT_EQ(got.value().size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const Row& a = want[i];
    const Row& b = got.value()[i];
    EXPECT_TRUE(a.key == b.key && a.page == b.page && a.family == b.family && a.parent == b.parent &&
                a.has_parent == b.has_parent && a.uses == b.uses && a.payload_bytes == b.payload_bytes &&
                a.back == b.back && a.head_bytes == b.head_bytes)
        << i;
  }
}

TEST(SegmentFormat, every_bit_of_a_footer_counts) {
  const auto good = encode_footer(life(), rows(50));
  const FooterTail tail = decode_footer_tail(life(), ConstBytes(good).last(kFooterTailBytes)).value();
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    const size_t byte = bit / 8;
    if (byte >= tail.table_bytes() && byte < good.size() - kFooterTailBytes) continue;  // padding
    auto bad = good;
    bad[byte] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_FALSE(decode_footer(life(), bad).ok()) << bit;
  }
}

TEST(SegmentFormat, a_footer_of_an_earlier_life_is_not_taken) {
  const auto bytes = encode_footer(life(), rows(5));
  for (int field = 0; field < 4; ++field) {
    SegmentLife other = life();
    if (field == 0) ++other.generation;
    if (field == 1) ++other.sequence;
    if (field == 2) ++other.segment;
    if (field == 3) ++other.directory_id;
    EXPECT_EQ(decode_footer(other, bytes).status().code(), Code::miss) << field;
  }
}

TEST(SegmentFormat, every_bit_of_a_head_area_counts) {
  const test::TestRecord record(1, 4096, test::family_of(1));
  for (const uint32_t back : {0U, 3U}) {
    Envelope e;
    e.directory_id = 5;
    e.page = 7;
    e.back = back;
    e.head_bytes = static_cast<uint32_t>(record.head.size());
    e.payload_bytes = 4096;
    std::vector<std::byte> area(e.place().area_bytes());
    EXPECT_EQ(area.size(), back == 0 ? kPage : kHeadUnit);
    encode_head_area(e, record.head, area);
    EXPECT_EQ(decode_head_area(area, e.head_bytes).value(), e);
    for (size_t bit = 0; bit < area.size() * 8; ++bit) {
      area[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      ASSERT_FALSE(decode_head_area(area, e.head_bytes).ok()) << bit;
      area[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    }
  }
}

TEST(SegmentFormat, a_place_comes_back_from_what_is_written_and_says_where_both_parts_lie) {
  const RecordPlace own{7, 0, 4000, 5000};
  EXPECT_EQ(own.head_at(), 7 * kPage);
  EXPECT_EQ(own.payload_at(), 8 * kPage);
  EXPECT_EQ(own.end(), 10 * kPage);
  const RecordPlace shared{7, 6, 184, 4096};  // the third unit of page 5
  EXPECT_EQ(shared.head_at(), 5 * kPage + 2 * kHeadUnit);
  EXPECT_EQ(shared.head_page_at(), 5 * kPage);
  EXPECT_EQ(shared.payload_at(), 7 * kPage);
  EXPECT_EQ(shared.bytes(), kHeadUnit + kPage);
  for (const RecordPlace& place : {own, shared, RecordPlace{900, 1023, 960, 1}}) {
    RecordPlace back;
    back.unpack(place.packed());
    EXPECT_EQ(back.back, place.back);
    EXPECT_EQ(back.head_bytes, place.head_bytes);
    EXPECT_TRUE(place.fits(uint64_t{1} << 30));
  }
  EXPECT_FALSE((RecordPlace{0, 0, 184, 4096}).fits(1 << 20));  // the header's page
  EXPECT_FALSE((RecordPlace{2, 5, 184, 4096}).fits(1 << 20));  // a head in the header's page
  EXPECT_FALSE((RecordPlace{7, 3, 961, 4096}).fits(1 << 20));  // a head that is larger than a unit
  EXPECT_FALSE((RecordPlace{7, 3, 184, kSharedPayload + 1}).fits(1 << 20));
  EXPECT_FALSE((RecordPlace{255, 3, 184, 8192}).fits(1 << 20));  // beyond the end
  EXPECT_FALSE((RecordPlace{7, 0, 1U << 22, 4096}).fits(uint64_t{1} << 30));
}

TEST(SegmentFormat, a_segment_header_comes_back_and_every_field_bit_counts) {
  std::vector<std::byte> page(kPage);
  encode_segment_header(life(), page);
  EXPECT_EQ(decode_segment_header(page).value(), life());
  for (size_t bit = 0; bit < 56 * 8; ++bit) {
    auto bad = page;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_FALSE(decode_segment_header(bad).ok()) << bit;
  }
}

// A superblock with floors has a version of its own, so that a library that does not know floors refuses it.
TEST(SegmentFormat, a_name_gives_back_the_number_of_its_segment) {
  EXPECT_EQ(segment_name(0), "segment-000001.kv");
  EXPECT_EQ(segment_name(999'998), "segment-999999.kv");
  EXPECT_EQ(segment_name(999'999), "segment-1000000.kv");
  // The last number is the largest that a tier can have: 16 TiB in segments of 64 KiB.
  for (const uint32_t n : {0U, 41U, 999'998U, 999'999U, 1'048'575U, 9'999'999U, (1U << 28) - 1}) {
    EXPECT_EQ(segment_number(segment_name(n)), n);
    EXPECT_TRUE(is_tier_file(segment_name(n))) << n;
  }
  for (const char* const other :
       {"segment-.kv", "segment-00001.kv", "segment-000000.kv", "segment-0000001.kv", "segment-0000000.kv",
        "segment-00000a.kv", "segment-4294967296.kv", "segment-99999999999.kv", "segment-18446744073709551617.kv",
        "segment-000001.kv.bak", "segment-1000000", "segment-.k", "segment-kv", ".kv"}) {
    EXPECT_EQ(segment_number(other), UINT32_MAX) << other;
    EXPECT_FALSE(is_tier_file(other)) << other;
  }
}

TEST(Superblock, with_floors_it_is_of_a_later_version) {
  Superblock s;
  s.segment_bytes = 1 << 20;
  for (uint64_t n = 0; n < kMaxEpochs; ++n) {
    NamespaceId ns;
    std::memcpy(ns.bytes.data(), &n, sizeof n);
    s.epochs[ns] = {n + 1, n, n % 2 == 0};
  }
  for (uint64_t n = 0; n < kMaxTombstones; ++n) s.tombstones.push_back(Tombstone{test::family_of(1), n});
  std::vector<std::byte> slot(kSuperblockSlotBytes);
  ASSERT_TRUE(encode_superblock(s, slot).ok());
  EXPECT_EQ(load_le<uint32_t>(slot.data() + 4), kFormatVersion);
  EXPECT_EQ(decode_superblock(slot).value(), s);
  s.floors.resize(kEpochFloors);
  s.floors.front() = 5;
  s.floors.back() = UINT64_MAX;
  ASSERT_TRUE(encode_superblock(s, slot).ok());
  EXPECT_EQ(load_le<uint32_t>(slot.data() + 4), kFloorsVersion);
  EXPECT_EQ(decode_superblock(slot).value(), s);
}

TEST(Superblock, comes_back_and_every_flipped_bit_is_seen) {
  Superblock s;
  s.directory_id = 3;
  s.segment_bytes = 1 << 20;
  s.epoch = 4;
  s.epochs[test::namespace_of(1)] = {9, 12, false};
  s.epochs[test::namespace_of(2)] = {1, 13, true};
  s.tombstones.push_back(Tombstone{test::family_of(2), 77});
  s.capacity_bytes = 0x123456789AULL;
  std::vector<std::byte> slot(kSuperblockSlotBytes);
  ASSERT_TRUE(encode_superblock(s, slot).ok());
  EXPECT_EQ(decode_superblock(slot).value(), s);
  SeededRandom random(5);
  for (int i = 0; i < 1000; ++i) {
    const uint64_t bit = i < 900 ? static_cast<uint64_t>(i) : random.below(slot.size() * 8);
    slot[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_FALSE(decode_superblock(slot).ok()) << bit;
    slot[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

}  // namespace
}  // namespace kvbm::tier::disk::disk_format_test
