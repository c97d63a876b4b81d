// The C++ code against vectors that an independent program made (tests/data/vectors/make_vectors.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "codec/hash/leaf_hash.h"
#include "codec/record/key.h"
#include "codec/record/record.h"
#include "support/coded_records.h"

namespace kvbm::codec::vectors_test {
namespace {

nlohmann::json read(const std::string& name) {
  std::ifstream file(std::string(KVBM_TEST_DATA) + "/vectors/" + name);
  return nlohmann::json::parse(file);
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

template <class T>
std::string to_hex(const T& value) {
  std::string out;
  for (const uint8_t byte : value.bytes) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", byte);
    out += text;
  }
  return out;
}

void expect_keys(const nlohmann::json& expected, const std::vector<Key>& keys, size_t n) {
  ASSERT_EQ(expected.size(), n);
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(expected[i].get<std::string>(), to_hex(keys[i])) << "key " << i;
}

TEST(Vectors, leaf_hash) {
  size_t n = 0;
  for (const auto& item : read("leaf_hash.json")) {
    const auto bytes = item.at("bytes").get<size_t>();
    const auto seed = item.at("seed").get<size_t>();
    std::vector<std::byte> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 131 + (i >> 8) * 7 + seed) & 0xFF);
    const uint64_t expected = std::stoull(item.at("hash").get<std::string>(), nullptr, 16);
    EXPECT_EQ(leaf_hash_reference(data), expected) << bytes;
    EXPECT_EQ(leaf_hash(data), expected) << bytes << " with " << kernel_name();
    ++n;
  }
  EXPECT_GT(n, 10U);
}

TEST(Vectors, namespace_ids_and_keys) {
  for (const auto& item : read("keys.json")) {
    Secret secret;
    const auto raw = from_hex(item.at("secret").get<std::string>());
    std::memcpy(secret.data(), raw.data(), secret.size());
    const std::string tenant = item.at("tenant"), model = item.at("model"), adapter = item.at("adapter");
    NamespaceDescription description;
    description.tenant = tenant;
    description.model = model;
    description.adapter = adapter;
    description.geometry = item.at("geometry");
    description.epoch = item.at("epoch");
    const NamespaceId ns = namespace_id(secret, description);
    EXPECT_EQ(item.at("namespace").get<std::string>(), to_hex(ns));

    const std::vector<uint32_t> tokens = item.at("tokens");
    std::vector<Key> keys(8);
    expect_keys(item.at("chained16"), keys, chained_keys(ns, nullptr, tokens, 16, {}, keys).value());
    const Key first = keys[0];
    expect_keys(item.at("chained16_after_first"), keys,
                chained_keys(ns, &first, std::span(tokens).subspan(16), 16, {}, keys).value());
    std::vector<std::vector<std::byte>> held;
    std::vector<ConstBytes> extras;
    for (const auto& extra : item.at("extras")) held.push_back(from_hex(extra.get<std::string>()));
    for (const auto& extra : held) extras.emplace_back(extra);
    expect_keys(item.at("chained16_extras"), keys, chained_keys(ns, nullptr, tokens, 16, extras, keys).value());
    expect_keys(item.at("content16"), keys, content_keys(ns, tokens, 16, {}, keys).value());
    for (const auto& [hash, expected] : item.at("engine").items()) {
      const auto bytes = from_hex(hash);
      ASSERT_TRUE(engine_keys(ns, bytes, bytes.size(), std::span(keys).first(1)).ok());
      EXPECT_EQ(expected.get<std::string>(), to_hex(keys[0]));
    }
  }
}

template <class T>
T ident(const nlohmann::json& item, const char* name) {
  const auto raw = from_hex(item.at(name).get<std::string>());
  T out{};
  EXPECT_EQ(raw.size(), sizeof out);
  std::memcpy(&out, raw.data(), sizeof out);
  return out;
}

Header header_of(const nlohmann::json& item) {
  Header header;
  header.flags = item.at("flags");
  header.component = item.at("component");
  const std::vector<uint16_t> shard = item.at("shard");
  header.shard = {shard.at(0), shard.at(1), shard.at(2), shard.at(3), shard.at(4)};
  header.ns = ident<NamespaceId>(item, "namespace");
  header.key = ident<Key>(item, "key");
  header.parent = ident<Key>(item, "parent");
  header.record_id = ident<std::array<uint8_t, 16>>(item, "record_id");
  header.geometry = item.at("geometry");
  header.tokens = item.at("tokens");
  header.key_id = item.at("key_id");
  return header;
}

