#include "cluster/tier/peer_places.h"

#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "base/crypto/random.h"
#include "codec/record/record.h"

namespace kvbm::cluster::peer_places_test {
namespace {

struct Still final : Clock {
  [[nodiscard]] uint64_t now_ns() const noexcept override { return 1'000'000'000; }
};

Identity identity(uint64_t n) {
  SeededRandom random(n);
  Identity id;
  random.fill(std::as_writable_bytes(std::span(id.key.bytes)));
  id.family = 1;
  return id;
}

NodeFacts facts(const char* name) {
  NodeFacts node;
  node.node = node_id_of(name);
  node.incarnation = 1;
  return node;
}

struct Known {
  Still clock;
  PeerPlaces places{1 << 20, clock};

  void learn(const char* node, uint64_t n, uint8_t tier, uint64_t hint) {
    places.learn(facts(node), identity(n), {1, tier, 300, 65536, hint});
  }
  tier::Found find(uint64_t n) {
    const Identity id = identity(n);
    tier::Found found;
    places.find({&id, 1}, {&found, 1});
    return found;
  }
  // Whether the location names the memory of that node.
  bool is_of(uint64_t location, const char* node) const {
    NodeId id;
    return places.node_of(location, id) && id == node_id_of(node);
  }
};

TEST(PeerPlaces, say_in_a_location_whose_memory_a_record_lies_in_and_where) {
  Known k;
  k.learn("a", 1, kHostTier, 7);
  k.learn("b", 2, kHostTier, UINT32_MAX);
  EXPECT_TRUE(k.is_of(k.find(1).location, "a"));
  EXPECT_EQ(PeerPlaces::hint_of(k.find(1).location), 7U);
  EXPECT_TRUE(k.is_of(k.find(2).location, "b"));
  EXPECT_EQ(PeerPlaces::hint_of(k.find(2).location), uint64_t{UINT32_MAX});
  EXPECT_NE(PeerPlaces::holder_of(k.find(1).location), PeerPlaces::holder_of(k.find(2).location));
}

TEST(PeerPlaces, do_not_believe_in_records_that_are_larger_than_any) {
  Known k;
  const auto longest = static_cast<uint32_t>(codec::head_bytes(codec::kMaxLeaves, codec::kMaxAttributeBytes));
  k.places.learn(facts("a"), identity(1), {1, kHostTier, longest, codec::kMaxRecordBytes, 7});
  EXPECT_TRUE(k.find(1).present);
  k.places.learn(facts("a"), identity(2), {1, kHostTier, longest + 1, 65536, 7});
  EXPECT_FALSE(k.find(2).present);
  k.places.learn(facts("a"), identity(3), {1, kHostTier, 300, codec::kMaxRecordBytes + 1, 7});
  EXPECT_FALSE(k.find(3).present);
}

TEST(PeerPlaces, say_no_place_of_what_is_not_in_host_memory_or_not_a_slot) {
  Known k;
  k.learn("a", 1, kHostTier + 1, 7);
  k.learn("a", 2, kHostTier, uint64_t{UINT32_MAX} + 7);
  k.learn("a", 3, kHostTier, 0);
  for (const uint64_t n : {1, 2, 3}) {
    ASSERT_TRUE(k.find(n).present);
    EXPECT_EQ(PeerPlaces::hint_of(k.find(n).location), 0U) << n;
    EXPECT_NE(k.find(n).location, 0U) << n;
  }
  EXPECT_FALSE(k.find(4).present);
  EXPECT_EQ(k.find(4).location, 0U);
}

TEST(PeerPlaces, a_location_from_before_anything_was_forgotten_says_nothing) {
  Known k;
  const Identity other = identity(9);
  NodeId node;
  const auto is_old_after = [&](auto&& forget) {
    k.learn("a", 1, kHostTier, 7);
    const uint64_t location = k.find(1).location;
    if (!k.is_of(location, "a")) return false;
    forget();
    return !k.places.node_of(location, node);
  };
  EXPECT_TRUE(is_old_after([&] { k.places.forget({&other, 1}); }));
  EXPECT_TRUE(is_old_after([&] { k.places.reject(other); }));
  EXPECT_TRUE(is_old_after([&] { k.places.forget_family(2); }));
  EXPECT_TRUE(is_old_after([&] { k.places.forget_node(node_id_of("a")); }));
  EXPECT_FALSE(k.places.node_of(0, node));
}

TEST(PeerPlaces, remembers_forgetting_only_of_families_that_there_are) {
  Known known;
  for (FamilyId family = 1; family <= 100; ++family) known.places.forget_family(family);
  EXPECT_EQ(known.places.forgotten_families(), 100U);
  const std::vector<FamilyId> gone = {1, 50, 100, 101};
  known.places.forget_families(gone);
  EXPECT_EQ(known.places.forgotten_families(), 97U);
}

}  // namespace
}  // namespace kvbm::cluster::peer_places_test
