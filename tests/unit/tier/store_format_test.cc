// Names and index objects of stores: there and back, and what is no such thing.
#include "tier/store/store_format.h"

#include <gtest/gtest.h>

#include "base/crypto/random.h"

namespace kvbm::test::store_format_test {
namespace {

using namespace tier::store;  // NOLINT(google-build-using-namespace): of the file under test alone

IndexObject example() {
  IndexObject index;
  SeededRandom random(5);
  for (uint32_t p = 0; p < 3; ++p) {
    PackRow row;
    row.stamp = {uint64_t{1'700'000'000'000} + p, random.next(), p};
    for (uint32_t i = 0; i < 4; ++i) {
      PackedRecord record;
      random.fill(std::as_writable_bytes(std::span(record.name.bytes)));
      record.family = random.next();
      record.payload_bytes = 1000 + i;
      record.offset = static_cast<uint32_t>(row.bytes);
      record.head_bytes = 184;
      row.bytes += record.bytes();
      row.records.push_back(record);
    }
    index.packs.push_back(row);
  }
  index.erased.push_back(index.packs[0].records[0].name);
  index.families.push_back({77, 1'700'000'000'001});
  NamespaceEpoch epoch;
  epoch.base.bytes.fill(9);
  epoch.epoch = 12;
  index.epochs.push_back(epoch);
  return index;
}

TEST(StoreNames, sort_by_time_and_come_back) {
  const Stamp early{0x0193a4b2c3d4, 0xfedcba9876543210, 7}, late{0x0193a4b3c3d3, 1, 0};
  const std::string name = stamped_name(kIndexPrefix, early);
  EXPECT_EQ(name, "v1/i/0193a4b2/c3d4-fedcba9876543210-00000007");
  EXPECT_LT(name, stamped_name(kIndexPrefix, late));
  EXPECT_EQ(parse_stamp(kIndexPrefix, name), early);
  EXPECT_LT(name_before(kIndexPrefix, early.ms), name);
  EXPECT_GT(name_before(kIndexPrefix, early.ms), stamped_name(kIndexPrefix, {early.ms - 1, UINT64_MAX, UINT32_MAX}));
  NamespaceId base;
  for (size_t i = 0; i < 16; ++i) base.bytes[i] = static_cast<uint8_t>(i * 17);
  const auto epoch = parse_epoch_name(epoch_name(base, 300));
  ASSERT_TRUE(epoch.has_value());
  EXPECT_EQ(epoch->base, base);
  EXPECT_EQ(epoch->epoch, 300U);
  const auto sign = parse_writer_name(writer_name(5, 1234));
  ASSERT_TRUE(sign.has_value());
  EXPECT_EQ(sign->writer, 5U);
  EXPECT_EQ(sign->ms, 1234U);
  for (const char* bad :
       {"", "v1/i/", "v1/i/0193a4b2/c3d4-fedcba9876543210-0000007", "v1/i/0193A4B2/c3d4-fedcba9876543210-00000007",
        "v1/i/0193a4b2/c3d4-fedcba9876543210-000000070", "v1/p/0193a4b2/c3d4-fedcba9876543210-00000007"}) {
    EXPECT_FALSE(parse_stamp(kIndexPrefix, bad).has_value()) << bad;
  }
}

TEST(StoreNames, differ_for_everything_that_tells_records_apart) {
  Family family;
  Key key;
  const RecordName name = record_name(family, key);
  const uint64_t tag = family_tag(family);
  const auto differs = [&](auto change) {
    Family other = family;
    change(other);
    EXPECT_NE(record_name(other, key), name);
    EXPECT_NE(family_tag(other), tag);
  };
  differs([](Family& f) { f.ns.bytes[15] = 1; });
  differs([](Family& f) { f.geometry = 1; });
  differs([](Family& f) { f.component = 1; });
  differs([](Family& f) { f.shard.first_layer = 1; });
  differs([](Family& f) { f.shard.layers = 1; });
  differs([](Family& f) { f.shard.first_head = 1; });
  differs([](Family& f) { f.shard.heads = 1; });
  differs([](Family& f) { f.shard.replicated = 1; });
  key.bytes[3] = 1;
  EXPECT_NE(record_name(family, key), name);
}

TEST(StoreIndexObject, comes_back) {
  const IndexObject index = example();
  const auto bytes = encode_index({1, 2, 3}, index);
  const auto back = decode_index(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back.value().packs, index.packs);
  EXPECT_EQ(back.value().erased, index.erased);
  EXPECT_EQ(back.value().families, index.families);
  ASSERT_EQ(back.value().epochs.size(), 1U);
  EXPECT_EQ(back.value().epochs[0].epoch, 12U);
}

TEST(StoreIndexObject, refuses_every_changed_byte_and_every_cut) {
  const auto bytes = encode_index({1, 2, 3}, example());
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i == 6 || i == 7) continue;  // flags: not used yet
    auto changed = bytes;
    changed[i] ^= std::byte{1};
    EXPECT_FALSE(decode_index(changed).ok()) << i;
  }
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(decode_index(ConstBytes(bytes).first(n)).ok()) << n;
}

TEST(StoreIndexObject, refuses_records_outside_their_pack) {
  IndexObject index = example();
  index.packs[1].records[3].offset += 1;
  EXPECT_EQ(decode_index(encode_index({1, 2, 3}, index)).status().code(), Code::damaged);
  index = example();
  index.packs[1].records[0].payload_bytes = UINT64_MAX - 100;
  EXPECT_EQ(decode_index(encode_index({1, 2, 3}, index)).status().code(), Code::damaged);
  index = example();
  index.packs[1].records[0].head_bytes = 3;
  EXPECT_EQ(decode_index(encode_index({1, 2, 3}, index)).status().code(), Code::damaged);
}

// The sizes of packs add up to what a capacity is compared with.
TEST(StoreIndexObject, refuses_packs_that_are_larger_than_a_pack_can_be) {
  IndexObject index = example();
  index.packs[1].bytes = UINT32_MAX;
  EXPECT_TRUE(decode_index(encode_index({1, 2, 3}, index)).ok());
  index.packs[1].bytes = uint64_t{UINT32_MAX} + 1;
  EXPECT_EQ(decode_index(encode_index({1, 2, 3}, index)).status().code(), Code::damaged);
  index.packs[1].bytes = uint64_t{1} << 63;
  EXPECT_EQ(decode_index(encode_index({1, 2, 3}, index)).status().code(), Code::damaged);
}

}  // namespace
}  // namespace kvbm::test::store_format_test
