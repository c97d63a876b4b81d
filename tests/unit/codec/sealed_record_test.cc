// Attacks on a sealed record by a writer to a disk or a link: each must give a miss.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "codec/coded/coded_record.h"
#include "support/coded_records.h"

namespace kvbm::codec::sealed_record_test {
namespace {

using coded_records::decode;
using coded_records::encoded;
using coded_records::make_right;
using coded_records::plain_record;
using coded_records::Record;
using coded_records::ring_of;

constexpr uint64_t kSeed = 20261122;

// Two leaves of equal length, so that they can be swapped, one raw and one coded of another length.
Record small_record(Random& random) { return plain_record({{256, 256, 100, 1024}, true, true, 0}, random); }

struct SealedRecord : ::testing::Test {
  SeededRandom random{kSeed};
  std::shared_ptr<const KeyRing> ring = ring_of(coded_records::kTwoKeys);
  Record plain = small_record(random);
  Record sealed = encoded(plain, "default", ring.get(), random);

  [[nodiscard]] Status open(const Record& record) const { return decode(record, {ring.get()}); }
};

// Root hash and checksum are not keyed, so they are made right again, or each flip would end there.
TEST_F(SealedRecord, every_flipped_byte_is_a_miss) {
  ASSERT_TRUE(open(sealed).ok());
  std::set<LeafCodec> codecs;
  for (uint32_t i = 0; i < 4; ++i) codecs.insert(sealed.view().leaf(i).codec);
  ASSERT_EQ(2U, codecs.size());  // raw ones and coded ones
  for (size_t i = 0; i < sealed.head.size(); ++i) {
    for (const unsigned bit : {0U, 3U, 7U}) {
      Record wrong = sealed;
      wrong.head[i] ^= std::byte{1} << bit;
      ASSERT_FALSE(open(wrong).ok()) << i;
      make_right(wrong.head);
      if (wrong.head != sealed.head) {
        ASSERT_FALSE(open(wrong).ok()) << i;
      }
    }
  }
  for (size_t i = 0; i < sealed.payload.size(); ++i) {
    Record wrong = sealed;
    wrong.payload[i] ^= static_cast<std::byte>(1 + random.below(255));
    ASSERT_EQ(Code::damaged, open(wrong).code()) << i;
  }
}

Leaf leaf_of(const Record& record, uint32_t i) { return record.view().leaf(i); }

// Puts the stored bytes and hash of a leaf in the place of another leaf of that length.
void transplant(const Record& from, uint32_t source, Record& to, uint32_t target) {
  const Leaf given = leaf_of(from, source);
  Leaf leaf = leaf_of(to, target);
  ASSERT_EQ(given.stored_bytes, leaf.stored_bytes);
  std::copy_n(from.payload.begin() + given.offset, given.stored_bytes, to.payload.begin() + leaf.offset);
  leaf.hash = given.hash;
  put_leaf(to.head, target, leaf);
  make_right(to.head);
}

TEST_F(SealedRecord, leaves_do_not_open_in_another_place) {
  Record wrong = sealed;
  transplant(sealed, 0, wrong, 1);
  EXPECT_EQ(Code::damaged, open(wrong).code());
  transplant(sealed, 1, wrong, 0);
  EXPECT_EQ(Code::damaged, open(wrong).code());

  // Checks the leaf alone, with the head of the right record.
  Workspace workspace;
  std::vector<std::byte> payload(plain.payload.size());
  const HeadView view = sealed.view();
  const auto decodes = [&](uint32_t leaf, uint32_t bytes_of) {
    const ConstBytes stored =
        ConstBytes(sealed.payload).subspan(view.leaf(bytes_of).offset, view.leaf(bytes_of).stored_bytes);
    return decode_record(view, stored, {ring.get()}, leaf, 1, {}, payload, workspace).code();
  };
  EXPECT_EQ(Code::ok, decodes(0, 0));
  EXPECT_EQ(Code::damaged, decodes(0, 1));
  EXPECT_EQ(Code::damaged, decodes(1, 0));
}

TEST_F(SealedRecord, leaves_do_not_open_in_another_record) {
  const Record again = encoded(plain, "default", ring.get(), random);  // equal, but for its record id
  const Record elsewhere_plain = [&] {                                 // equal bytes in another namespace
    Record record = plain;
    record.head[32] ^= std::byte{1};
    make_right(record.head);
    return record;
  }();
  const Record elsewhere = encoded(elsewhere_plain, "default", ring.get(), random);
  const auto other_ring = ring_of("7 " + std::string(64, 'c'));
  const Record other_key = encoded(plain, "default", other_ring.get(), random);
  for (const Record* from : {&again, &elsewhere, &other_key}) {
    for (uint32_t i = 0; i < 4; ++i) {
      Record wrong = sealed;
      transplant(*from, i, wrong, i);
      EXPECT_EQ(Code::damaged, open(wrong).code());
    }
    Record wrong = sealed;  // a whole payload under another head
    wrong.payload = from->payload;
    EXPECT_EQ(Code::damaged, open(wrong).code());
  }
  EXPECT_EQ(Code::damaged, open(other_key).code());  // an equal key id, with another key
  EXPECT_TRUE(open(again).ok());
  EXPECT_TRUE(open(elsewhere).ok());
}

TEST_F(SealedRecord, leaves_and_attributes_are_not_left_out) {
  const Header header = sealed.view().header();
  Record shorter;
  Header less = header;
  less.leaf_count = 3;
  const Leaf last = leaf_of(sealed, 3);
  less.raw_bytes -= last.raw_bytes;
  less.stored_bytes -= last.stored_bytes;
  const std::vector<Leaf> leaves = {leaf_of(sealed, 0), leaf_of(sealed, 1), leaf_of(sealed, 2)};
  shorter.head.resize(head_bytes(3, less.attribute_bytes));
  ASSERT_TRUE(encode_head(less, leaves, sealed.view().attributes(), shorter.head).ok());
  shorter.payload.assign(sealed.payload.begin(), sealed.payload.begin() + last.offset);
  EXPECT_EQ(Code::damaged, open(shorter).code());

  const std::vector<Leaf> all = {leaves[0], leaves[1], leaves[2], last};
  const auto with_attributes = [&](ConstBytes attributes) {
    Record record;
    Header changed = header;
    changed.attribute_bytes = static_cast<uint32_t>(attributes.size());
    record.head.resize(head_bytes(4, attributes.size()));
    EXPECT_TRUE(encode_head(changed, all, attributes, record.head).ok());
    record.payload = sealed.payload;
    return open(record).code();
  };
  const ConstBytes right = sealed.view().attributes();
  EXPECT_EQ(Code::ok, with_attributes(right));
  EXPECT_EQ(Code::damaged, with_attributes({}));
  std::vector<std::byte> attributes;
  ASSERT_TRUE(append_attribute(attributes, Attribute::sealed, std::vector<std::byte>(15)).ok());
  EXPECT_EQ(Code::damaged, with_attributes(attributes));
  attributes.clear();
  ASSERT_TRUE(append_attribute(attributes, Attribute::sealed, right.last(kSealTagBytes)).ok());
  EXPECT_EQ(Code::damaged, with_attributes(attributes));
  attributes.clear();
  ASSERT_TRUE(append_attribute(attributes, Attribute::tokens, right.subspan(4)).ok());
  EXPECT_EQ(Code::damaged, with_attributes(attributes));
  attributes.assign(right.begin(), right.end());
  ASSERT_TRUE(append_attribute(attributes, Attribute::tokens, {}).ok());
  EXPECT_EQ(Code::damaged, with_attributes(attributes));
}

TEST_F(SealedRecord, a_record_without_its_seal_is_refused_where_there_are_keys) {
  EXPECT_EQ(Code::not_permitted, open(plain).code());
  EXPECT_EQ(Code::not_permitted, open(encoded(plain, "default", nullptr, random)).code());
  EXPECT_EQ(Code::not_permitted, permitted(plain.view(), {ring.get()}).code());
  EXPECT_TRUE(permitted(plain.view(), {}).ok());
  EXPECT_TRUE(permitted(sealed.view(), {ring.get()}).ok());
}

TEST_F(SealedRecord, old_keys_open_and_the_first_one_seals) {
  const std::string old_key = "7 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";
  const std::string new_key = "9 " + std::string(64, 'd') + "\n";
  const auto rotated = ring_of(new_key + old_key);
  EXPECT_TRUE(decode(sealed, {rotated.get()}).ok());
  const Record fresh = encoded(plain, "default", rotated.get(), random);
  EXPECT_EQ(fresh.view().header().key_id, 9U);
  EXPECT_TRUE(decode(fresh, {rotated.get()}).ok());

  const auto retired = ring_of(new_key);
  for (const Status& status : {decode(sealed, {retired.get()}), permitted(sealed.view(), {retired.get()})}) {
    EXPECT_EQ(status.code(), Code::mismatch);
    EXPECT_NE(status.message().find("key id 7"), std::string::npos) << status.message();
  }
  const Status none = decode(sealed, {});
  EXPECT_EQ(none.code(), Code::mismatch);
  EXPECT_NE(none.message().find("no key file: key id 7"), std::string::npos) << none.message();
}

bool holds(ConstBytes in, ConstBytes part) {
  return std::search(in.begin(), in.end(), part.begin(), part.end()) != in.end();
}

TEST_F(SealedRecord, nothing_of_its_content_can_be_read) {
  const Record raw = encoded(plain, "off", ring.get(), random);
  const ConstBytes secret = std::as_bytes(std::span(coded_records::kSecretAttribute));
  EXPECT_TRUE(holds(plain.head, secret));
  for (const Record* record : {static_cast<const Record*>(&sealed), &raw}) {
    EXPECT_FALSE(holds(record->head, secret));
    for (size_t at = 0; at + 16 <= plain.payload.size(); at += 16) {
      EXPECT_FALSE(holds(record->payload, ConstBytes(plain.payload).subspan(at, 16)));
    }
    for (uint32_t i = 0; i < 4; ++i) {
      const uint64_t hash = leaf_of(plain, i).hash;  // would tell equal leaves of two tenants
      EXPECT_FALSE(holds(record->head, std::as_bytes(std::span(&hash, 1))));
      EXPECT_FALSE(holds(record->payload, std::as_bytes(std::span(&hash, 1))));
    }
  }
}

TEST_F(SealedRecord, sealed_twice_has_nothing_in_common) {
  const Record again = encoded(plain, "default", ring.get(), random);
  EXPECT_NE(again.view().header().record_id, sealed.view().header().record_id);
  for (size_t at = 0; at + 16 <= sealed.payload.size(); at += 16) {
    EXPECT_FALSE(holds(again.payload, ConstBytes(sealed.payload).subspan(at, 16)));
  }
}

}  // namespace
}  // namespace kvbm::codec::sealed_record_test
