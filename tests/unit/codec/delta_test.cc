#include "codec/lossy/delta.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "codec/coded/leaf_codec.h"
#include "codec/lossy/quantize.h"
#include "codec/lossy/quantize_kernel.h"
#include "support/lossy_leaves.h"

namespace kvbm::codec::delta_test {
namespace {

using test::lose;
using test::Lost;
using test::made_leaf;

constexpr uint64_t kSeed = 20261122;

struct Kernel {
  explicit Kernel(const char* name) : available(force_quantize_kernel(name)) {}
  ~Kernel() { force_quantize_kernel(nullptr); }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  bool available;
};

// Tokens with values that drift slowly, which is the case that differences are for.
std::vector<std::byte> drifting_leaf(uint32_t heads, uint32_t rows, uint32_t row, uint64_t seed) {
  const auto noise = made_leaf(Element::fp32, size_t{heads} * rows * row, row, seed);
  std::vector<std::byte> out(noise.size() / 2);
  for (uint32_t h = 0; h < heads; ++h) {
    for (uint32_t c = 0; c < row; ++c) {
      float x = 4;
      for (uint32_t r = 0; r < rows; ++r) {
        const size_t i = (size_t{h} * rows + r) * row + c;
        x += std::bit_cast<float>(load_le<uint32_t>(noise.data() + 4 * i)) * 0.02F;
        store_le(out.data() + 2 * i, static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16));
      }
    }
  }
  return out;
}

TEST(Delta, tokens_that_drift_take_less_room_than_with_four_bits_and_lose_less) {
  const auto raw = drifting_leaf(2, 256, 64, kSeed);
  const Lost delta = lose({Element::bf16, 64, 256}, Mode::delta, raw);
  const Lost four = lose({Element::bf16, 64, 256}, Mode::int4_coded, raw);
  ASSERT_EQ(LeafCodec::delta, delta.encoded.codec);
  ASSERT_EQ(raw.size(), delta.decoded.size());
  EXPECT_LT(delta.relative(), four.relative());
  EXPECT_LT(delta.relative(), 1e-3);
  EXPECT_NEAR(delta.encoded.difference, delta.difference, 1e-4 * delta.difference);
  EXPECT_NEAR(delta.encoded.value, delta.value, 1e-4 * delta.value);
}

TEST(Delta, later_layers_lose_more_and_take_less_room) {
  const auto raw = made_leaf(Element::bf16, 32768, 64, kSeed);
  Lost last;
  for (uint8_t depth = 0; depth < 3; ++depth) {
    Lost lost = lose({Element::bf16, 64, 256, depth}, Mode::delta, raw);
    ASSERT_EQ(LeafCodec::delta, lost.encoded.codec);
    ASSERT_EQ(raw.size(), lost.decoded.size());
    if (depth > 0) {
      EXPECT_LT(lost.stored.size(), last.stored.size());
      EXPECT_GT(lost.difference, last.difference);
    }
    last = lost;
  }
  EXPECT_LT(last.relative(), 0.12);
}

TEST(Delta, every_form_comes_back_and_kernels_agree) {
  constexpr struct {
    uint32_t row;
    uint32_t rows;
    size_t values;
  } kForms[] = {{64, 256, 32768}, {128, 32, 16384}, {80, 48, 10240}, {33, 40, 4000},
                {576, 33, 20000}, {64, 100, 32000}, {8, 500, 8000},  {64, 0, 6400}};
  for (const Element element : {Element::bf16, Element::fp16, Element::fp32}) {
    for (const auto& form : kForms) {
      const size_t values = std::min(form.values, kMaxLeafBytes / test::bytes_of(element));
      const auto raw = made_leaf(element, values, form.row, kSeed);
      SCOPED_TRACE(::testing::Message() << "row " << form.row << " rows " << form.rows);
      const Lost lost = lose({element, form.row, form.rows}, Mode::delta, raw);
      ASSERT_EQ(raw.size(), lost.decoded.size());
      EXPECT_TRUE(lost.encoded.lossy);
      EXPECT_LT(lost.relative(), 0.03);
      const Kernel portable("portable");
      const Lost plain = lose({element, form.row, form.rows}, Mode::delta, raw);
      EXPECT_EQ(plain.stored, lost.stored);
      EXPECT_EQ(plain.decoded, lost.decoded);
    }
  }
}

TEST(Delta, outliers_come_back_as_near_as_a_step_of_them) {
  auto raw = made_leaf(Element::bf16, 32768, 64, kSeed);
  for (const size_t at : {64U * 13 + 7, 64U * 10 + 7, 64U * 255 + 7})
    store_le<uint16_t>(raw.data() + 2 * at, 0x44FA);  // 2000
  const Lost lost = lose({Element::bf16, 64, 256}, Mode::delta, raw);
  ASSERT_EQ(LeafCodec::delta, lost.encoded.codec);
  for (const size_t at : {64U * 13 + 7, 64U * 10 + 7, 64U * 255 + 7}) {
    EXPECT_NEAR(2000, test::value_at(Element::bf16, lost.decoded.data(), at), 20);
  }
}

TEST(Delta, few_tokens_become_numbers_of_four_bits) {
  const auto raw = made_leaf(Element::bf16, 3072, 64, kSeed);
  const Lost delta = lose({Element::bf16, 64, 16}, Mode::delta, raw);
  EXPECT_EQ(LeafCodec::quantized, delta.encoded.codec);
  EXPECT_EQ(lose({Element::bf16, 64, 16}, Mode::int4_coded, raw).stored, delta.stored);
}

TEST(Delta, what_is_not_a_number_leaves_the_leaf_exact) {
  constexpr uint16_t kBad[] = {0x7F80, 0xFFC0, 0x7F7F};
  for (const uint16_t bad : kBad) {
    auto raw = made_leaf(Element::bf16, 16384, 64, kSeed);
    store_le(raw.data() + 2 * 777, bad);
    const Lost lost = lose({Element::bf16, 64, 256}, Mode::delta, raw);
    EXPECT_FALSE(lost.encoded.lossy);
    EXPECT_EQ(raw, lost.decoded);
  }
}

TEST(Delta, zeros_and_denormals_come_back_as_zeros) {
  std::vector<std::byte> raw(65536, std::byte{0});
  EXPECT_EQ(raw, lose({Element::bf16, 64, 256}, Mode::delta, raw).decoded);
  auto some = made_leaf(Element::bf16, 16384, 64, kSeed);
  for (size_t r = 0; r < 256; ++r) store_le<uint16_t>(some.data() + 2 * (64 * r + 9), 0);
  const Lost lost = lose({Element::bf16, 64, 256}, Mode::delta, some);
  ASSERT_EQ(LeafCodec::delta, lost.encoded.codec);
  for (size_t r = 0; r < 256; ++r) EXPECT_EQ(0.0, test::value_at(Element::bf16, lost.decoded.data(), 64 * r + 9));
}

TEST(Delta, stored_bytes_never_change) {
  const auto raw = made_leaf(Element::bf16, 6144, 64, kSeed);
  const Lost lost = lose({Element::bf16, 64, 48, 1}, Mode::delta, raw);
  EXPECT_EQ(0x5fe72563e03cbf54U, leaf_hash(lost.stored)) << std::hex << " 0x" << leaf_hash(lost.stored);
}

TEST(Delta, a_damaged_leaf_is_refused_or_decodes_inside_its_bounds) {
  const auto raw = made_leaf(Element::bf16, 6144, 64, kSeed);
  const Lost lost = lose({Element::bf16, 64, 48}, Mode::delta, raw);
  ASSERT_EQ(LeafCodec::delta, lost.encoded.codec);
  Workspace workspace;
  std::vector<std::byte> back(raw.size());
  size_t refused = 0;
  for (size_t at = 0; at < lost.stored.size(); ++at) {
    std::vector<std::byte> stored = lost.stored;
    stored[at] ^= std::byte{0x41};
    refused += !decode_leaf(LeafCodec::delta, stored, back, workspace).ok();
  }
  EXPECT_GT(refused, 60U);
  for (size_t n = 0; n < lost.stored.size(); n += 64) {
    EXPECT_FALSE(decode_leaf(LeafCodec::delta, {lost.stored.data(), n}, back, workspace).ok());
  }
}

}  // namespace
}  // namespace kvbm::codec::delta_test
