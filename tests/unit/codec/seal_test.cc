#include "codec/seal/seal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/coded_records.h"

namespace kvbm::codec::seal_test {
namespace {

using coded_records::ring_of;

constexpr uint64_t kSeed = 20261122;

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    out.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

const std::string kHex(64, 'a');

TEST(KeyRing, seals_with_the_first_and_knows_all) {
  const auto ring = ring_of("# made in May\n\n  12\t" + kHex + "  # this year's\r\n4294967295 " + std::string(64, 'B') +
                            "\r\n1 " + std::string(63, '0') + "1");
  ASSERT_NE(ring, nullptr);
  EXPECT_EQ(ring->sealing_key(), 12U);
  for (const uint32_t id : {12U, 4294967295U, 1U}) EXPECT_TRUE(ring->has(id)) << id;
  for (const uint32_t id : {0U, 2U, 13U}) EXPECT_FALSE(ring->has(id)) << id;
}

TEST(KeyRing, says_which_line_is_wrong_and_never_a_key) {
  struct Wrong {
    std::string text;
    std::string message;
  };
  const std::string good = "1 " + kHex + "\n";
  const Wrong cases[] = {
      {"", "has no key"},
      {"# nothing\n\n", "has no key"},
      {"0 " + kHex, "line 1: a line is an id from 1 to 4294967295 and a key"},
      {"4294967296 " + kHex, "line 1: a line is an id"},
      {"-1 " + kHex, "line 1: a line is an id"},
      {"1x " + kHex, "line 1: a line is an id"},
      {kHex, "line 1: a line is an id"},
      {good + "# fine\n1 " + std::string(64, 'b'), "line 3: an id that a line above has already"},
      {good + "2", "line 2: a key is 64 hexadecimal digits"},
      {good + "2 " + kHex + "a", "line 2: a key is 64 hexadecimal digits"},
      {good + "2 " + kHex.substr(1), "line 2: a key is 64 hexadecimal digits"},
      {good + "2 " + kHex.substr(1) + "g", "line 2: a key is 64 hexadecimal digits"},
      {good + "2 " + std::string(64, '0'), "line 2: a key of zeros is none"},
      {good + "2 " + kHex + " 3", "line 2: something follows the key"},
      {std::string("1 ") + std::string(32, '\0'), "line 1: a key is 64 hexadecimal digits"},
  };
  for (const Wrong& wrong : cases) {
    const auto ring = KeyRing::parse(wrong.text);
    ASSERT_FALSE(ring.ok()) << wrong.text;
    EXPECT_EQ(ring.status().code(), Code::invalid_argument);
    const std::string message = ring.status().message();
    EXPECT_NE(message.find(wrong.message), std::string::npos) << message;
    EXPECT_EQ(message.find("aaaa"), std::string::npos) << message;
  }
  std::string many;
  for (int i = 1; i <= 1024; ++i) many += std::to_string(i) + " " + kHex + "\n";
  EXPECT_NE(KeyRing::parse(many).status().message().find("line 1024: more than 1023 keys"), std::string::npos);
}

Header sealed_header(uint32_t key_id) {
  SeededRandom random(kSeed);
  Header header = coded_records::some_identity(random);
  header.flags = kSealed;
  header.key_id = key_id;
  header.leaf_count = 4;
  header.raw_bytes = 4000;
  return header;
}

std::vector<std::byte> some_bytes(size_t n) {
  SeededRandom random(kSeed + n);
  std::vector<std::byte> out(n);
  random.fill(out);
  return out;
}

constexpr SealedLeaf kLeaf{2, 1000, 2000, LeafCodec::raw};

TEST(Sealer, opens_what_it_sealed_whether_apart_or_in_place) {
  const auto ring = ring_of(coded_records::kTwoKeys);
  Sealer sealer;
  ASSERT_TRUE(sealer.start(*ring, sealed_header(7)).ok());
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{1000}, size_t{65536}}) {
    const auto plain = some_bytes(bytes);
    const auto more = some_bytes(8);
    std::vector<std::byte> apart(bytes + 8 + kSealTagBytes);
    ASSERT_TRUE(sealer.seal(kLeaf, plain, more, apart).ok());
    std::vector<std::byte> in_place(plain);
    in_place.resize(apart.size());
    ASSERT_TRUE(sealer.seal(kLeaf, ConstBytes(in_place).first(bytes), more, in_place).ok());
    EXPECT_EQ(apart, in_place);
    std::vector<std::byte> back(bytes), back_more(8);
    ASSERT_TRUE(sealer.open(kLeaf, apart, back, back_more).ok());
    EXPECT_EQ(back, plain);
    EXPECT_EQ(back_more, more);
    ASSERT_TRUE(sealer.open(kLeaf, in_place, MutableBytes(in_place).first(bytes), back_more).ok());
    EXPECT_TRUE(std::equal(plain.begin(), plain.end(), in_place.begin()));
  }
}

