// A coded record in two steps: opened, then decoded where it lies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "codec/coded/coded_record.h"
#include "codec/lossless/zstd_leaf.h"
#include "support/coded_records.h"

namespace kvbm::codec::opened_record_test {
namespace {

using coded_records::decode;
using coded_records::encoded;
using coded_records::plain_record;
using coded_records::Record;
using coded_records::ring_of;

constexpr uint64_t kSeed = 20261123;

struct Opened {
  std::vector<std::byte> head;
  std::vector<OpenedLeaf> leaves;
  std::vector<std::byte> bytes;  // of a sealed record
  Status status;
};

Opened open(const Record& coded, const DecodeRules& rules) {
  Workspace workspace;
  const HeadView view = coded.view();
  Opened out;
  const bool sealed = (view.header().flags & kSealed) != 0;
  out.head.resize(plain_head_bytes(view));
  out.leaves.resize(view.header().leaf_count);
  if (sealed) out.bytes.resize(opened_bytes(view));
  out.status = open_record(view, coded.payload, rules, out.head, out.bytes, out.leaves, workspace);
  return out;
}

// Returns a slot's memory with the opened bytes at its end, but for `behind` bytes.
std::vector<std::byte> laid(const Record& coded, Opened& opened, size_t raw_bytes, size_t slack, size_t behind) {
  const std::vector<std::byte>& bytes = opened.bytes.empty() ? coded.payload : opened.bytes;
  std::vector<std::byte> room(std::max(raw_bytes, bytes.size()) + slack + behind, std::byte{0xAA});
  const size_t at = room.size() - behind - bytes.size();
  std::memcpy(room.data() + at, bytes.data(), bytes.size());
  for (OpenedLeaf& leaf : opened.leaves) leaf.offset += at;
  return room;
}

Status decode_laid(const Opened& opened, std::vector<std::byte>& room) {
  Workspace workspace;
  const auto plain = HeadView::parse(opened.head);
  EXPECT_TRUE(plain.ok());
  return decode_opened(plain.value(), opened.leaves, room, workspace);
}

TEST(OpenedRecord, decodes_in_place_to_what_decoding_at_once_gives) {
  SeededRandom random(kSeed);
  const auto ring = ring_of(coded_records::kTwoKeys);
  // Some records have raw last leaves, so that there is no gap between the bytes written and those still to be read.
  const char* const recipes[] = {"default", "max", "zstd", "int8", "int4_coded", "k=default", "v=default", "k:0=fast"};
  for (const char* recipe : recipes) {
    if (!has_zstd() && std::string_view(recipe) == "zstd") continue;  // nothing would be coded
    for (const bool sealed : {false, true}) {
      SCOPED_TRACE(std::string(recipe) + (sealed ? ", sealed" : ""));
      const Record plain = plain_record({{8192, 65536, 6144, 4096, 4096, 100}, true, true, 0}, random);
      const Record coded = encoded(plain, recipe, sealed ? ring.get() : nullptr, random);
      const DecodeRules rules{sealed ? ring.get() : nullptr, true, false};
      Record back;
      ASSERT_TRUE(decode(coded, rules, back).ok());
      for (const size_t slack : {0, 64, 4096, 100000}) {
        for (const size_t behind : {0, 1, 4095}) {
          Opened opened = open(coded, rules);
          ASSERT_TRUE(opened.status.ok()) << opened.status.message();
          EXPECT_EQ(opened.head, back.head);
          for (const OpenedLeaf& leaf : opened.leaves) EXPECT_EQ(leaf.verified, sealed);
          std::vector<std::byte> room = laid(coded, opened, back.payload.size(), slack, behind);
          const Status status = decode_laid(opened, room);
          ASSERT_TRUE(status.ok()) << status.message() << " " << slack << " " << behind;
          EXPECT_TRUE(std::equal(back.payload.begin(), back.payload.end(), room.begin()));
        }
      }
    }
  }
}

TEST(OpenedRecord, what_is_damaged_is_found_in_one_of_the_steps) {
  SeededRandom random(kSeed + 1);
  const auto ring = ring_of(coded_records::kTwoKeys);
  for (const bool sealed : {false, true}) {
    const Record plain = plain_record({{8192, 4096, 6144}, true, true, 0}, random);
    Record coded = encoded(plain, "k=default", sealed ? ring.get() : nullptr, random);
    const DecodeRules rules{sealed ? ring.get() : nullptr, true, false};
    for (size_t at = 0; at < coded.payload.size(); at += 37) {
      coded.payload[at] ^= std::byte{4};
      Opened opened = open(coded, rules);
      Status status = opened.status;
      if (status.ok()) {
        std::vector<std::byte> room = laid(coded, opened, plain.payload.size(), 0, 0);
        status = decode_laid(opened, room);
      }
      EXPECT_EQ(status.code(), Code::damaged) << at;
      coded.payload[at] ^= std::byte{4};
    }
  }
}

// The leaf is undamaged and verifies itself, but it is another record's.
TEST(OpenedRecord, a_leaf_of_another_record_is_not_taken) {
  SeededRandom random(kSeed + 2);
  const Record plain = plain_record({{8192}, true, false, 0}, random);
  Record coded = encoded(plain, "int8", nullptr, random);
  const Record other = encoded(plain_record({{8192}, true, false, 0}, random), "int8", nullptr, random);
  ASSERT_EQ(coded.payload.size(), other.payload.size());
  coded.payload = other.payload;
  Opened opened = open(coded, {nullptr, true, false});
  ASSERT_TRUE(opened.status.ok());
  std::vector<std::byte> room = laid(coded, opened, plain.payload.size(), 0, 0);
  EXPECT_EQ(decode_laid(opened, room).code(), Code::damaged);
}

TEST(OpenedRecord, is_refused_as_decoding_refuses_it) {
  SeededRandom random(kSeed + 3);
  const auto ring = ring_of(coded_records::kTwoKeys);
  const Record plain = plain_record({}, random);
  const Record lossy = encoded(plain, "int8", nullptr, random);
  EXPECT_EQ(open(lossy, {nullptr, false, false}).status.code(), Code::not_permitted);
  EXPECT_EQ(open(lossy, {ring.get(), true, false}).status.code(), Code::not_permitted);
  const Record sealed = encoded(plain, "default", ring.get(), random);
  EXPECT_EQ(open(sealed, {nullptr, false, false}).status.code(), Code::mismatch);
  Record cut = encoded(plain, "default", nullptr, random);
  cut.payload.pop_back();
  EXPECT_EQ(open(cut, {}).status.code(), Code::damaged);
  // A leaf of a later version is reported as such only if its bytes are those that were stored.
  Record newer = encoded(plain, "default", nullptr, random);
  newer.payload[0] = std::byte{9};
  EXPECT_EQ(open(newer, {}).status.code(), Code::damaged);
  EXPECT_EQ(open(newer, {nullptr, false, true}).status.code(), Code::newer_version);
}

TEST(OpenedRecord, leaves_that_were_not_opened_so_are_refused) {
  SeededRandom random(kSeed + 4);
  const Record plain = plain_record({}, random);
  const Record coded = encoded(plain, "default", nullptr, random);
  const Opened opened = open(coded, {});
  ASSERT_TRUE(opened.status.ok());
  const auto refused = [&](auto&& change) {
    Opened other = opened;
    std::vector<std::byte> room = laid(coded, other, plain.payload.size(), 0, 0);
    change(other, room);
    return decode_laid(other, room).code();
  };
  EXPECT_EQ(refused([](Opened& o, auto&) { o.leaves.pop_back(); }), Code::invalid_argument);
  EXPECT_EQ(refused([](Opened& o, auto&) { o.leaves[1].offset += 64; }), Code::invalid_argument);
  EXPECT_EQ(refused([](Opened& o, auto&) { o.leaves.back().bytes += 64; }), Code::invalid_argument);
  EXPECT_EQ(refused([](Opened& o, auto&) { o.leaves[0].bytes = 1 << 20; }), Code::invalid_argument);
  EXPECT_EQ(refused([](Opened&, auto& room) { room.resize(room.size() - 64); }), Code::invalid_argument);
}

}  // namespace
}  // namespace kvbm::codec::opened_record_test
