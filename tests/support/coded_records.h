// Plain records made from a seed, and what a test does with their coded and sealed forms.
#pragma once

#define XXH_INLINE_ALL
#include <gtest/gtest.h>
#include <xxhash.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/crypto/random.h"
#include "codec/coded/coded_record.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::codec::coded_records {

inline constexpr std::string_view kTwoKeys =
    "7 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
    "3 ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100\n";

inline std::shared_ptr<const KeyRing> ring_of(std::string_view text) {
  auto ring = KeyRing::parse(text);
  EXPECT_TRUE(ring.ok()) << ring.status().message();
  return ring.ok() ? ring.value() : nullptr;
}

inline Recipe recipe_of(std::string_view text) {
  auto recipe = Recipe::parse(text);
  EXPECT_TRUE(recipe.ok()) << recipe.status().message();
  return recipe.ok() ? recipe.value() : Recipe{};
}

// bf16 values of few exponents, which every codec makes smaller.
inline void fill_bf16(MutableBytes out, Random& random) {
  for (size_t i = 0; i + 1 < out.size(); i += 2) {
    const uint64_t exponent = 120 + (random.next() & random.next() & 7);
    store_le(out.data() + i, static_cast<uint16_t>((random.next() & 0x807F) | exponent << 7));
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
  bool operator==(const Record&) const = default;
};

// Parts of a plain record.
struct Plan {
  std::vector<uint32_t> leaf_bytes = {65536, 8192, 6144, 8192};
  bool compressible = true;
  bool attributes = true;
  uint16_t flags = 0;
};
inline constexpr std::string_view kSecretAttribute = "tokens that nobody may read";

inline Header some_identity(Random& random) {
  Header header;
  random.fill(std::as_writable_bytes(std::span(header.ns.bytes)));
  random.fill(std::as_writable_bytes(std::span(header.key.bytes)));
  random.fill(std::as_writable_bytes(std::span(header.parent.bytes)));
  random.fill(std::as_writable_bytes(std::span(header.record_id)));
  header.component = 7;
  header.shard = {1, 2, 3, 4, 1};
  header.geometry = 0x0123456789ABCDEF;
  header.tokens = 256;
  return header;
}

inline Record plain_record(const Plan& plan, Random& random) {
  Record record;
  Header header = some_identity(random);
  header.flags = plan.flags;
  std::vector<Leaf> leaves;
  for (const uint32_t bytes : plan.leaf_bytes) {
    const size_t at = record.payload.size();
    record.payload.resize(at + bytes);
    const MutableBytes raw(record.payload.data() + at, bytes);
    if (plan.compressible) {
      fill_bf16(raw, random);
    } else {
      random.fill(raw);
    }
    leaves.push_back({static_cast<uint32_t>(at), bytes, bytes, LeafCodec::raw, 0, leaf_hash(raw)});
  }
  std::vector<std::byte> attributes;
  if (plan.attributes) {
    EXPECT_TRUE(append_attribute(attributes, Attribute::position, encode_position({16, 5, 6})).ok());
    EXPECT_TRUE(append_attribute(attributes, Attribute::extra_keys, std::as_bytes(std::span(kSecretAttribute))).ok());
  }
  header.leaf_count = static_cast<uint32_t>(leaves.size());
  header.raw_bytes = header.stored_bytes = record.payload.size();
  header.attribute_bytes = static_cast<uint32_t>(attributes.size());
  record.head.resize(head_bytes(header.leaf_count, attributes.size()));
  const auto written = encode_head(header, leaves, attributes, record.head);
  EXPECT_TRUE(written.ok()) << written.status().message();
  return record;
}

// A leaf a plane: layer 0 K, layer 0 V, layer 1 K, ...
inline constexpr RecordForm kForm{Element::bf16, 64, 16, 2, 1, 0};

struct AlignedBuffer {
  explicit AlignedBuffer(size_t bytes) : held(bytes + 64) {
    const auto at = reinterpret_cast<uintptr_t>(held.data());
    span = MutableBytes(held.data() + (round_up(at, 64) - at), bytes);
  }
  std::vector<std::byte> held;
  MutableBytes span;
};

// One for all calls, as a thread has it: what a call leaves there must not matter to the next.
inline Workspace& workspace_of_all() {
  static Workspace workspace;
  return workspace;
}

inline Result<CodedSizes> encode(const Record& plain, std::string_view recipe, const KeyRing* keys, Random& random,
                                 Record& out) {
  const HeadView view = plain.view();
  out.head.assign(coded_head_room(view.head_bytes()), std::byte{0xEE});
  AlignedBuffer payload(coded_room(plain.payload.size(), view.header().leaf_count));
  auto sizes = encode_record(view, plain.payload, kForm, recipe_of(recipe), keys, random, out.head, payload.span,
                             workspace_of_all());
  if (sizes.ok()) {
    const MutableBytes written = payload.span.first(sizes.value().payload_bytes);
    out.head.resize(sizes.value().head_bytes);
    out.payload.assign(written.begin(), written.end());
  }
  return sizes;
}

inline Record encoded(const Record& plain, std::string_view recipe, const KeyRing* keys, Random& random) {
  Record out;
  const auto sizes = encode(plain, recipe, keys, random, out);
  EXPECT_TRUE(sizes.ok()) << sizes.status().message();
  return out;
}

inline Status decode(const Record& coded, const DecodeRules& rules, Record& out) {
  const auto view = HeadView::parse(coded.head);
  if (!view.ok()) return view.status();
  out.head.assign(plain_head_bytes(view.value()), std::byte{0});
  out.payload.assign(view.value().header().raw_bytes, std::byte{0xAA});
  return decode_record(view.value(), coded.payload, rules, 0, 0, out.head, out.payload, workspace_of_all());
}

inline Status decode(const Record& coded, const DecodeRules& rules) {
  Record out;
  return decode(coded, rules, out);
}

// Makes root hash and checksum right again, like a forger of records.
inline void make_right(std::vector<std::byte>& head) {
  if (head.size() < kHeaderBytes) return;
  const uint64_t total = head_bytes(load_le<uint32_t>(head.data() + 24), load_le<uint32_t>(head.data() + 28));
  if (total <= head.size()) {
    std::fill_n(head.begin() + 136, 24, std::byte{0});
    const XXH128_hash_t root = XXH3_128bits(head.data(), total);
    store_le<uint64_t>(head.data() + 136, root.low64);
    store_le<uint64_t>(head.data() + 144, root.high64);
  }
  store_le<uint64_t>(head.data() + 152, XXH3_64bits(head.data(), 152));
}

}  // namespace kvbm::codec::coded_records