TEST(Sealer, opens_only_at_the_place_that_was_sealed) {
  const auto ring = ring_of(coded_records::kTwoKeys);
  const auto plain = some_bytes(1000);
  std::vector<std::byte> sealed(1000 + kSealTagBytes), back(1000);
  Sealer sealer;
  ASSERT_TRUE(sealer.start(*ring, sealed_header(7)).ok());
  ASSERT_TRUE(sealer.seal(kLeaf, plain, {}, sealed).ok());
  const auto opens = [&](const SealedLeaf& leaf) { return sealer.open(leaf, sealed, back, {}).code(); };
  EXPECT_EQ(Code::ok, opens(kLeaf));
  EXPECT_EQ(Code::damaged, opens({1, 1000, 2000, LeafCodec::raw}));
  EXPECT_EQ(Code::damaged, opens({2, 1001, 2000, LeafCodec::raw}));
  EXPECT_EQ(Code::damaged, opens({2, 1000, 2001, LeafCodec::raw}));
  EXPECT_EQ(Code::damaged, opens({2, 1000, 2000, LeafCodec::zstd}));
  EXPECT_EQ(back, std::vector<std::byte>(1000));  // nothing of what did not open is left

  const auto opens_as = [&](auto change) {
    Header header = sealed_header(7);
    change(header);
    EXPECT_TRUE(sealer.start(*ring, header).ok());
    return opens(kLeaf);
  };
  EXPECT_EQ(Code::ok, opens_as([](Header&) {}));
  EXPECT_EQ(Code::ok, opens_as([](Header& h) { h.stored_bytes = 5; }));  // the head's own tag covers both
  EXPECT_EQ(Code::ok, opens_as([](Header& h) { h.flags |= kLossy; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.flags |= kContentKey; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.ns.bytes[0] ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.key.bytes[15] ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.parent.bytes[15] ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.record_id[7] ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.component ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.shard.first_head ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.geometry ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.tokens ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.raw_bytes ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.leaf_count ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.attribute_bytes ^= 1; }));
  EXPECT_EQ(Code::damaged, opens_as([](Header& h) { h.key_id = 3; }));
}

TEST(Sealer, names_the_key_id_that_the_ring_lacks) {
  const auto ring = ring_of(coded_records::kTwoKeys);
  Sealer sealer;
  const Status status = sealer.start(*ring, sealed_header(99));
  EXPECT_EQ(status.code(), Code::mismatch);
  EXPECT_NE(status.message().find("key id 99"), std::string::npos) << status.message();
}

TEST(Sealer, refuses_what_is_not_sealed_not_started_or_of_the_wrong_length) {
  const auto ring = ring_of(coded_records::kTwoKeys);
  std::vector<std::byte> out(100), plain(100);
  Sealer sealer;
  EXPECT_EQ(Code::wrong_state, sealer.seal(kLeaf, plain, {}, out).code());
  EXPECT_EQ(Code::wrong_state, sealer.open(kLeaf, plain, out, {}).code());
  EXPECT_EQ(Code::wrong_state, sealer.seal_head({}, {}, plain, out).code());
  EXPECT_EQ(Code::wrong_state, sealer.open_head({}, {}, plain, out).code());
  Header header = sealed_header(7);
  header.flags = 0;
  EXPECT_EQ(Code::invalid_argument, sealer.start(*ring, header).code());
  ASSERT_TRUE(sealer.start(*ring, sealed_header(7)).ok());
  EXPECT_EQ(Code::invalid_argument, sealer.seal(kLeaf, plain, {}, out).code());
  EXPECT_EQ(Code::damaged, sealer.open(kLeaf, plain, out, {}).code());
  std::vector<std::byte> large(kMaxLeafBytes + 1), large_out(large.size() + kSealTagBytes);
  EXPECT_EQ(Code::invalid_argument, sealer.seal(kLeaf, large, {}, large_out).code());
  EXPECT_EQ(Code::damaged, sealer.open(kLeaf, large_out, large, {}).code());
}

// Records that an independent program sealed (tests/data/vectors/make_vectors.py).
TEST(Vectors, sealed_records) {
  std::ifstream file(std::string(KVBM_TEST_DATA) + "/vectors/sealed.json");
  size_t n = 0;
  for (const auto& item : nlohmann::json::parse(file)) {
    const auto bytes = [&](const char* name) { return from_hex(item.at(name).get<std::string>()); };
    const coded_records::Record sealed{bytes("head"), bytes("payload")};
    const coded_records::Record plain{bytes("plain_head"), bytes("plain_payload")};
    const auto ring = ring_of(item.at("ring").get<std::string>());
    coded_records::Record back;
    const Status status = coded_records::decode(sealed, {ring.get()}, back);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(back.payload, plain.payload);
    EXPECT_TRUE(std::ranges::equal(back.view().attributes(), plain.view().attributes()));
    Header header = plain.view().header();
    header.record_id = sealed.view().header().record_id;
    EXPECT_EQ(back.view().header(), header);

    // Sealing again under the same record id, which only a test may do, gives the same bytes.
    struct Given final : Random {
      std::vector<std::byte> bytes;
      size_t at = 0;
      uint64_t next() noexcept override { return load_le<uint64_t>(bytes.data() + 8 * (at++ % 2)); }
    } given;
    given.bytes = bytes("record_id");
    EXPECT_EQ(coded_records::encoded(plain, "off", ring.get(), given), sealed);
    ++n;
  }
  EXPECT_EQ(n, 3U);
}

}  // namespace
}  // namespace kvbm::codec::seal_test
