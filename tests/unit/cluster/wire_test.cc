#include "cluster/wire/wire.h"

#include <gtest/gtest.h>

#include "base/crypto/random.h"

namespace kvbm::cluster::wire::wire_test {
namespace {

using Bytes = std::vector<std::byte>;

template <class M>
Bytes bytes_of(const M& m) {
  Bytes out(kMaxBody);
  out.resize(encode(m, out));
  EXPECT_FALSE(out.empty());
  return out;
}

// An encoded message decodes to one that encodes to equal bytes; no shorter or longer body is accepted.
template <class M>
void check(const M& m) {
  const Bytes body = bytes_of(m);
  M back;
  ASSERT_TRUE(decode(body, back).ok());
  EXPECT_EQ(bytes_of(back), body);
  EXPECT_TRUE(peek(body).ok());
  for (size_t n = 0; n<body.size(); n += body.size()> 2000 ? 61 : 1) {
    const Bytes cut(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(n));
    M ignored;
    EXPECT_FALSE(decode(cut, ignored).ok()) << n;
  }
  Bytes longer = body;
  longer.push_back(std::byte{0});
  M ignored;
  EXPECT_FALSE(decode(longer, ignored).ok());
}

struct Samples {
  SeededRandom random{11};
  Family family() {
    Family f;
    random.fill(std::as_writable_bytes(std::span(f.ns.bytes)));
    f.geometry = random.next();
    f.component = static_cast<Component>(random.next());
    f.shard = {1, 2, 3, 4, 1};
    return f;
  }
  Name name(uint32_t families) {
    Name n;
    random.fill(std::as_writable_bytes(std::span(n.key.bytes)));
    n.family = static_cast<uint16_t>(random.below(families));
    return n;
  }
  Find find(uint32_t items, uint32_t families) {
    Find m;
    m.request = random.next();
    m.first = 4096;
    m.lease_ns = random.next();
    for (uint32_t i = 0; i < families; ++i) m.families.push_back(family());
    for (uint32_t i = 0; i < items; ++i) m.items.push_back(name(families));
    return m;
  }
  Fetch fetch(uint32_t items, uint32_t families) {
    Fetch m;
    m.request = random.next();
    m.budget_ns = random.next();
    m.coding = {2, kOpensSealed, 0x1F};
    for (uint32_t i = 0; i < families; ++i) m.families.push_back(family());
    for (uint32_t i = 0; i < items; ++i) {
      m.items.push_back({name(families), i, i + 1, random.next(), random.next(), random.next()});
    }
    return m;
  }
  Offer offer(uint32_t items, uint32_t families) {
    Offer m;
    m.request = random.next();
    m.lease = random.next();
    m.lease_ns = random.next();
    for (uint32_t i = 0; i < families; ++i) m.families.push_back(family());
    for (uint32_t i = 0; i < items; ++i) m.items.push_back({name(families), 7, 2, i, random.next(), random.next()});
    return m;
  }
};

TEST(Wire, every_message_comes_back_as_it_was) {
  Samples s;
  check(s.find(3, 2));
  check(Found{5, 4096, 9, 1000, {{1, 2, 300, 4096, 77}, {}}});
  check(s.fetch(3, 2));
  check(Fetched{5, {{1, -400, 0, 0}, {2, -402, 300, 1 << 20}}});
  check(s.offer(3, 2));
  check(Want{5, {0, 2, 3}});
  check(Lease{Type::renew, 5, 6, 7});
  check(Lease{Type::granted, 5, 6, 7});
  check(Release{{1, 2, 3}});
  check(NodeStatus{5, 1, 2, 3, 4, 6});
  check(Invalidate{5, NamespaceId{{1, 2, 3}}, 4});
  check(Failed{5, -202, 2048});
  for (const Type t : {Type::ping, Type::pong, Type::ask_status, Type::cancel, Type::invalidated, Type::bye}) {
    check(Head{t, 99, 1});
  }
}

TEST(Wire, the_largest_parts_fit_one_message) {
  Samples s;
  check(s.find(kMaxFindItems, kMaxFamiliesPerMessage));
  check(s.fetch(kMaxFetchItems, kMaxFamiliesPerMessage));
  check(s.offer(kMaxOfferItems, kMaxFamiliesPerMessage));
  Found found;
  found.items.resize(kMaxFindItems);
  check(found);
  Fetched fetched;
  fetched.items.resize(kMaxFetchItems);
  check(fetched);
  check(Release{std::vector<uint64_t>(kMaxReleases, 3)});
}

TEST(Wire, what_is_too_large_is_not_encoded) {
  Samples s;
  Bytes out(2 * kMaxBody);
  EXPECT_EQ(encode(s.find(kMaxFindItems + 1, 1), out), 0U);
  EXPECT_EQ(encode(s.find(1, kMaxFamiliesPerMessage + 1), out), 0U);
  EXPECT_EQ(encode(s.find(3, 1), MutableBytes(out).first(50)), 0U);
}

TEST(Wire, a_name_of_a_family_that_is_not_there_is_damage) {
  Samples s;
  Find m = s.find(2, 2);
  m.items[1].family = 2;
  Find back;
  EXPECT_EQ(decode(bytes_of(m), back).code(), Code::damaged);
}

TEST(Wire, counts_beyond_the_message_are_damage) {
  Samples s;
  Bytes body = bytes_of(s.find(2, 1));
  for (const uint32_t count : {3U, 0x10000U, 0xFFFFFFFFU}) {
    store_le<uint32_t>(body.data() + 4, count);
    Find back;
    EXPECT_EQ(decode(body, back).code(), Code::damaged);
  }
}

TEST(Wire, wanted_items_rise) {
  Want back;
  EXPECT_FALSE(decode(bytes_of(Want{1, {2, 2}}), back).ok());
  EXPECT_FALSE(decode(bytes_of(Want{1, {3, 1}}), back).ok());
  EXPECT_FALSE(decode(bytes_of(Want{1, {kMaxOfferItems}}), back).ok());
}

TEST(Wire, unknown_types_are_told_from_damage) {
  Bytes body = bytes_of(Head{Type::ping, 1, 0});
  body[0] = std::byte{40};
  EXPECT_EQ(peek(body).status().code(), Code::unsupported);
  body[1] = std::byte{1};
  EXPECT_EQ(peek(body).status().code(), Code::damaged);
  EXPECT_EQ(peek(ConstBytes(body).first(15)).status().code(), Code::damaged);
}

// The bytes of one message, written down: they may not change within a version.
TEST(Wire, the_bytes_of_a_find_are_these) {
  Find m;
  m.request = 0x0102030405060708;
  m.first = 2;
  m.lease_ns = 3;
  m.families.push_back({NamespaceId{{0xAA}}, 4, 5, {6, 7, 8, 9, 1}});
  m.items.push_back({Key{{0xBB}}, 0});
  const Bytes body = bytes_of(m);
  const uint8_t expected[] = {1,    0, 0, 0, 1, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1,  // head
                              2,    0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,  // first, families, lease
                              0xAA, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  // namespace
                              4,    0, 0, 0, 0, 0, 0, 0, 5, 0, 6, 0, 7, 0, 8, 0,  // geometry, component, shard
                              9,    0, 1, 0, 0, 0, 0, 0,                          //
                              0xBB, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  ASSERT_EQ(body.size(), sizeof expected);
  EXPECT_EQ(std::memcmp(body.data(), expected, sizeof expected), 0);
}

}  // namespace
}  // namespace kvbm::cluster::wire::wire_test
