#include "cluster/session/wire.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/crypto/random.h"
#include "cluster/session/slice.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::cluster::session::session_wire_test {
namespace {

Header header(Type type) {
  Header h;
  h.type = type;
  h.source_rank = 3;
  h.sink_rank = 5;
  h.session = 0x1122334455667788;
  h.sequence = 9;
  return h;
}

Facts facts() {
  Facts f;
  f.model[1] = 2;
  f.components.push_back(layout::attention(80, 8, 128, layout::Element::bf16));
  f.components.push_back(layout::sliding_window(10, 4, 64, layout::Element::fp8_e4m3, 4096));
  f.components.push_back(layout::state(6, 12345));
  return f;
}

std::vector<Part> parts() {
  return {{0, {10, 20, 2, 4, 0}, {100, 4096}}, {1, {0, 10, 0, 4, 0}, {0, 1}}, {2, {0, 6, 0, 1, 1}, {0, 12345}}};
}

Open open() { return {{}, 5'000'000'000, 4, 1 << 20, facts(), parts(), kWayShared}; }

std::vector<std::byte> some_bytes(size_t n) {
  std::vector<std::byte> bytes(n);
  SeededRandom(n).fill(bytes);
  return bytes;
}

std::vector<std::pair<Type, Body>> all() {
  Published published;
  published.entries = {{0, 10, 20, {100, 228}}, {2, 0, 6, {0, 12345}}};
  Pull pull;
  pull.entries = {{77, 1, {0, 11, 2, 2, {100, 164}}},
                  {78, 2, {1, 3, 0, 4, {0, 1}}},
                  {79, 3, {0, 0, 0, 1, {0, 64}, 16}, kWayShared}};
  return {{Type::open, open()},
          {Type::accept, Accept{facts_hash(facts()), 1 << 20, parts()}},
          {Type::accept, Accept{facts_hash(facts()), 1 << 20, parts(), {16 | Accept::kOnDevice, 64, 0}, kWayShared}},
          {Type::published, published},
          {Type::pull, pull},
          {Type::done, Done{}},
          {Type::source_abort, Abort{Code::deadline, "too late"}},
          {Type::sink_abort, Abort{Code::cancelled, ""}},
          {Type::map, Map{some_bytes(48)}},
          {Type::shared, Shared{Code::ok, 16, 1 << 20, some_bytes(96), ""}},
          {Type::shared, Shared{Code::unsupported, 0, 0, {}, "another machine"}},
          {Type::release, Release{{77, 79}}}};
}

TEST(SessionWire, every_message_comes_back_as_it_was) {
  for (const auto& [type, body] : all()) {
    const auto bytes = encode(header(type), body);
    ASSERT_LE(bytes.size(), kMaxMessageBytes);
    const auto back = decode(bytes);
    ASSERT_TRUE(back.ok()) << back.status().message();
    const Header said = peek(bytes).value();
    EXPECT_EQ(said.type, type);
    EXPECT_EQ(said.source_rank, 3);
    EXPECT_EQ(said.sink_rank, 5);
    EXPECT_EQ(said.session, 0x1122334455667788u);
    EXPECT_EQ(said.sequence, 9u);
    EXPECT_EQ(encode(said, back.value()), bytes);
    EXPECT_EQ(back.value().index(), body.index());
  }
  const auto back = decode(encode(header(Type::open), open()));
  const auto& o = std::get<Open>(back.value());
  EXPECT_EQ(o.facts, facts());
  EXPECT_EQ(o.parts, parts());
  EXPECT_EQ(o.remaining_ns, 5'000'000'000u);
}

TEST(SessionWire, grains_are_said_in_accept_and_pull_alone) {
  const auto accepted = decode(encode(header(Type::accept), all()[2].second));
  EXPECT_EQ(std::get<Accept>(accepted.value()).grains, (std::vector<uint32_t>{16 | Accept::kOnDevice, 64, 0}));
  const auto without = decode(encode(header(Type::accept), all()[1].second));
  EXPECT_EQ(std::get<Accept>(without.value()).grains, (std::vector<uint32_t>{0, 0, 0}));
  const auto pulled = decode(encode(header(Type::pull), all()[4].second));
  EXPECT_EQ(std::get<Pull>(pulled.value()).entries[2].extent.grain, 16U);
  // These four bytes are reserved in OPEN and must be zero.
  auto bytes = encode(header(Type::open), open());
  bytes[bytes.size() - 32 + 12] = std::byte{1};
  EXPECT_EQ(decode(bytes).status().code(), Code::damaged);
}

TEST(SessionWire, a_message_of_any_other_length_is_refused) {
  for (const auto& [type, body] : all()) {
    auto bytes = encode(header(type), body);
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(decode(ConstBytes(bytes).first(n)).ok()) << n;
      // With a fitting length in the header, the counts of the body itself are checked.
      if (n < kHeaderBytes || type == Type::source_abort || type == Type::sink_abort) continue;
      std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
      store_le<uint32_t>(cut.data() + 20, static_cast<uint32_t>(n - kHeaderBytes));
      EXPECT_FALSE(decode(cut).ok()) << n;
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes).ok());
  }
}

TEST(SessionWire, values_that_none_has_are_refused) {
  const auto refused = [](const Body& body, Type type) { EXPECT_FALSE(decode(encode(header(type), body)).ok()); };
  Open o = open();
  o.sink_count = 0;
  refused(o, Type::open);
  o = open();
  o.parts[0].shard.heads = 9;
  refused(o, Type::open);
  o = open();
  o.parts[0].range.end = kMaxPosition + 1;
  refused(o, Type::open);
  o = open();
  o.facts.components[0].head_dim = 0;
  refused(o, Type::open);
  refused(Published{{{0, 0, 1, {0, kMaxPosition + 1}}}}, Type::published);
  refused(Abort{Code::ok, ""}, Type::sink_abort);
  Header h = header(Type::done);
  h.session = 0;
  EXPECT_FALSE(decode(encode(h, Done{})).ok());
  auto bytes = encode(header(Type::done), Done{});
  bytes[1] = std::byte{2};
  EXPECT_EQ(decode(bytes).status().code(), Code::newer_version);
  bytes[1] = std::byte{1};
  for (const int type : {0, 10, 12}) {
    bytes[0] = static_cast<std::byte>(type);
    EXPECT_EQ(decode(bytes).status().code(), Code::damaged);
  }
}

TEST(SessionWire, ways_are_said_in_open_accept_and_pull) {
  EXPECT_EQ(std::get<Open>(decode(encode(header(Type::open), open())).value()).ways, kWayShared);
  const auto accepted = decode(encode(header(Type::accept), all()[2].second));
  EXPECT_EQ(std::get<Accept>(accepted.value()).ways, kWayShared);
  const auto pulled = decode(encode(header(Type::pull), all()[4].second));
  const auto& entries = std::get<Pull>(pulled.value()).entries;
  EXPECT_EQ(entries[1].ways, 0);
  EXPECT_EQ(entries[2].ways, kWayShared);
  EXPECT_EQ(entries[2].extent.grain, 16U);
}

TEST(SessionWire, memory_that_none_can_share_is_refused) {
  const Shared good{Code::ok, 16, 1 << 20, some_bytes(96), ""};
  const auto with = [&](auto&& change) {
    Shared s = good;
    change(s);
    return decode(encode(header(Type::shared), s)).ok();
  };
  EXPECT_TRUE(with([](Shared&) {}));
  EXPECT_FALSE(with([](Shared& s) { s.slots = 0; }));
  EXPECT_FALSE(with([](Shared& s) { s.slots = kMaxSharedSlots + 1; }));
  EXPECT_FALSE(with([](Shared& s) { s.slot_bytes = kMinSliceBytes - 64; }));
  EXPECT_FALSE(with([](Shared& s) { s.slot_bytes = uint64_t{1} << 60; }));
  EXPECT_FALSE(with([](Shared& s) { s.slot_bytes += 8; }));
  EXPECT_FALSE(with([](Shared& s) { s.memory.clear(); }));
  EXPECT_FALSE(with([](Shared& s) { s.memory.resize(kMaxSharedBytes + 1); }));
  EXPECT_FALSE(with([](Shared& s) { s.text = "and yet"; }));
  EXPECT_FALSE(with([](Shared& s) { s.code = Code::unsupported; })) << "refused, and given all the same";
  EXPECT_FALSE(with([](Shared& s) { s.code = static_cast<Code>(1); }));
  EXPECT_FALSE(decode(encode(header(Type::map), Map{some_bytes(kMaxPlaceBytes + 1)})).ok());
  EXPECT_FALSE(decode(encode(header(Type::release), Release{std::vector<uint64_t>(kMaxReleaseTags + 1)})).ok());
}

TEST(SessionWire, the_text_of_an_abort_is_one_line) {
  const auto back =
      decode(encode(header(Type::sink_abort), Abort{Code::deadline, "a\nb\x1b[31m" + std::string(600, 'c')}));
  const auto& text = std::get<Abort>(back.value()).text;
  EXPECT_EQ(text.size(), kMaxTextBytes);
  EXPECT_EQ(text.substr(0, 5), "a?b?[");
}

TEST(SessionWire, a_slice_front_is_right_only_as_a_whole) {
  SliceHead head{7, 8, {}, 3, 5000, 5, 256, {1, 2, 3, 4, {5, 6}}};
  std::vector<std::byte> front(slice_front_bytes(5));
  SeededRandom(1).fill({slice_hashes(front.data()), 40});
  encode_slice_front(head, front.data());
  const auto sent = front;
  EXPECT_TRUE(check_slice_front(head, front.data()));
  EXPECT_EQ(front, sent);
  for (size_t i = 0; i < kSliceHeadBytes + 40; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      front = sent;
      front[i] ^= std::byte{1} << bit;
      EXPECT_FALSE(check_slice_front(head, front.data())) << i;
    }
  }
  SliceHead other = head;
  other.extent.layer = 9;
  front = sent;
  EXPECT_FALSE(check_slice_front(other, front.data()));
  other = head;
  other.extent.grain = 16;
  front = sent;
  EXPECT_FALSE(check_slice_front(other, front.data()));
  other = head;
  other.place = 3;
  front = sent;
  EXPECT_EQ(slice_place(front.data()), 0U);
  EXPECT_FALSE(check_slice_front(other, front.data()));
  encode_slice_front(other, front.data());
  EXPECT_EQ(slice_place(front.data()), 3U);
  EXPECT_TRUE(check_slice_front(other, front.data()));
  other = head;
  other.tag = 9;
  front = sent;
  EXPECT_FALSE(check_slice_front(other, front.data()));
}

TEST(SessionWire, a_pull_says_how_what_it_asks_for_may_be_coded) {
  Pull pull;
  pull.entries = {{77, 1, {0, 11, 2, 2, {100, 164}}, kWayCoded}, {78, 2, {1, 3, 0, 4, {0, 1}}}};
  pull.coding = {2, 1, 7};
  const auto said = decode(encode(header(Type::pull), pull));
  ASSERT_TRUE(said.ok()) << said.status().message();
  const auto& body = std::get<Pull>(said.value());
  EXPECT_EQ(body.coding, pull.coding);
  EXPECT_EQ(body.entries[0].ways, kWayCoded);
  EXPECT_EQ(body.entries[1].ways, 0);
  EXPECT_FALSE(wire::Coding{}.any());
}

}  // namespace
}  // namespace kvbm::cluster::session::session_wire_test
