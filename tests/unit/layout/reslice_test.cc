#include "layout/reslice.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "base/crypto/random.h"
#include "layout/shard.h"

namespace kvbm::layout::reslice_test {
namespace {

// A value that names (layer, plane, head, token, byte) of the whole model.
uint8_t truth(uint64_t layer, uint64_t plane, uint64_t head, uint64_t token, uint64_t byte) {
  uint64_t z = layer * 1000003 + plane * 7919 + head * 104729 + token * 15485863 + byte * 32452843;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  return static_cast<uint8_t>(z >> 40);
}

// The canonical payload, element by element, in the order that README.md says.
std::vector<uint8_t> payload(const PlacedRecord& r) {
  const RecordShape& s = r.shape;
  std::vector<uint8_t> out;
  for (uint64_t l = 0; l < s.layers(); ++l)
    for (uint64_t p = 0; p < s.planes(); ++p)
      for (uint64_t u = 0; u < s.units(); ++u)
        for (uint64_t h = 0; h < s.heads(); ++h)
          for (uint64_t t = 0; t < s.tokens(); ++t)
            for (uint64_t b = 0; b < s.row_bytes(); ++b)
              out.push_back(
                  truth(s.shard().first_layer + l, p, s.shard().first_head + h, r.first_token + u * s.tokens() + t, b));
  return out;
}

PlacedRecord place(const ComponentGeometry& c, uint32_t tokens, uint32_t units, const Shard& shard, uint64_t first) {
  const Geometry g = Geometry::make(tokens, {c}, units).value();
  return {RecordShape::make(g, 0, shard, units).value(), first};
}

std::vector<PlacedRecord> spread(const ComponentGeometry& c, uint32_t tp, uint32_t pp, uint32_t tokens, uint32_t units,
                                 uint64_t from, uint64_t to) {
  std::vector<PlacedRecord> out;
  for (uint32_t s = 0; s < pp; ++s) {
    const uint32_t l0 = s * c.layers / pp;
    const uint32_t l1 = (s + 1) * c.layers / pp;
    for (uint32_t rank = 0; rank < tp; ++rank) {
      const Shard shard = tensor_parallel_shard(c, rank, tp, l0, l1 - l0).value();
      for (uint64_t t = from; t < to; t += uint64_t{tokens} * units) out.push_back(place(c, tokens, units, shard, t));
    }
  }
  return out;
}

void apply_and_compare(const std::vector<PlacedRecord>& sources, const PlacedRecord& target) {
  const auto made = Reslice::make(sources, target);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Reslice& r = made.value();
  ASSERT_TRUE(r.complete());
  const std::vector<uint8_t> want = payload(target);
  std::vector<uint8_t> got(want.size());
  std::vector<int> writes(want.size());
  std::vector<std::vector<uint8_t>> from;
  for (const auto& s : sources) from.push_back(payload(s));
  uint32_t layer = 0;
  for (const Move& m : r.moves()) {
    ASSERT_GE(m.layer, layer);
    layer = m.layer;
    for (uint32_t i = 0; i < m.count; ++i) {
      for (uint64_t b = 0; b < m.bytes; ++b) {
        const uint64_t at = m.source_offset + i * m.source_stride + b;
        const uint64_t to = m.target_offset + i * m.target_stride + b;
        got.at(to) = from[m.source].at(at);
        ++writes.at(to);
        bool listed = false;
        for (const LeafRange& range : r.source_leaves(m.source)) {
          const uint32_t leaf = sources[m.source].shape.leaf_at(at);
          listed |= leaf >= range.first && leaf < range.first + range.count;
        }
        ASSERT_TRUE(listed);
      }
    }
  }
  EXPECT_EQ(got, want);
  for (const int n : writes) ASSERT_EQ(n, 1);
}

TEST(Reslice, any_pair_of_parallel_shapes_gives_the_bytes_of_the_whole) {
  const uint64_t seed = 20261121;
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRandom random(seed);
  for (int round = 0; round < 150; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const uint32_t heads = 1U << random.below(4);
    const auto layers = static_cast<uint32_t>(1 + random.below(4));
    const auto dim = static_cast<uint32_t>(1 + random.below(3));
    const ComponentGeometry c =
        random.below(4) == 0 ? latent(layers, dim, Element::fp16) : attention(layers, heads, dim, Element::bf16);
    const uint32_t tp = 1U << random.below(5);
    const uint32_t pp = 1 + static_cast<uint32_t>(random.below(layers));
    const uint32_t src_tokens = 1U << random.below(4);
    const auto src_units = static_cast<uint32_t>(1 + random.below(3));
    const auto tgt_tokens = static_cast<uint32_t>(1 + random.below(9));
    const auto tgt_units = static_cast<uint32_t>(1 + random.below(3));
    const uint64_t first = random.below(7);
    const uint32_t tgt_tp = 1U << random.below(5);
    const auto sources = spread(c, tp, pp, src_tokens, src_units, 0, first + uint64_t{tgt_tokens} * tgt_units);
    const auto l0 = static_cast<uint32_t>(random.below(layers));
    const auto n = static_cast<uint32_t>(1 + random.below(layers - l0));
    const auto rank = static_cast<uint32_t>(random.below(tgt_tp));
    const Shard shard = tensor_parallel_shard(c, rank, tgt_tp, l0, n).value();
    apply_and_compare(sources, place(c, tgt_tokens, tgt_units, shard, first));
    if (HasFatalFailure()) return;
  }
}

TEST(Reslice, heads_and_layers_that_no_source_has_are_reported) {
  const ComponentGeometry c = attention(4, 8, 2, Element::bf16);
  const std::vector<PlacedRecord> sources{place(c, 4, 1, {0, 3, 0, 4, 0}, 0), place(c, 4, 1, {0, 3, 6, 2, 0}, 0)};
  const auto made = Reslice::make(sources, place(c, 4, 1, {1, 3, 2, 6, 0}, 0));
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(made.value().complete());
  ASSERT_EQ(made.value().gaps().size(), 2u);
  EXPECT_EQ(made.value().gaps()[0], (Gap{1, 2, 4, 2, 0, 4}));
  EXPECT_EQ(made.value().gaps()[1], (Gap{3, 1, 2, 6, 0, 4}));
}

TEST(Reslice, same_shape_is_one_move_a_plane_and_unit) {
  const ComponentGeometry c = attention(2, 8, 64, Element::bf16);
  const PlacedRecord r = place(c, 16, 2, whole_shard(c), 0);
  const auto made = Reslice::make(std::vector{r}, r);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.value().moves().size(), 2u * 2 * 2);
  ASSERT_EQ(made.value().source_leaves(0).size(), 1u);
  EXPECT_EQ(made.value().source_leaves(0)[0], (LeafRange{0, r.shape.leaf_count()}));
}

TEST(Reslice, refuses_other_elements_and_cut_states) {
  const auto a = attention(2, 4, 8, Element::bf16);
  const auto b = attention(2, 4, 8, Element::fp16);
  const auto made = Reslice::make(std::vector{place(a, 4, 1, whole_shard(a), 0)}, place(b, 4, 1, whole_shard(b), 0));
  EXPECT_EQ(made.status().code(), Code::mismatch);
  const auto s = state(2, 100);
  const auto cut = Reslice::make(std::vector{place(s, 4, 1, whole_shard(s), 0)}, place(s, 4, 2, whole_shard(s), 0));
  EXPECT_EQ(cut.status().code(), Code::unsupported);
}

}  // namespace
}  // namespace kvbm::layout::reslice_test
