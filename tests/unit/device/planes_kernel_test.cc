// Compares kvbm_split_planes and kvbm_merge_planes, from their own source, with the formula of codec/README.md, and
// with planes that codec/ wrote into coded leaves.
#include <gtest/gtest.h>

#include "coded_cases.h"

namespace kvbm::device::planes_kernel_test {
namespace {

using codec::Element;

constexpr uint64_t kSeed = 20261122;
constexpr Element kElements[] = {Element::bytes, Element::bf16,     Element::fp16,
                                 Element::fp32,  Element::fp8_e4m3, Element::int8};

bool turned(Element element) {
  return element == Element::bf16 || element == Element::fp16 || element == Element::fp32;
}

// Returns byte p of each element, turned left by one bit, as plane p; then the bytes behind the last whole element.
Bytes planes_of(Element element, ConstBytes raw) {
  const size_t width = codec::element_bytes(element);
  const size_t count = raw.size() / width;
  Bytes out(raw.begin(), raw.end());
  for (size_t i = 0; i < count; ++i) {
    uint64_t v = 0;
    for (size_t p = 0; p < width; ++p) v |= std::to_integer<uint64_t>(raw[i * width + p]) << (8 * p);
    if (turned(element)) v = v << 1 | v >> (8 * width - 1);
    for (size_t p = 0; p < width; ++p) out[p * count + i] = static_cast<std::byte>(v >> (8 * p));
  }
  return out;
}

struct Case {
  Element element;
  Bytes raw;
  uint32_t piece = 0;
  uint32_t gap = 0;
  uint32_t shift = 0;
};

std::vector<Case> cases() {
  SeededRandom random(kSeed);
  std::vector<Case> all;
  for (const Element element : kElements) {
    for (const size_t bytes : {1, 2, 3, 15, 16, 17, 64, 255, 256, 512, 1000, 1022, 4096, 4097, 4098, 6144, 65536}) {
      Bytes raw(bytes);
      random.fill(raw);
      all.push_back({element, raw});
    }
    for (const uint32_t piece : {1U, 2U, 4U, 6U, 8U, 16U, 128U, 512U}) {
      Bytes raw(6144);
      random.fill(raw);
      all.push_back(
          {element, raw, piece, static_cast<uint32_t>(random.below(40)), static_cast<uint32_t>(random.below(16))});
    }
  }
  return all;
}

std::vector<CodedLeaf> leaves_of(const std::vector<Case>& all, bool planes_given) {
  std::vector<CodedLeaf> leaves;
  for (const Case& c : all) {
    leaves.emplace_back(planes_given ? Block(planes_of(c.element, c.raw)) : Block(c.raw.size()),
                        static_cast<uint32_t>(c.raw.size()), c.piece, c.gap, c.shift);
    leaves.back().job.element = static_cast<uint32_t>(c.element);
    if (!planes_given) leaves.back().set_plain(c.raw);
  }
  return leaves;
}

TEST(PlanesKernel, leaves_are_split_as_the_format_says) {
  const std::vector<Case> all = cases();
  for (const uint64_t seed : {0, 1, 2}) {
    const std::vector<CodedLeaf> leaves = leaves_of(all, false);
    const auto results = run_coded("kvbm_split_planes", leaves, {3, seed, false, true});
    for (size_t i = 0; i < all.size(); ++i) {
      const Bytes want = planes_of(all[i].element, all[i].raw);
      EXPECT_EQ(kCodedOk, results[i].status);
      EXPECT_EQ(codec::leaf_hash(all[i].raw), results[i].hash) << i;
      EXPECT_TRUE(std::equal(want.begin(), want.end(), leaves[i].coded.data())) << i;
      EXPECT_TRUE(leaves[i].plain() == all[i].raw && leaves[i].is_untouched()) << i;
    }
  }
}

TEST(PlanesKernel, planes_are_merged_back) {
  const std::vector<Case> all = cases();
  for (const uint64_t seed : {0, 3}) {
    const std::vector<CodedLeaf> leaves = leaves_of(all, true);
    const auto results = run_coded("kvbm_merge_planes", leaves, {2, seed, false, false});
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(kCodedOk, results[i].status);
      EXPECT_EQ(codec::leaf_hash(all[i].raw), results[i].hash) << i;
      EXPECT_TRUE(leaves[i].plain() == all[i].raw && leaves[i].is_untouched()) << i;
    }
  }
}

TEST(PlanesKernel, a_wrong_hash_spoils_what_was_merged) {
  const std::vector<Case> all = cases();
  std::vector<CodedLeaf> leaves = leaves_of(all, true);
  for (size_t i = 0; i < all.size(); ++i) {
    leaves[i].job.leaf.flags |= kJobChecked;
    leaves[i].job.leaf.expected = codec::leaf_hash(all[i].raw) ^ (i % 2);
  }
  const auto results = run_coded("kvbm_merge_planes", leaves, {2, 5, false, false});
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(i % 2 == 0 ? kCodedOk : kCodedWrongHash, results[i].status);
    EXPECT_TRUE(i % 2 == 0 ? leaves[i].plain() == all[i].raw : leaves[i].is_poisoned());
    EXPECT_TRUE(leaves[i].is_untouched());
  }
}

// The lower bytes in planar leaves are those planes, as codec/ writes them.
TEST(PlanesKernel, the_lower_planes_are_those_of_planar_leaves) {
  for (const Element element : {Element::bf16, Element::fp16, Element::fp32}) {
    const Bytes raw = real_values(element, 0, 4096);
    const auto stored = coded_leaf({element, 64, 16}, codec::Mode::standard, raw, codec::LeafCodec::planar);
    ASSERT_TRUE(stored);
    std::vector<CodedLeaf> leaves;
    leaves.emplace_back(Block(raw.size()), static_cast<uint32_t>(raw.size()));
    leaves[0].job.element = static_cast<uint32_t>(element);
    leaves[0].set_plain(raw);
    run_coded("kvbm_split_planes", leaves, {1, 0, false, true});
    // All values are in whole blocks, so the leaf ends with the lower planes, up to zeros.
    const size_t lower = raw.size() - 4096;
    const auto* const end = stored->data() + stored->size();
    EXPECT_TRUE(std::equal(end - lower, end, leaves[0].coded.data())) << static_cast<int>(element);
  }
}

}  // namespace
}  // namespace kvbm::device::planes_kernel_test
