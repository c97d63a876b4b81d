#include "layout/plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/crypto/random.h"
#include "layout/engine_forms.h"
#include "layout/shard.h"

namespace kvbm::layout::plan_test {
namespace {

struct Cache {
  std::vector<std::vector<std::byte>> memory;
  std::vector<Tensor> tensors;
};

Cache make_cache(Form form, const RecordShape& s, uint64_t blocks, Random& random) {
  Cache c;
  const uint32_t n = form_tensors(form, s);
  const uint64_t total = blocks * s.unit_bytes() * s.planes() * s.layers();
  for (uint32_t i = 0; i < n; ++i) {
    c.memory.emplace_back(total / n);
    random.fill(c.memory.back());
  }
  for (auto& m : c.memory) c.tensors.push_back({m.data(), m.size()});
  return c;
}

// Row-major index over the form's axes, computed axis by axis and without strides.
const std::byte* naive(const Cache& c, Form form, const RecordShape& s, uint64_t blocks, uint64_t block, uint64_t layer,
                       uint64_t plane, uint64_t head, uint64_t token) {
  uint64_t index = 0;
  bool has_layer = false, has_plane = false;
  for (const Axis a : form_axes(form)) {
    switch (a) {
      case Axis::block:
        index = index * blocks + block;
        break;
      case Axis::layer:
        index = index * s.layers() + layer;
        has_layer = true;
        break;
      case Axis::plane:
        index = index * s.planes() + plane;
        has_plane = true;
        break;
      case Axis::head:
        index = index * s.heads() + head;
        break;
      case Axis::token:
        index = index * s.tokens() + token;
        break;
    }
  }
  uint64_t tensor = 0;
  if (!has_layer) tensor = layer;
  if (!has_plane) tensor = tensor * s.planes() + plane;
  return c.memory[tensor].data() + index * s.row_bytes();
}

TEST(Plan, every_form_gathers_what_a_naive_index_gathers) {
  const uint64_t seed = 77;
  SCOPED_TRACE("seed " + std::to_string(seed));
  SeededRandom random(seed);
  for (uint8_t f = 0; f < kFormCount; ++f) {
    const Form form = static_cast<Form>(f);
    SCOPED_TRACE("form " + std::to_string(f));
    for (int round = 0; round < 6; ++round) {
      const ComponentGeometry c =
          round == 5 ? latent(2, 9000, Element::bf16)
                     : attention(static_cast<uint32_t>(1 + random.below(3)), static_cast<uint32_t>(1 + random.below(5)),
                                 static_cast<uint32_t>(1 + random.below(9)), Element::bf16);
      const Geometry g = Geometry::make(static_cast<uint32_t>(1 + random.below(6)), {c}, 3).value();
      const RecordShape s = RecordShape::make(g, 0, whole_shard(c), 3).value();
      const uint64_t blocks = 3 + random.below(4);
      const Cache cache = make_cache(form, s, blocks, random);
      const auto arranged = arrange(form, s, blocks, cache.tensors);
      ASSERT_TRUE(arranged.ok()) << arranged.status().message();
      const std::vector<BlockId> ids{static_cast<BlockId>(blocks - 1), 0, 1};
      std::vector<std::byte> got, want;
      for (uint32_t i = 0; i < s.leaf_count(); ++i) {
        ASSERT_EQ(s.leaf(i).offset, got.size());
        const StridedRun run = plan_leaf(arranged.value(), s.leaf(i), ids[s.leaf(i).unit]);
        ASSERT_EQ(run.total(), s.leaf(i).bytes);
        for (uint32_t a = 0; a < run.count0; ++a)
          for (uint32_t b = 0; b < run.count1; ++b) {
            const std::byte* p = run.data + a * run.stride0 + b * run.stride1;
            got.insert(got.end(), p, p + run.bytes);
          }
      }
      for (uint64_t l = 0; l < s.layers(); ++l)
        for (uint64_t p = 0; p < s.planes(); ++p)
          for (const BlockId id : ids)
            for (uint64_t h = 0; h < s.heads(); ++h)
              for (uint64_t t = 0; t < s.tokens(); ++t) {
                const std::byte* row = naive(cache, form, s, blocks, id, l, p, h, t);
                want.insert(want.end(), row, row + s.row_bytes());
              }
      ASSERT_EQ(got, want);
    }
  }
}

TEST(Plan, whole_hnd_leaf_is_one_piece) {
  const ComponentGeometry c = attention(1, 8, 128, Element::bf16);
  const RecordShape s = RecordShape::make(Geometry::make(16, {c}).value(), 0, whole_shard(c), 1).value();
  std::vector<std::byte> memory(s.payload_bytes() * 2);
  const Tensor tensor{memory.data(), memory.size()};
  const auto a = arrange(Form::hnd, s, 2, {&tensor, 1}).value();
  const StridedRun run = plan_leaf(a, s.leaf(1), 1);
  EXPECT_EQ(run.count0 * run.count1, 1u);
  EXPECT_EQ(run.bytes, s.unit_bytes());
}

TEST(Arrangement, names_the_layer_the_need_and_what_is_there) {
  const ComponentGeometry c = attention(2, 2, 4, Element::bf16);
  const RecordShape s = RecordShape::make(Geometry::make(4, {c}).value(), 0, whole_shard(c), 1).value();
  std::vector<std::byte> one(s.layer_bytes() * 5), two(s.layer_bytes() * 5 - 1);
  const std::vector<Tensor> tensors{{one.data(), one.size()}, {two.data(), two.size()}};
  const auto a = arrange(Form::nhd, s, 5, tensors);
  ASSERT_EQ(a.status().code(), Code::invalid_argument);
  EXPECT_NE(a.status().message().find("layer 1 V needs 320 bytes"), std::string::npos) << a.status().message();
  EXPECT_NE(a.status().message().find("319"), std::string::npos);
}

TEST(Arrangement, refuses_planes_blocks_and_tensors_that_overlap) {
  const ComponentGeometry c = attention(1, 2, 4, Element::bf16);
  const RecordShape s = RecordShape::make(Geometry::make(4, {c}).value(), 0, whole_shard(c), 1).value();
  std::vector<std::byte> m(4096);
  const PlaneView k{m.data(), 2048, 64, 32, 8};
  PlaneView v = k;
  EXPECT_FALSE(Arrangement::make(s, 3, {k, v}).ok());
  v.base += 64 - 4;
  EXPECT_FALSE(Arrangement::make(s, 3, {k, v}).ok());
  v.base = m.data() + 64 * 3;
  EXPECT_TRUE(Arrangement::make(s, 3, {k, v}).ok());
  PlaneView tight = k;
  tight.block_stride = 56;
  EXPECT_FALSE(Arrangement::make(s, 3, {tight, v}).ok());
  EXPECT_FALSE(Arrangement::make(s, 0, {k, v}).ok());
  EXPECT_FALSE(Arrangement::make(s, 3, {k}).ok());
  PlaneView huge = k;
  huge.block_stride = INT64_MAX;
  EXPECT_FALSE(Arrangement::make(s, 3, {huge, v}).ok());
  const auto a = Arrangement::make(s, 3, {k, v}).value();
  const std::vector<BlockId> ids{0, 3};
  EXPECT_FALSE(a.check_blocks(ids).ok());
}

TEST(PageArrangement, leaves_cover_every_page_once_in_payload_order) {
  std::vector<std::byte> m(1 << 20);
  const std::vector<PageTensor> tensors{{m.data(), 210000, 70000, 65537}, {m.data() + 300000, 3000, 1000, 1000}};
  const auto a = PageArrangement::make(3, tensors).value();
  for (uint32_t units = 1; units <= 3; ++units) {
    ASSERT_TRUE(a.check_units(units).ok());
    uint64_t offset = 0;
    for (uint32_t i = 0; i < a.leaf_count(units); ++i) {
      const PageLeaf leaf = a.leaf(i, units);
      ASSERT_EQ(leaf.offset, offset);
      ASSERT_LE(leaf.page_offset + leaf.bytes, tensors[leaf.tensor].page_bytes);
      ASSERT_EQ(plan_page(a, leaf, 2).data,
                tensors[leaf.tensor].base + 2 * tensors[leaf.tensor].block_stride + leaf.page_offset);
      offset += leaf.bytes;
    }
    EXPECT_EQ(offset, a.payload_bytes(units));
  }
  EXPECT_FALSE(PageArrangement::make(4, tensors).ok());
}

}  // namespace
}  // namespace kvbm::layout::plan_test