TEST(Vectors, record_heads) {
  size_t n = 0;
  for (const auto& item : read("record.json")) {
    SCOPED_TRACE(item.at("what").get<std::string>());
    Header header = header_of(item);
    std::vector<Leaf> leaves;
    for (const auto& given : item.at("leaves")) {
      const uint32_t bytes = given.at(0);
      leaves.push_back({static_cast<uint32_t>(header.raw_bytes), bytes, bytes, LeafCodec::raw, 0,
                        std::stoull(given.at(1).get<std::string>(), nullptr, 16)});
      header.raw_bytes += bytes;
    }
    header.stored_bytes = header.raw_bytes;
    header.leaf_count = static_cast<uint32_t>(leaves.size());
    std::vector<std::byte> attributes;
    for (const auto& given : item.at("attributes")) {
      const auto value = from_hex(given.at(1).get<std::string>());
      ASSERT_TRUE(append_attribute(attributes, static_cast<Attribute>(given.at(0).get<uint16_t>()), value).ok());
    }
    header.attribute_bytes = static_cast<uint32_t>(attributes.size());

    const std::vector<std::byte> expected = from_hex(item.at("head").get<std::string>());
    std::vector<std::byte> written(expected.size());
    const auto bytes = encode_head(header, leaves, attributes, written);
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    EXPECT_EQ(bytes.value(), expected.size());
    EXPECT_EQ(written, expected);
    const auto view = HeadView::parse(expected);
    ASSERT_TRUE(view.ok()) << view.status().message();
    EXPECT_EQ(view.value().header(), header);
    for (uint32_t i = 0; i < header.leaf_count; ++i) EXPECT_EQ(view.value().leaf(i), leaves[i]) << "leaf " << i;
    EXPECT_TRUE(std::ranges::equal(view.value().attributes(), attributes));
    ++n;
  }
  EXPECT_EQ(n, 4U);
}

// A head written by version 0.1: every later library must read it as it was meant.
TEST(Golden, record_v1) {
  std::ifstream file(std::string(KVBM_TEST_DATA) + "/golden/record-v1-content.bin", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto view = HeadView::parse({reinterpret_cast<const std::byte*>(text.data()), text.size()});
  ASSERT_TRUE(view.ok()) << view.status().message();
  const Header& header = view.value().header();
  EXPECT_EQ(header.flags, kOpaque | kContentKey);
  EXPECT_EQ(header.component, 3);
  EXPECT_EQ(header.shard, (Shard{1, 2, 3, 4, 1}));
  EXPECT_EQ(header.geometry, 0x1122334455667788ULL);
  EXPECT_EQ(header.stored_bytes, 100000U);
  EXPECT_EQ(header.key.bytes[0], 100);
  EXPECT_EQ(header.parent.bytes[15], 215);
  ASSERT_EQ(header.leaf_count, 2U);
  EXPECT_EQ(view.value().leaf(1).offset, 65536U);
  EXPECT_EQ(view.value().leaf(1).hash, 0xABCDEF0123456789ULL + 65536);
  const auto attributes = parse_attributes(view.value().attributes());
  ASSERT_TRUE(attributes.ok());
  EXPECT_EQ(parse_position(attributes.value().at(0).value), (Position{128, 9, 77}));
}

std::vector<std::byte> file_bytes(const std::string& name) {
  std::ifstream file(std::string(KVBM_TEST_DATA) + "/" + name, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A coded and a sealed record of version 0.1: what they hold are the first leaves of ../kv/smollm2_bf16.bin.
TEST(Golden, coded_and_sealed_record_v1) {
  const auto sample = file_bytes("kv/smollm2_bf16.bin");
  const auto ring = coded_records::ring_of(coded_records::kTwoKeys);
  struct Case {
    const char* name;
    const KeyRing* keys;
    LeafCodec first;
  };
  for (const Case& c : {Case{"record-v1-coded.bin", nullptr, LeafCodec::zstd},
                        Case{"record-v1-sealed.bin", ring.get(), LeafCodec::raw}}) {
    SCOPED_TRACE(c.name);
    const auto bytes = file_bytes(std::string("golden/") + c.name);
    const auto view = HeadView::parse(bytes);
    ASSERT_TRUE(view.ok()) << view.status().message();
    ASSERT_EQ(view.value().header().leaf_count, 4U);
    EXPECT_EQ(view.value().leaf(0).codec, c.first);
    EXPECT_EQ(view.value().leaf(1).codec, LeafCodec::zstd);
    const ConstBytes payload = ConstBytes(bytes).subspan(view.value().head_bytes());
    ASSERT_EQ(payload.size(), view.value().header().stored_bytes);
    coded_records::Record coded{{bytes.begin(), bytes.end() - static_cast<ptrdiff_t>(payload.size())},
                                {payload.begin(), payload.end()}};
    coded_records::Record plain;
    const Status status = coded_records::decode(coded, {c.keys}, plain);
    if (status.code() == Code::unsupported) GTEST_SKIP() << status.message();
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(plain.payload.size(), 4 * 6144U);
    EXPECT_TRUE(std::equal(plain.payload.begin(), plain.payload.end(), sample.begin()));
    EXPECT_EQ(plain.view().header().flags, kContentKey);
    EXPECT_EQ(plain.view().header().key_id, 0U);
    const auto attributes = parse_attributes(plain.view().attributes());
    ASSERT_TRUE(attributes.ok());
    EXPECT_EQ(parse_position(attributes.value().at(0).value), (Position{16, 5, 6}));
    const ConstBytes extra = attributes.value().at(1).value;
    EXPECT_TRUE(std::ranges::equal(extra, std::as_bytes(std::span(coded_records::kSecretAttribute))));
  }
}

}  // namespace
}  // namespace kvbm::codec::vectors_test
