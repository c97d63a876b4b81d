#include "codec/coded_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "codec/leaf_hash.h"

namespace kvbm::codec {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr char kKeys[] =
    "7 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
    "3 ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100\n";

std::shared_ptr<const KeyRing> ring_of(std::string_view text) {
  auto ring = KeyRing::parse(text);
  EXPECT_TRUE(ring.ok()) << ring.status().message();
  return ring.ok() ? ring.value() : nullptr;
}

// bf16 values with few exponents, which every codec makes smaller.
void fill_bf16(MutableBytes out, Random& random) {
  for (size_t i = 0; i + 1 < out.size(); i += 2) {
    const auto exponent = static_cast<uint16_t>(120 + (random.next() & random.next() & 7));
    const auto value = static_cast<uint16_t>((random.next() & 0x807F) | static_cast<uint16_t>(exponent << 7));
    store_le(out.data() + i, value);
  }
}

struct Record {
  std::vector<std::byte> head;
  std::vector<std::byte> payload;
  [[nodiscard]] HeadView view() const {
    auto parsed = HeadView::parse(head);
    EXPECT_TRUE(parsed.ok()) << parsed.status().message();
    return parsed.ok() ? parsed.value() : HeadView();
  }
};

Record plain_record(std::span<const uint32_t> leaf_bytes, Random& random, bool compressible = true,
                    uint16_t flags = 0) {
  Record record;
  Header header;
  header.flags = flags;
  header.ns.bytes.fill(0x11);
  header.key.bytes.fill(0x22);
  header.parent.bytes.fill(0x33);
  header.record_id.fill(0x44);
  header.component = 7;
  header.shard = {1, 2, 3, 4, 1};
  header.geometry = 0x0123456789ABCDEF;
  header.tokens = 256;
  std::vector<Leaf> leaves;
  for (const uint32_t bytes : leaf_bytes) {
    const size_t at = record.payload.size();
    record.payload.resize(at + bytes);
    const MutableBytes raw(record.payload.data() + at, bytes);
    if (compressible) {
      fill_bf16(raw, random);
    } else {
      random.fill(raw);
    }
    leaves.push_back({static_cast<uint32_t>(at), bytes, bytes, LeafCodec::raw, 0, leaf_hash(raw)});
  }
  std::vector<std::byte> attributes;
  EXPECT_TRUE(append_attribute(attributes, Attribute::position, encode_position({16, 5, 6})).ok());
  const std::string secret = "tokens that nobody may read";
  EXPECT_TRUE(append_attribute(attributes, Attribute::extra_keys, std::as_bytes(std::span(secret))).ok());
  header.leaf_count = static_cast<uint32_t>(leaves.size());
  header.raw_bytes = header.stored_bytes = record.payload.size();
  header.attribute_bytes = static_cast<uint32_t>(attributes.size());
  record.head.resize(head_bytes(header.leaf_count, attributes.size()));
  const auto written = encode_head(header, leaves, attributes, record.head);
  EXPECT_TRUE(written.ok()) << written.status().message();
  return record;
}

Record usual_record(Random& random) {
  const uint32_t leaves[] = {65536, 8192, 6144, 8192};
  return plain_record(leaves, random);
}

constexpr RecordForm kForm{Element::bf16, 64, 16, 2, 1, 0};

Recipe recipe_of(std::string_view text) {
  auto recipe = Recipe::parse(text);
  EXPECT_TRUE(recipe.ok()) << recipe.status().message();
  return recipe.ok() ? recipe.value() : Recipe{};
}

struct AlignedBuffer {
  explicit AlignedBuffer(size_t bytes) : held(bytes + 64) {
    const auto at = reinterpret_cast<uintptr_t>(held.data());
    span = MutableBytes(held.data() + (round_up(at, 64) - at), bytes);
  }
  std::vector<std::byte> held;
  MutableBytes span;
};

Result<CodedSizes> encode(const Record& plain, std::string_view recipe, const KeyRing* keys, Random& random,
                          Record& out) {
  const HeadView view = plain.view();
  Workspace workspace;
  out.head.assign(coded_head_room(view.head_bytes()), std::byte{0xEE});
  AlignedBuffer payload(coded_room(plain.payload.size(), view.header().leaf_count));
  auto sizes = encode_record(view, plain.payload, kForm, recipe_of(recipe), keys, random, out.head, payload.span,
                             workspace);
  if (sizes.ok()) {
    out.head.resize(sizes.value().head_bytes);
    out.payload.assign(payload.span.begin(),
                       payload.span.begin() + static_cast<ptrdiff_t>(sizes.value().payload_bytes));
  }
  return sizes;
}

Record encoded(const Record& plain, std::string_view recipe, const KeyRing* keys, Random& random) {
  Record out;
  const auto sizes = encode(plain, recipe, keys, random, out);
  EXPECT_TRUE(sizes.ok()) << sizes.status().message();
  return out;
}

Status decode(const Record& coded, const DecodeRules& rules, Record& out) {
  const auto view = HeadView::parse(coded.head);
  if (!view.ok()) return view.status();
  Workspace workspace;
  out.head.assign(plain_head_bytes(view.value()), std::byte{0});
  out.payload.assign(view.value().header().raw_bytes, std::byte{0xAA});
  return decode_record(view.value(), coded.payload, rules, 0, 0, out.head, out.payload, workspace);
}

TEST(CodedRecord, comes_back_as_it_was_head_and_all) {
  SeededRandom random(kSeed);
  const Record plain = usual_record(random);
  const Record coded = encoded(plain, "default", nullptr, random);
  EXPECT_LT(coded.payload.size(), plain.payload.size());
  EXPECT_EQ(coded.head.size(), plain.head.size());
  EXPECT_TRUE(is_coded(coded.view()));
  EXPECT_FALSE(is_coded(plain.view()));
  Record back;
  const Status status = decode(coded, {}, back);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(back.payload, plain.payload);
  EXPECT_EQ(back.head, plain.head);
}

TEST(CodedRecord, sealed_comes_back_with_a_record_id_of_its_own) {
  SeededRandom random(kSeed);
  const Record plain = usual_record(random);
  const auto ring = ring_of(kKeys);
  for (const char* recipe : {"off", "default", "k=default"}) {
    SCOPED_TRACE(recipe);
    const Record sealed = encoded(plain, recipe, ring.get(), random);
    EXPECT_EQ(sealed.head.size(), plain.head.size() + kSealedHeadBytes);
    EXPECT_TRUE(is_coded(sealed.view()));
    Record back;
    const Status status = decode(sealed, {ring.get()}, back);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(back.payload, plain.payload);
    EXPECT_NE(back.view().header().record_id, plain.view().header().record_id);
    Header header = back.view().header();
    header.record_id = plain.view().header().record_id;
    EXPECT_EQ(header, plain.view().header());
    for (uint32_t i = 0; i < header.leaf_count; ++i) EXPECT_EQ(back.view().leaf(i), plain.view().leaf(i));
    EXPECT_TRUE(std::ranges::equal(back.view().attributes(), plain.view().attributes()));
  }
}

}  // namespace
}  // namespace kvbm::codec
