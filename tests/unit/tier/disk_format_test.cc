#include <gtest/gtest.h>

#include "support/disk_world.h"
#include "tier/disk/segment_format.h"
#include "tier/disk/superblock.h"

namespace kvbm::tier::disk::disk_format_test {
namespace {

SegmentLife life() { return SegmentLife{0x1122334455667788, 3, 9, 2, 9, 1 << 20}; }

std::vector<Row> rows(uint32_t n) {
  std::vector<Row> out(n);
  for (uint32_t i = 0; i < n; ++i) {
    out[i].key = test::key_of(i);
    out[i].page = 1 + 2 * i;
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
                a.has_parent == b.has_parent && a.uses == b.uses && a.payload_bytes == b.payload_bytes)
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
  Envelope e;
  e.directory_id = 5;
  e.page = 7;
  e.head_bytes = static_cast<uint32_t>(record.head.size());
  e.payload_bytes = 4096;
  std::vector<std::byte> area(head_area(record.head.size()));
  encode_head_area(e, record.head, area);
  EXPECT_EQ(decode_head_area(area, e.head_bytes).value(), e);
  for (size_t bit = 0; bit < area.size() * 8; ++bit) {
    area[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ASSERT_FALSE(decode_head_area(area, e.head_bytes).ok()) << bit;
    area[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
  }
}

TEST(SegmentFormat, a_small_record_takes_two_pages) { EXPECT_EQ(record_bytes(codec::head_bytes(1, 0), 4096), 8192U); }

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

// A kvbm that knows no such tombstone would find again what was forgotten: it must refuse the directory.
TEST(Superblock, a_tombstone_of_all_families_raises_the_version) {
  Superblock s;
  s.segment_bytes = 1 << 20;
  std::vector<std::byte> slot(kSuperblockSlotBytes);
  ASSERT_TRUE(encode_superblock(s, slot).ok());
  EXPECT_EQ(load_le<uint32_t>(slot.data() + 4), 1U);
  s.tombstones.push_back(Tombstone{kEveryFamily, 77});
  ASSERT_TRUE(encode_superblock(s, slot).ok());
  EXPECT_EQ(load_le<uint32_t>(slot.data() + 4), 2U);
  EXPECT_EQ(decode_superblock(slot).value(), s);
}

}  // namespace
}  // namespace kvbm::tier::disk::disk_format_test
