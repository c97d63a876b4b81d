#include "codec/lossy/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "codec/coded/leaf_codec.h"
#include "codec/lossy/quantize_kernel.h"
#include "codec/lossy/quantize_number.h"
#include "support/lossy_leaves.h"

namespace kvbm::codec::quantize_test {
namespace {

using test::lose;
using test::Lost;
using test::made_leaf;

constexpr uint64_t kSeed = 20261122;
constexpr Mode kModes[] = {Mode::fp8_e4m3, Mode::fp8_e5m2,   Mode::int8,       Mode::int6,
                           Mode::int4,     Mode::int8_coded, Mode::int6_coded, Mode::int4_coded};
constexpr Element kFloats[] = {Element::bf16, Element::fp16, Element::fp32};

struct Form {
  uint32_t row;
  uint32_t rows;
  size_t values;
};
// Whole heads, cut heads, rows that share groups of 64 with others, forms that are not known.
constexpr Form kForms[] = {{64, 256, 32768},
                           {64, 16, 3072},
                           {128, 32, 16384},
                           {80, 16, 10240},
                           {96, 64, 15000},
                           {33, 40, 4000},
                           {576, 12, 13824},
                           {8, 100, 1700},
                           {64, 100, 32000},
                           {1000, 9, 18001},
                           {0, 0, 5000},
                           {64, 0, 6400},
                           {5000, 2, 10000},
                           {64, 16, 1025},
                           {192, 10, 7777},
                           // More rows than one scale serves: in one head, an incomplete head, and heads that can and
                           // cannot be cut into equal parts.
                           {64, 512, 32768},
                           {64, 300, 19300},
                           {32, 400, 25600},
                           {16, 331, 10592}};

class Kernels : public ::testing::Test {
 protected:
  void TearDown() override { force_quantize_kernel(nullptr); }
};
using Quantize = Kernels;

TEST_F(Quantize, error_of_a_real_cache_stays_below_what_each_number_allows) {
  const auto cache = test::real_cache(KVBM_TEST_DATA);
  if (cache.empty()) GTEST_SKIP() << "no sample of a cache";
  constexpr size_t kPlane = 3 * 16 * 64 * 2;
  // Bounds of the error by mode, for K and V. There are lower bounds too, because an error that is too small shows a
  // broken test.
  constexpr struct {
    Mode mode;
    double most;
    double ratio;
  } kBounds[] = {{Mode::int8, 6e-5, 1.74},      {Mode::int6, 1e-3, 2.2},      {Mode::int4, 2e-2, 3.0},
                 {Mode::fp8_e4m3, 1e-3, 1.74},  {Mode::fp8_e5m2, 4e-3, 1.74}, {Mode::int8_coded, 6e-5, 1.65},
                 {Mode::int6_coded, 1e-3, 2.1}, {Mode::int4_coded, 2e-2, 2.9}};
  for (const auto& bound : kBounds) {
    double difference = 0;
    double value = 0;
    size_t stored = 0;
    for (size_t at = 0; at < cache.size(); at += kPlane) {
      const Lost lost = lose({Element::bf16, 64, 16}, bound.mode, {cache.data() + at, kPlane});
      ASSERT_EQ(LeafCodec::quantized, lost.encoded.codec);
      ASSERT_FALSE(lost.decoded.empty());
      ASSERT_TRUE(lost.encoded.lossy);
      EXPECT_NEAR(lost.encoded.difference, lost.difference, 1e-5 * lost.difference);
      EXPECT_NEAR(lost.encoded.value, lost.value, 1e-5 * lost.value);
      difference += lost.difference;
      value += lost.value;
      stored += lost.stored.size();
    }
    EXPECT_LT(difference / value, bound.most) << mode_name(bound.mode);
    EXPECT_GT(difference / value, bound.most / 50) << mode_name(bound.mode);
    EXPECT_GT(static_cast<double>(cache.size()) / static_cast<double>(stored), bound.ratio) << mode_name(bound.mode);
  }
}

TEST_F(Quantize, every_form_comes_back_within_half_a_step_of_the_largest_of_all) {
  for (const Element element : kFloats) {
    for (const Form& form : kForms) {
      const auto raw =
          made_leaf(element, std::min(form.values, kMaxLeafBytes / test::bytes_of(element)), form.row, kSeed);
      for (const Mode mode : kModes) {
        const Lost lost = lose({element, form.row, form.rows}, mode, raw);
        SCOPED_TRACE(::testing::Message() << mode_name(mode) << " row " << form.row << " rows " << form.rows);
        ASSERT_EQ(raw.size(), lost.decoded.size());
        ASSERT_EQ(LeafCodec::quantized, lost.encoded.codec);
        const double levels = mode == Mode::int4 || mode == Mode::int4_coded   ? 7.4
                              : mode == Mode::int6 || mode == Mode::int6_coded ? 31
                              : mode == Mode::int8 || mode == Mode::int8_coded ? 127
                              : mode == Mode::fp8_e4m3                         ? 14
                                                                               : 7;
        double most = 0;
        double worst = 0;
        for (size_t i = 0; i < raw.size() / test::bytes_of(element); ++i) {
          const double x = test::value_at(element, raw.data(), i);
          most = std::max(most, std::abs(x));
          worst = std::max(worst, std::abs(x - test::value_at(element, lost.decoded.data(), i)));
        }
        EXPECT_LE(worst, most / levels * 0.51 + most / 250);
      }
    }
  }
}

TEST_F(Quantize, kernels_give_the_same_bytes_both_ways) {
  if (avx512_quantize_kernel() == nullptr) GTEST_SKIP() << "this machine has one kernel only";
  for (const Element element : kFloats) {
    for (const Form& form : kForms) {
      const auto raw =
          made_leaf(element, std::min(form.values, kMaxLeafBytes / test::bytes_of(element)), form.row, kSeed);
      for (const Mode mode : kModes) {
        SCOPED_TRACE(::testing::Message() << mode_name(mode) << " row " << form.row << " rows " << form.rows);
        ASSERT_TRUE(force_quantize_kernel("avx512"));
        const Lost fast = lose({element, form.row, form.rows}, mode, raw);
        ASSERT_TRUE(force_quantize_kernel("portable"));
        const Lost plain = lose({element, form.row, form.rows}, mode, raw);
        ASSERT_EQ(plain.stored, fast.stored);
        ASSERT_EQ(plain.decoded, fast.decoded);
        EXPECT_EQ(plain.encoded.difference, fast.encoded.difference);
        EXPECT_EQ(plain.encoded.value, fast.encoded.value);
      }
    }
  }
}

TEST_F(Quantize, an_infinity_or_nan_anywhere_leaves_the_leaf_exact) {
  constexpr uint16_t kBad[] = {0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x7F81};
  for (const char* kernel : {"portable", "avx512"}) {
    if (!force_quantize_kernel(kernel)) continue;
    for (const size_t at : {0U, 63U, 1000U, 3071U}) {
      for (const uint16_t bad : kBad) {
        for (const Mode mode : kModes) {
          auto raw = made_leaf(Element::bf16, 3072, 64, kSeed);
          store_le(raw.data() + 2 * at, bad);
          const Lost lost = lose({Element::bf16, 64, 16}, mode, raw);
          EXPECT_NE(LeafCodec::quantized, lost.encoded.codec);
          EXPECT_FALSE(lost.encoded.lossy);
          EXPECT_EQ(raw, lost.decoded);
        }
      }
    }
  }
}

TEST_F(Quantize, numbers_too_large_or_too_small_leave_the_leaf_exact) {
  for (const uint32_t bad : {0x7F7FFFFFU, 0x59000001U, 0x00000001U, 0x26000000U}) {
    std::vector<std::byte> raw(4096, std::byte{0});
    store_le(raw.data() + 512, bad);
    const Lost lost = lose({Element::fp32, 64, 16}, Mode::int8, raw);
    EXPECT_NE(LeafCodec::quantized, lost.encoded.codec);
    EXPECT_EQ(raw, lost.decoded);
  }
  auto half = made_leaf(Element::fp16, 2048, 64, kSeed);
  store_le<uint16_t>(half.data() + 100, 0x7BFF);  // 65504: rounding up its scale would make it infinite
  EXPECT_EQ(half, lose({Element::fp16, 64, 32}, Mode::int8, half).decoded);
}

TEST_F(Quantize, denormals_and_zeros_become_zeros_beside_larger_values) {
  for (const char* kernel : {"portable", "avx512"}) {
    if (!force_quantize_kernel(kernel)) continue;
    auto raw = made_leaf(Element::bf16, 4096, 64, kSeed);
    for (size_t row = 0; row < 32; ++row) store_le<uint16_t>(raw.data() + 2 * (row * 64 + 3), 0);  // a channel of zeros
    store_le<uint16_t>(raw.data() + 2 * 64, 0x0001);
    store_le<uint16_t>(raw.data() + 2 * 65, 0x807F);
    store_le<uint16_t>(raw.data() + 2 * 66, 0x8000);
    for (const Mode mode : kModes) {
      const Lost lost = lose({Element::bf16, 64, 32}, mode, raw);
      ASSERT_EQ(LeafCodec::quantized, lost.encoded.codec);
      for (size_t i = 64; i < 67; ++i) EXPECT_EQ(0.0, test::value_at(Element::bf16, lost.decoded.data(), i));
      for (size_t row = 0; row < 32; ++row) {
        EXPECT_EQ(0, load_le<uint16_t>(lost.decoded.data() + 2 * (row * 64 + 3)));
      }
    }
    const std::vector<std::byte> zeros(8192, std::byte{0});
    for (const Mode mode : kModes) {
      const Lost lost = lose({Element::bf16, 64, 32}, mode, zeros);
      EXPECT_EQ(zeros, lost.decoded);
      EXPECT_EQ(0.0, lost.encoded.difference);
    }
  }
}

TEST_F(Quantize, every_size_comes_back_whole) {
  for (size_t bytes = 1; bytes < 1400; bytes += bytes < 300 ? 1 : 37) {
    auto raw = made_leaf(Element::bf16, 700, 64, kSeed);
    raw.resize(bytes);
    for (const Mode mode : {Mode::int8, Mode::int6_coded, Mode::fp8_e4m3}) {
      const Lost lost = lose({Element::bf16, 64, 16}, mode, raw);
      ASSERT_EQ(bytes, lost.decoded.size());
      if (bytes % 2 != 0) {
        EXPECT_NE(LeafCodec::quantized, lost.encoded.codec);
        EXPECT_EQ(raw, lost.decoded);
      }
    }
  }
}

TEST_F(Quantize, other_elements_are_never_lossy) {
  const auto raw = made_leaf(Element::bf16, 4096, 64, kSeed);
  for (const Element element : {Element::bytes, Element::fp8_e4m3, Element::fp8_e5m2, Element::int8}) {
    for (const Mode mode : kModes) {
      const Lost lost = lose({element, 64, 16}, mode, raw);
      EXPECT_FALSE(lost.encoded.lossy);
      EXPECT_EQ(raw, lost.decoded);
    }
  }
}

// README.md, "Quantised leaves", byte by byte: one row of 64 values, all of them 2 but one -1 and one 0.
TEST_F(Quantize, bytes_are_those_of_the_format) {
  std::vector<std::byte> raw(64 * 16 * 2);
  for (size_t i = 0; i < raw.size(); i += 2) store_le<uint16_t>(raw.data() + i, 0x4000);
  store_le<uint16_t>(raw.data() + 2, 0xBF80);
  store_le<uint16_t>(raw.data() + 4, 0);
  const Lost lost = lose({Element::bf16, 64, 16}, Mode::int8, raw);
  ASSERT_EQ(64U + 64 + 1024, lost.stored.size());  // scales of rows: 16, of equal worth and half the room
  EXPECT_EQ(18, load_le<uint8_t>(lost.stored.data() + 3));
  EXPECT_EQ(1, load_le<uint8_t>(lost.stored.data() + 32));
  // 2 / 127.49 is 0x3C807F25 and more; rounded up: 0x3C81, or 0.015747.
  EXPECT_EQ(0x3C81, load_le<uint16_t>(lost.stored.data() + 64));
  EXPECT_EQ(0, load_le<uint16_t>(lost.stored.data() + 64 + 32));
  EXPECT_EQ(127, load_le<int8_t>(lost.stored.data() + 128));
  EXPECT_EQ(-64, load_le<int8_t>(lost.stored.data() + 129));  // -63.5: ties to even
  EXPECT_EQ(0, load_le<int8_t>(lost.stored.data() + 130));
}

// A head of 512 rows, the first half of which is 64 times smaller: with one scale it would keep one bit or two.
TEST_F(Quantize, a_scale_serves_no_more_than_256_rows) {
  auto raw = made_leaf(Element::bf16, 32768, 64, kSeed);
  for (size_t i = 0; i < raw.size() / 2; i += 2) {
    const auto value = load_le<uint16_t>(raw.data() + i);
    store_le(raw.data() + i, static_cast<uint16_t>((value & 0x7F80) > 7 << 7 ? value - (6 << 7) : value & 0x8000));
  }
  const Lost lost = lose({Element::bf16, 64, 512}, Mode::int8, raw);
  ASSERT_EQ(64U + 2 * 64 * 2 + 32768, lost.stored.size());
  EXPECT_EQ(256U, load_le<uint32_t>(lost.stored.data() + 16));
  ASSERT_EQ(raw.size(), lost.decoded.size());
  double difference[2] = {};
  double value[2] = {};
  for (size_t i = 0; i < 32768; ++i) {
    const double x = test::value_at(Element::bf16, raw.data(), i);
    const double off = test::value_at(Element::bf16, lost.decoded.data(), i) - x;
    difference[i / 16384] += off * off;
    value[i / 16384] += x * x;
  }
  EXPECT_LT(difference[0] / value[0], 2 * difference[1] / value[1]);
}

TEST_F(Quantize, stored_bytes_never_change) {
  const auto raw = made_leaf(Element::bf16, 6144, 64, kSeed);
  constexpr uint64_t kHashes[] = {0x1408209c16805026, 0xa489995e4c2016b7, 0xad02f4b4340b1813, 0x91d29ca60ce51a23,
                                  0x1e3e21a528787253, 0x4b4849dbc15e117a, 0xdb5c8a6a79b0ada6, 0xeff07d862770003b};
  for (size_t i = 0; i < std::size(kModes); ++i) {
    const Lost lost = lose({Element::bf16, 64, 48}, kModes[i], raw);
    EXPECT_EQ(kHashes[i], leaf_hash(lost.stored))
        << mode_name(kModes[i]) << std::hex << " 0x" << leaf_hash(lost.stored);
  }
}

TEST_F(Quantize, small_floats_are_what_their_bits_say) {
  for (int code = 0; code < 256; ++code) {
    const int e4 = code >> 3 & 15;
    const int e5 = code >> 2 & 31;
    const double sign = code >= 128 ? -1 : 1;
    const double four = sign * (e4 == 0 ? std::ldexp(code & 7, -9) : std::ldexp(8 + (code & 7), e4 - 10));
    const double five = sign * (e5 == 0 ? std::ldexp(code & 3, -16) : std::ldexp(4 + (code & 3), e5 - 17));
    EXPECT_EQ(four, static_cast<double>(SmallFloat<3>::decode(static_cast<uint8_t>(code))));
    EXPECT_EQ(five, static_cast<double>(SmallFloat<2>::decode(static_cast<uint8_t>(code))));
    EXPECT_EQ(code, SmallFloat<3>::encode(SmallFloat<3>::decode(static_cast<uint8_t>(code))));
    EXPECT_EQ(code, SmallFloat<2>::encode(SmallFloat<2>::decode(static_cast<uint8_t>(code))));
  }
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const auto bits = static_cast<uint16_t>(half);
    if ((half & 0x7FFF) > 0x7C00) continue;
    EXPECT_EQ(test::float_of_half(bits), half_to_float(bits));
    EXPECT_EQ(bits, float_to_half(half_to_float(bits)));
  }
}

TEST_F(Quantize, every_changed_byte_of_head_and_scales_is_refused_or_harmless) {
  const auto raw = made_leaf(Element::bf16, 3072, 64, kSeed);
  Workspace workspace;
  for (const Mode mode : kModes) {
    const Lost lost = lose({Element::bf16, 64, 16}, mode, raw);
    for (size_t at = 0; at < std::min<size_t>(lost.stored.size(), 600); ++at) {
      for (const int flip : {1, 0x80, 0xFF}) {
        std::vector<std::byte> stored = lost.stored;
        stored[at] ^= static_cast<std::byte>(flip);
        std::vector<std::byte> back(raw.size());
        const Status status = decode_leaf(LeafCodec::quantized, stored, back, workspace);
        if (at < 64 && (at < 24 || at >= 33) && status.ok()) {
          EXPECT_TRUE(at == 3 || (at >= 12 && at < 20)) << at;  // another mode or form of the same size
        }
      }
    }
    for (size_t n = 0; n < lost.stored.size(); n += 64) {
      std::vector<std::byte> back(raw.size());
      EXPECT_FALSE(decode_leaf(LeafCodec::quantized, {lost.stored.data(), n}, back, workspace).ok());
    }
  }
}

}  // namespace
}  // namespace kvbm::codec::quantize_test
