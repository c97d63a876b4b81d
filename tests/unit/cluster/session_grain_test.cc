// Slices with leaves that end at block ends: the range that they tile, and that a leaf is one run of memory on both
// sides.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cluster/session/slice.h"
#include "support/session_shapes.h"

namespace kvbm::test::session_grain_test {
namespace {

using cluster::session::block_grain;
using cluster::session::common_grain;
using cluster::session::Extent;
using cluster::session::Facts;
using cluster::session::LocalPart;
using cluster::session::max_leaves;
using cluster::session::slice_move;
using cluster::session::SliceCopy;
using cluster::session::SliceShape;

Facts model(uint32_t heads, uint32_t dim) {
  Facts f;
  f.components.push_back(layout::attention(2, heads, dim, layout::Element::bf16));
  return f;
}

TEST(SessionGrain, leaves_tile_the_payload_and_end_at_multiples) {
  const Facts f = model(8, 128);
  for (const uint32_t grain : {1U, 4U, 16U, 48U, 64U, 256U}) {
    for (const cluster::session::Range range : {cluster::session::Range{0, 128}, {5, 7}, {13, 200}, {64, 65}}) {
      const Extent extent{0, 1, 2, 5, range, grain};
      const SliceShape shape(f.components[0], extent);
      uint64_t at = 0;
      for (uint32_t i = 0; i < shape.leaf_count(); ++i) {
        const auto leaf = shape.leaf(i);
        ASSERT_EQ(leaf.offset, at) << grain << " leaf " << i;
        ASSERT_LE(leaf.bytes, cluster::session::kLeafBytes);
        ASSERT_EQ(leaf.bytes, leaf.extent.heads * leaf.extent.range.size() * 256);
        ASSERT_EQ(leaf.extent.range.begin / grain, (leaf.extent.range.end - 1) / grain);
        ASSERT_TRUE(range.holds(leaf.extent.range));
        at += leaf.bytes;
      }
      EXPECT_EQ(at, shape.payload_bytes());
    }
  }
}

TEST(SessionGrain, what_makes_leaves_too_long_or_too_many_is_refused) {
  const auto c = model(1, 128).components[0];
  EXPECT_TRUE(SliceShape::fits_grain(c, {0, 0, 0, 1, {0, 512}, 0}));
  EXPECT_TRUE(SliceShape::fits_grain(c, {0, 0, 0, 1, {0, 512}, 16}));
  EXPECT_TRUE(SliceShape::fits_grain(c, {0, 0, 0, 1, {0, 512}, 256}));
  EXPECT_FALSE(SliceShape::fits_grain(c, {0, 0, 0, 1, {0, 512}, 257})) << "more than 64 KiB";
  EXPECT_FALSE(SliceShape::fits_grain(c, {0, 0, 0, 1, {0, 512}, 2})) << "leaves of 512 bytes";
  layout::ComponentGeometry state;
  state.kind = layout::ComponentKind::state;
  state.state_bytes = 4096;
  EXPECT_FALSE(SliceShape::fits_grain(state, {0, 0, 0, 1, {0, 4096}, 16}));
}

TEST(SessionGrain, the_common_grain_divides_both_and_fits_a_leaf) {
  const auto c = model(1, 128).components[0];  // 256 bytes a row
  EXPECT_EQ(common_grain(c, 16, 32), 16U);
  EXPECT_EQ(common_grain(c, 16, 24), 8U);
  EXPECT_EQ(common_grain(c, 0, 16), 0U);
  EXPECT_EQ(common_grain(c, 1024, 1024), 256U);
  EXPECT_EQ(common_grain(c, 259, 259), 0U) << "odd, and longer than a leaf";
}

// Between any two shapes, at any positions: gathered by runs, scattered by runs, compared with the truth.
TEST(SessionGrain, a_leaf_is_one_run_on_both_sides) {
  SeededRandom random(5);
  const Facts f = model(4, 64);
  const uint64_t tokens = 300;
  for (const uint32_t a : {8U, 16U, 48U}) {
    for (const uint32_t b : {16U, 64U}) {
      for (const auto form : {layout::Form::nhd, layout::Form::hnd, layout::Form::blocks_hnd}) {
        auto from = make_side(f, {1, 1, a, form, false, 0}, tokens, random);
        auto to = make_side(f, {1, 1, b, layout::Form::nhd, false, 0}, tokens, random);
        from[0].fill_all(9);
        const LocalPart source = from[0].locals()[0], target = to[0].locals()[0];
        const auto& c = f.components[0];
        const uint32_t grain = common_grain(c, block_grain(c, source.map), block_grain(c, target.map));
        EXPECT_EQ(grain, std::gcd(a, b));
        SliceCopy copy;
        for (uint16_t layer = 0; layer < 2; ++layer) {
          for (uint64_t at = 0; at < tokens; at += 77) {
            const Extent extent{0, layer, 0, 4, {at, std::min(tokens, at + 77)}, grain};
            const SliceShape shape(c, extent);
            std::vector<std::byte> payload(shape.payload_bytes());
            std::vector<uint64_t> hashes(shape.leaf_count());
            for (const LocalPart* side : {&source, &target}) {
              const auto move = slice_move(f, *side, extent, payload.data());
              for (const auto& leaf : move->leaves) ASSERT_EQ(leaf.runs, 1U);
              EXPECT_EQ(move->bytes(), payload.size());
            }
            copy.gather(f, source, extent, payload.data(), hashes);
            EXPECT_EQ(copy.scatter(f, target, extent, payload.data(), hashes), shape.leaf_count());
          }
        }
        EXPECT_EQ(to[0].check(9), "");
      }
    }
  }
}

}  // namespace
}  // namespace kvbm::test::session_grain_test
