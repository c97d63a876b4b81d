#include "codec/record/record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/crypto/random.h"
#include "codec/hash/leaf_hash.h"
#include "support/opaque_leaves.h"

namespace kvbm::codec::record_test {
namespace {

constexpr uint64_t kSeed = 20261121;

Header some_header(uint64_t payload_bytes) {
  Header h;
  h.flags = kOpaque | kContentKey;
  h.ns.bytes.fill(0x11);
  h.key.bytes.fill(0x22);
  h.parent.bytes.fill(0x33);
  h.record_id.fill(0x44);
  h.component = 7;
  h.shard = {1, 2, 3, 4, 1};
  h.geometry = 0x0123456789ABCDEF;
  h.tokens = 256;
  h.key_id = 9;
  h.raw_bytes = h.stored_bytes = payload_bytes;
  return h;
}

struct Sample {
  Header header;
  std::vector<Leaf> leaves;
  std::vector<std::byte> attributes;
  std::vector<std::byte> head;
};

Sample make_sample(uint64_t payload_bytes) {
  Sample s{some_header(payload_bytes), test::opaque_leaves(payload_bytes), {}, {}};
  SeededRandom random(kSeed);
  for (Leaf& leaf : s.leaves) leaf.hash = random.next();
  EXPECT_TRUE(append_attribute(s.attributes, Attribute::engine_hash, std::as_bytes(std::span("hash", 4))).ok());
  EXPECT_TRUE(append_attribute(s.attributes, Attribute::position, encode_position({16, 5, 6})).ok());
  s.header.leaf_count = static_cast<uint32_t>(s.leaves.size());
  s.header.attribute_bytes = static_cast<uint32_t>(s.attributes.size());
  s.head.resize(head_bytes(s.header.leaf_count, s.attributes.size()));
  const auto written = encode_head(s.header, s.leaves, s.attributes, s.head);
  EXPECT_TRUE(written.ok()) << written.status().message();
  return s;
}

TEST(Record, comes_back_as_it_was_written) {
  for (uint64_t payload : {uint64_t{0}, uint64_t{1}, kMaxLeafBytes, 3 * kMaxLeafBytes + 5, 100 * kMaxLeafBytes}) {
    const Sample s = make_sample(payload);
    const auto view = HeadView::parse(s.head);
    ASSERT_TRUE(view.ok()) << view.status().message();
    EXPECT_EQ(s.header, view.value().header());
    EXPECT_EQ(s.head.size(), view.value().head_bytes());
    for (uint32_t i = 0; i < s.leaves.size(); ++i) EXPECT_EQ(s.leaves[i], view.value().leaf(i));
    const auto attributes = parse_attributes(view.value().attributes());
    ASSERT_TRUE(attributes.ok());
    ASSERT_EQ(2U, attributes.value().size());
    EXPECT_EQ(Attribute::engine_hash, attributes.value()[0].tag);
    EXPECT_EQ((Position{16, 5, 6}), parse_position(attributes.value()[1].value));
  }
}

TEST(Record, ignores_what_follows_the_head) {
  Sample s = make_sample(100);
  s.head.resize(s.head.size() + 4096, std::byte{0xEE});
  ASSERT_TRUE(HeadView::parse(s.head).ok());
}

TEST(Record, is_damaged_by_every_bit_flip) {
  for (uint64_t payload : {uint64_t{1000}, 60 * kMaxLeafBytes}) {
    Sample s = make_sample(payload);
    for (size_t bit = 0; bit < s.head.size() * 8; ++bit) {
      s.head[bit / 8] ^= std::byte{1} << (bit % 8);
      const auto view = HeadView::parse(s.head);
      ASSERT_FALSE(view.ok()) << "bit " << bit;
      const bool version_bit = bit / 8 == 4;
      ASSERT_EQ(version_bit && bit != 32 ? Code::newer_version : Code::damaged, view.status().code()) << "bit " << bit;
      s.head[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

TEST(Record, is_damaged_by_every_cut) {
  const Sample s = make_sample(200000);
  for (size_t size = 0; size < s.head.size(); ++size) {
    // A heap copy of just that size, so that a sanitizer sees a read past its end.
    const std::vector<std::byte> cut(s.head.begin(), s.head.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_EQ(Code::damaged, HeadView::parse(cut).status().code()) << size;
  }
}

TEST(Record, header_alone_tells_how_long_the_head_is) {
  const Sample s = make_sample(200000);
  const auto peek = peek_header(ConstBytes(s.head).first(kHeaderBytes));
  ASSERT_TRUE(peek.ok());
  EXPECT_EQ(s.header, peek.value());
  EXPECT_EQ(s.head.size(), head_bytes(peek.value()));
}

TEST(Record, refuses_to_write_what_it_would_not_read) {
  const Sample good = make_sample(3 * kMaxLeafBytes);
  std::vector<std::byte> out(good.head.size());
  const auto code_with = [&](auto change) {
    Sample s = good;
    change(s);
    return encode_head(s.header, s.leaves, s.attributes, out).status().code();
  };
  const Code bad = Code::invalid_argument;
  EXPECT_EQ(Code::ok, code_with([](Sample&) {}));
  EXPECT_EQ(bad, code_with([](Sample& s) { s.header.leaf_count = 2; }));
  EXPECT_EQ(bad, code_with([](Sample& s) { s.header.attribute_bytes += 1; }));
  EXPECT_EQ(bad, code_with([](Sample& s) { s.header.raw_bytes += 1; }));
  EXPECT_EQ(bad, code_with([](Sample& s) { s.header.stored_bytes -= 1; }));
  EXPECT_EQ(bad, code_with([](Sample& s) { s.header.flags = 1U << 15; }));
  EXPECT_EQ(bad, code_with([](Sample& s) { std::swap(s.leaves[0], s.leaves[1]); }));
  EXPECT_EQ(bad, code_with([](Sample& s) { s.leaves[1].offset -= 1; }));
  EXPECT_EQ(bad, code_with([](Sample& s) { s.leaves[0].raw_bytes = kMaxLeafBytes + 1; }));
  EXPECT_EQ(bad, code_with([](Sample& s) { s.leaves[0].reserved = 1; }));
  EXPECT_EQ(bad, code_with([](Sample& s) { s.leaves[0].codec = LeafCodec{1}; }));
  EXPECT_EQ(bad, code_with([](Sample& s) { s.attributes[2] = std::byte{200}; }));
  out.pop_back();
  EXPECT_EQ(bad, code_with([](Sample&) {}));
}

TEST(Record, knows_coded_and_sealed_leaves_by_their_lengths) {
  std::vector<std::byte> out(1024);
  const auto code_with = [&](uint16_t flags, uint16_t codec, uint32_t stored) {
    Header header = some_header(1000);
    header.flags = flags;
    header.leaf_count = 1;
    header.stored_bytes = stored;
    const Leaf leaf{0, stored, 1000, LeafCodec{codec}, 0, 7};
    const auto written = encode_head(header, {&leaf, 1}, {}, out);
    if (!written.ok()) return written.status().code();
    const auto view = HeadView::parse(ConstBytes(out).first(written.value()));
    EXPECT_TRUE(view.ok() && leaf == view.value().leaf(0));
    return view.status().code();
  };
  const Code bad = Code::invalid_argument;
  for (const uint16_t codec : {uint16_t{1}, uint16_t{2}}) {
    EXPECT_EQ(Code::ok, code_with(0, codec, 640));
    EXPECT_EQ(Code::ok, code_with(kSealed, codec, 656));
    EXPECT_EQ(bad, code_with(kSealed, codec, 640));
    EXPECT_EQ(bad, code_with(0, codec, 656));
    EXPECT_EQ(bad, code_with(0, codec, 0));
    EXPECT_EQ(bad, code_with(kSealed, codec, 16));
    EXPECT_EQ(bad, code_with(0, codec, 1024));
  }
  for (const uint16_t codec : {uint16_t{3}, uint16_t{4}}) {
    EXPECT_EQ(bad, code_with(0, codec, 640));
    EXPECT_EQ(Code::ok, code_with(kLossy, codec, 640));
  }
  EXPECT_EQ(bad, code_with(kLossy, 5, 640));
  EXPECT_EQ(Code::ok, code_with(kSealed, 0, 1024));
  EXPECT_EQ(bad, code_with(kSealed, 0, 1016));
  EXPECT_EQ(bad, code_with(kSealed, 0, 1000));
  EXPECT_EQ(bad, code_with(0, 0, 1024));
}

TEST(Record, refuses_random_bytes_behind_a_right_magic) {
  SeededRandom random(kSeed);
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<std::byte> bytes(random.below(400));
    random.fill(bytes);
    if (bytes.size() >= 8) {
      store_le(bytes.data(), kRecordMagic);
      store_le(bytes.data() + 4, kRecordVersion);
    }
    ASSERT_FALSE(HeadView::parse(bytes).ok());
    (void)parse_attributes(bytes);
  }
}

TEST(Record, attributes_stop_at_four_kibibytes) {
  std::vector<std::byte> attributes;
  const std::vector<std::byte> value(2000);
  EXPECT_TRUE(append_attribute(attributes, Attribute::tokens, value).ok());
  EXPECT_TRUE(append_attribute(attributes, Attribute::tokens, value).ok());
  EXPECT_FALSE(append_attribute(attributes, Attribute::tokens, value).ok());
  EXPECT_TRUE(append_attribute(attributes, Attribute::tokens, ConstBytes(value).first(84)).ok());
  EXPECT_EQ(kMaxAttributeBytes, attributes.size());
  EXPECT_FALSE(append_attribute(attributes, Attribute::tokens, {}).ok());
  EXPECT_EQ(kMaxAttributeBytes, attributes.size());
  EXPECT_FALSE(append_attribute(attributes, Attribute::tokens, std::vector<std::byte>(70000)).ok());
}

TEST(Record, opaque_payloads_are_cut_at_64_kib) {
  EXPECT_TRUE(test::opaque_leaves(0).empty());
  EXPECT_EQ(1U, test::opaque_leaves(kMaxLeafBytes).size());
  const auto leaves = test::opaque_leaves(2 * kMaxLeafBytes + 1);
  ASSERT_EQ(3U, leaves.size());
  EXPECT_EQ(2 * kMaxLeafBytes, leaves[2].offset);
  EXPECT_EQ(1U, leaves[2].raw_bytes);
  EXPECT_EQ(kMaxLeaves, test::opaque_leaves(kMaxRecordBytes).size());
  EXPECT_TRUE(test::opaque_leaves(kMaxRecordBytes + 1).empty());
}

}  // namespace
}  // namespace kvbm::codec::record_test
