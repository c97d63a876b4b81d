#include "codec/record/key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace kvbm::codec::key_test {
namespace {

constexpr uint64_t kSeed = 7;

std::vector<uint32_t> some_tokens(size_t n) {
  std::mt19937 random(kSeed);
  std::vector<uint32_t> tokens(n);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random());
  return tokens;
}

std::vector<std::byte> some_bytes(size_t n) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 37 + 1);
  return bytes;
}

NamespaceId some_namespace() {
  NamespaceId ns;
  for (size_t i = 0; i < ns.bytes.size(); ++i) ns.bytes[i] = static_cast<uint8_t>(i + 1);
  return ns;
}

Key chained(const NamespaceId& ns, const Key* previous, std::span<const uint32_t> tokens, ConstBytes extra = {}) {
  Key key;
  EXPECT_EQ(chained_keys(ns, previous, tokens, static_cast<uint32_t>(tokens.size()), {&extra, 1}, {&key, 1}).value(),
            1U);
  return key;
}

Key content(const NamespaceId& ns, std::span<const uint32_t> tokens, ConstBytes extra = {}) {
  Key key;
  EXPECT_EQ(content_keys(ns, tokens, static_cast<uint32_t>(tokens.size()), {&extra, 1}, {&key, 1}).value(), 1U);
  return key;
}

Key engine(const NamespaceId& ns, ConstBytes hash) {
  Key key;
  EXPECT_TRUE(engine_keys(ns, hash, hash.size(), {&key, 1}).ok());
  return key;
}

// The formula of lib/codec/README.md, assembled byte by byte.
Key by_formula(char tag, const NamespaceId& ns, const Key& previous, std::span<const uint32_t> tokens,
               ConstBytes extra) {
  std::vector<std::byte> input{static_cast<std::byte>(tag), std::byte{1}, std::byte{0}, std::byte{0}};
  const auto put = [&input](const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    input.insert(input.end(), from, from + bytes);
  };
  const uint32_t counts[2] = {static_cast<uint32_t>(tokens.size()), static_cast<uint32_t>(extra.size())};
  put(ns.bytes.data(), 16);
  put(previous.bytes.data(), 16);
  put(counts, sizeof counts);
  put(tokens.data(), tokens.size_bytes());
  put(extra.data(), extra.size());
  Key key;
  std::memcpy(key.bytes.data(), sha256(input).data(), key.bytes.size());
  return key;
}

// Inputs up to 1,024 bytes are hashed from the stack, longer ones in parts.
TEST(Keys, follow_the_formula_at_every_length_of_input) {
  const NamespaceId ns = some_namespace();
  const Key previous{{9, 8, 7}};
  const std::vector<uint32_t> tokens = some_tokens(300);
  const std::vector<std::byte> extra = some_bytes(1100);
  for (const size_t t : {1UL, 16UL, 64UL, 244UL, 245UL, 246UL, 300UL}) {
    for (const size_t e : {0UL, 1UL, 3UL, 4UL, 5UL, 40UL, 64UL, 980UL, 1024UL, 1100UL}) {
      const auto these = std::span(tokens).first(t);
      const auto extras = ConstBytes(extra).first(e);
      EXPECT_EQ(chained(ns, &previous, these, extras), by_formula('C', ns, previous, these, extras)) << t << " " << e;
      EXPECT_EQ(content(ns, these, extras), by_formula('P', ns, Key{}, these, extras)) << t << " " << e;
    }
  }
}

TEST(Keys, change_with_everything_that_goes_into_them) {
  const NamespaceId ns = some_namespace();
  NamespaceId other_ns = ns;
  other_ns.bytes[15] ^= 1;
  const Key previous{{1}};
  const std::vector<uint32_t> tokens = some_tokens(16);
  const std::vector<std::byte> extra = some_bytes(64);
  std::set<Key> keys;
  size_t made = 0;
  const auto add = [&](const Key& key) {
    keys.insert(key);
    ++made;
  };
  for (const NamespaceId& id : {ns, other_ns}) {
    add(chained(id, nullptr, tokens));
    add(chained(id, &previous, tokens));
    add(content(id, tokens));
    add(chained(id, nullptr, tokens, ConstBytes(extra).first(4)));
    add(content(id, tokens, ConstBytes(extra).first(4)));
    add(chained(id, nullptr, std::span(tokens).first(15)));
    for (size_t bytes = 1; bytes <= 64; ++bytes) add(engine(id, ConstBytes(extra).first(bytes)));
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::vector<uint32_t> changed = tokens;
      changed[i] ^= 0x80000000U;
      add(chained(id, nullptr, changed));
    }
  }
  EXPECT_EQ(keys.size(), made);
}

TEST(Keys, never_take_extras_for_tokens) {
  const NamespaceId ns = some_namespace();
  const std::vector<uint32_t> tokens = some_tokens(8);
  const auto last = std::as_bytes(std::span(tokens).last(1));
  const auto before = std::span(tokens).first(7);
  EXPECT_NE(chained(ns, nullptr, tokens), chained(ns, nullptr, before, last));
  EXPECT_NE(content(ns, tokens), content(ns, before, last));
}

