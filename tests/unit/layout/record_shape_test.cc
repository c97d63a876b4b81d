#include "layout/record_shape.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/crypto/random.h"
#include "layout/shard.h"

namespace kvbm::layout::record_shape_test {
namespace {

TEST(RecordShape, leaves_are_contiguous_bounded_and_found_by_their_bytes) {
  const uint64_t seed = 4242;
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRandom random(seed);
  for (int round = 0; round < 300; ++round) {
    const auto pick = [&](uint64_t n) { return static_cast<uint32_t>(1 + random.below(n)); };
    ComponentGeometry c = attention(pick(5), pick(40), pick(300), Element::bf16);
    if (round % 5 == 1) c = latent(pick(5), pick(32768), Element::bf16);
    if (round % 5 == 2) c = state(pick(5), pick(200000));
    const Geometry g = Geometry::make(pick(64), {c}, 4).value();
    const auto made = RecordShape::make(g, 0, whole_shard(c), pick(4));
    if (!made.ok()) continue;
    const RecordShape& s = made.value();
    uint64_t offset = 0;
    for (uint32_t i = 0; i < s.leaf_count(); ++i) {
      const LeafExtent e = s.leaf(i);
      ASSERT_EQ(e.offset, offset);
      ASSERT_GT(e.bytes, 0u);
      ASSERT_LE(e.bytes, kLeafLimit);
      ASSERT_EQ(s.leaf_at(offset), i);
      ASSERT_EQ(s.leaf_at(offset + e.bytes - 1), i);
      offset += e.bytes;
    }
    ASSERT_EQ(offset, s.payload_bytes());
  }
}

TEST(RecordShape, refuses_records_beyond_the_format_and_bad_shards) {
  const ComponentGeometry c = attention(4096, 4096, 1024, Element::fp32);
  const Geometry g = Geometry::make(4096, {c}, 4096).value();
  EXPECT_FALSE(RecordShape::make(g, 0, whole_shard(c), 4096).ok());
  EXPECT_FALSE(RecordShape::make(g, 1, whole_shard(c), 1).ok());
  EXPECT_FALSE(RecordShape::make(g, 0, {4095, 2, 0, 1, 0}, 1).ok());
  EXPECT_FALSE(RecordShape::make(g, 0, {0, 1, 4000, 97, 0}, 1).ok());
  EXPECT_FALSE(RecordShape::make(g, 0, {0, 0, 0, 1, 0}, 1).ok());
  EXPECT_FALSE(RecordShape::make(g, 0, {0, 1, 0, 1, 2}, 1).ok());
  EXPECT_FALSE(RecordShape::make(g, 0, {0, 1, 0, 1, 0}, 0).ok());
}

TEST(Geometry, refuses_zero_and_excess_in_every_field_with_its_name) {
  const auto refuse = [](ComponentGeometry c, const char* field) {
    const auto made = Geometry::make(16, {c});
    ASSERT_FALSE(made.ok()) << field;
    EXPECT_NE(made.status().message().find(field), std::string::npos) << made.status().message();
  };
  refuse(attention(0, 8, 128, Element::bf16), "layers");
  refuse(attention(1, 0, 128, Element::bf16), "heads");
  refuse(attention(1, 8, 0, Element::bf16), "head_dim");
  refuse(attention(1, 8, 32769, Element::bf16), "head_dim");
  refuse(attention(1, 8, 128, static_cast<Element>(9)), "element");
  refuse(sliding_window(1, 8, 128, Element::bf16, 0), "window_tokens");
  refuse(state(1, 0), "state_bytes");
  EXPECT_FALSE(Geometry::make(0, {state(1, 1)}).ok());
  EXPECT_FALSE(Geometry::make(16, {}).ok());
  EXPECT_FALSE(Geometry::make(16, {state(1, 1)}, 0).ok());
}

TEST(Layout, agrees_with_the_vectors_of_an_independent_implementation) {
  std::ifstream file(KVBM_TEST_DATA "/vectors/layout.json");
  ASSERT_TRUE(file);
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GE(cases.size(), 5u);
  for (const auto& v : cases) {
    SCOPED_TRACE(v["name"].get<std::string>());
    std::vector<ComponentGeometry> components;
    for (const auto& c : v["components"]) {
      components.push_back({static_cast<ComponentKind>(c["kind"].get<int>()), c["layers"], c["planes"], c["heads"],
                            c["head_dim"], static_cast<Element>(c["element"].get<int>()), c["window_tokens"],
                            c["state_bytes"]});
    }
    const Geometry g = Geometry::make(v["tokens_per_block"], components, v["units"]).value();
    EXPECT_EQ(g.fingerprint(), std::stoull(v["fingerprint"].get<std::string>(), nullptr, 16));
    const auto& sh = v["shard"];
    const RecordShape s = RecordShape::make(g, 0, {sh[0], sh[1], sh[2], sh[3], 0}, v["units"]).value();
    ASSERT_EQ(s.leaf_count(), v["leaf_count"].get<uint32_t>());
    EXPECT_EQ(s.payload_bytes(), v["payload_bytes"].get<uint64_t>());
    for (const auto& l : v["leaves"]) {
      const LeafExtent e = s.leaf(l[0]);
      const LeafExtent want{l[1], l[2], l[3], l[4], l[5], l[6], l[7], l[8], l[9]};
      EXPECT_EQ(e, want);
    }
  }
}

}  // namespace
}  // namespace kvbm::layout::record_shape_test