TEST(Keys, of_a_chain_do_not_depend_on_where_it_was_cut) {
  const NamespaceId ns = some_namespace();
  const std::vector<uint32_t> tokens = some_tokens(16 * 10);
  std::vector<Key> whole(10);
  ASSERT_EQ(chained_keys(ns, nullptr, tokens, 16, {}, whole).value(), 10U);
  for (size_t cut = 1; cut < 10; ++cut) {
    std::vector<Key> parts(10);
    ASSERT_TRUE(chained_keys(ns, nullptr, std::span(tokens).first(16 * cut), 16, {}, parts).ok());
    const Key previous = parts[cut - 1];
    ASSERT_TRUE(
        chained_keys(ns, &previous, std::span(tokens).subspan(16 * cut), 16, {}, std::span(parts).subspan(cut)).ok());
    EXPECT_EQ(parts, whole) << "cut after block " << cut;
  }
}

TEST(Keys, of_a_chain_all_change_after_a_changed_token_and_none_before) {
  const NamespaceId ns = some_namespace();
  std::vector<uint32_t> tokens = some_tokens(16 * 8);
  std::vector<Key> before(8);
  std::vector<Key> after(8);
  ASSERT_TRUE(chained_keys(ns, nullptr, tokens, 16, {}, before).ok());
  tokens[16 * 3 + 5] ^= 1;
  ASSERT_TRUE(chained_keys(ns, nullptr, tokens, 16, {}, after).ok());
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(before[i] == after[i], i < 3) << "block " << i;
}

TEST(Keys, of_content_do_not_depend_on_position) {
  const NamespaceId ns = some_namespace();
  const std::vector<uint32_t> once = some_tokens(16);
  std::vector<uint32_t> twice = once;
  twice.insert(twice.end(), once.begin(), once.end());
  std::vector<Key> keys(2);
  ASSERT_EQ(content_keys(ns, twice, 16, {}, keys).value(), 2U);
  EXPECT_EQ(keys[0], keys[1]);
  ASSERT_EQ(chained_keys(ns, nullptr, twice, 16, {}, keys).value(), 2U);
  EXPECT_NE(keys[0], keys[1]);
}

TEST(Keys, leave_a_partial_block_and_what_follows_alone) {
  const std::vector<uint32_t> tokens = some_tokens(16 * 2 + 15);
  const Key untouched{{0xEE}};
  std::vector<Key> keys(4, untouched);
  ASSERT_EQ(chained_keys(some_namespace(), nullptr, tokens, 16, {}, keys).value(), 2U);
  EXPECT_NE(keys[1], untouched);
  EXPECT_EQ(keys[2], untouched);
  EXPECT_EQ(keys[3], untouched);
}

TEST(Keys, of_many_engine_hashes_are_those_of_each) {
  const NamespaceId ns = some_namespace();
  const std::vector<std::byte> hashes = some_bytes(36 * 5);
  std::vector<Key> keys(5);
  ASSERT_TRUE(engine_keys(ns, hashes, 36, keys).ok());
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(keys[i], engine(ns, ConstBytes(hashes).subspan(36 * i, 36))) << i;
  }
}

TEST(Keys, refuse_what_has_no_key) {
  const NamespaceId ns = some_namespace();
  std::vector<Key> keys(2);
  const std::vector<uint32_t> tokens = some_tokens(32);
  EXPECT_EQ(chained_keys(ns, nullptr, tokens, 0, {}, keys).status().code(), Code::invalid_argument);
  EXPECT_EQ(content_keys(ns, tokens, 0, {}, keys).status().code(), Code::invalid_argument);
  EXPECT_EQ(chained_keys(ns, nullptr, tokens, 8, {}, keys).status().code(), Code::invalid_argument);
  const std::vector<ConstBytes> one_extra(1);
  EXPECT_EQ(chained_keys(ns, nullptr, tokens, 16, one_extra, keys).status().code(), Code::invalid_argument);
  EXPECT_EQ(chained_keys(ns, nullptr, std::span(tokens).first(15), 16, {}, keys).value(), 0U);
  EXPECT_EQ(engine_keys(ns, some_bytes(10), 0, keys).code(), Code::invalid_argument);
  EXPECT_EQ(engine_keys(ns, some_bytes(130), 65, keys).code(), Code::invalid_argument);
  EXPECT_EQ(engine_keys(ns, some_bytes(11), 5, keys).code(), Code::invalid_argument);
  EXPECT_EQ(engine_keys(ns, some_bytes(15), 5, keys).code(), Code::invalid_argument);
}

TEST(NamespaceIds, change_with_every_field_and_its_borders) {
  std::set<NamespaceId> ids;
  size_t made = 0;
  const auto add = [&](const Secret& secret, const NamespaceDescription& description) {
    ids.insert(namespace_id(secret, description));
    ++made;
  };
  const Secret none{};
  Secret one{};
  one[31] = 1;
  add(none, {"t", "m", "a", 1, 2});
  add(one, {"t", "m", "a", 1, 2});
  add(none, {"tm", "", "a", 1, 2});
  add(none, {"", "tm", "a", 1, 2});
  add(none, {"t", "ma", "", 1, 2});
  add(none, {"t", "", "ma", 1, 2});
  add(none, {"t", "m", "a", 2, 1});
  add(none, {"t", "m", "a", 1, 3});
  add(none, {"t", "m", "a", 0, 2});
  add(none, {"t", "m", std::string_view("a\0", 2), 1, 2});
  EXPECT_EQ(ids.size(), made);
}

}  // namespace
}  // namespace kvbm::codec::key_test
