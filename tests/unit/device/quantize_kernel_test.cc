// Compares kvbm_quantize and kvbm_dequantize, from their own source, with codec/lossy/quantize: bytes, scales, refusals
// and hashes.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "codec/lossy/quantize.h"
#include "codec/lossy/quantize_number.h"
#include "coded_cases.h"

namespace kvbm::device::quantize_kernel_test {
namespace {

using codec::Element;
using codec::LeafCodec;
using codec::LeafForm;
using codec::Mode;

constexpr uint64_t kSeed = 20261122;
constexpr Mode kModes[] = {Mode::fp8_e4m3, Mode::fp8_e5m2, Mode::int8, Mode::int6, Mode::int4};

// One leaf to quantise: its values, and their layout in device memory.
struct Values {
  LeafForm form;
  Mode mode = Mode::int8;
  Bytes raw;
  uint32_t piece = 0;
  uint32_t gap = 0;
  uint32_t shift = 0;
  [[nodiscard]] std::string what() const {
    return "element " + std::to_string(static_cast<int>(form.element)) + ", rows of " + std::to_string(form.row) +
           ", " + std::to_string(form.rows) + " a head, mode " + std::to_string(static_cast<int>(mode)) + ", " +
           std::to_string(raw.size()) + " bytes";
  }
};

// Result of the CPU; nothing if it refuses to quantise the leaf.
struct Quantized {
  std::optional<Bytes> stored;
  codec::Encoded encoded;
};
Quantized by_cpu(const Values& v) {
  static codec::Workspace workspace;
  Block room(codec::encode_room(v.raw.size()));
  const auto coded = codec::quantize_encode(v.form, v.mode, v.raw, room.span(), workspace);
  EXPECT_TRUE(coded.ok());
  if (!coded.ok() || coded.value().codec == LeafCodec::raw) return {};
  return {Bytes(room.data(), room.data() + coded.value().bytes), coded.value()};
}

// Quantises all leaves in one launch; returns how many were quantised.
size_t quantize_all(const std::vector<Values>& all, uint64_t seed) {
  std::vector<CodedLeaf> leaves;
  for (const Values& v : all) {
    const Block room(v.raw.size() / 64 * 64 + 64);
    leaves.emplace_back(Block(ConstBytes(room.span())), static_cast<uint32_t>(v.raw.size()), v.piece, v.gap, v.shift);
    CodedLeaf& leaf = leaves.back();
    leaf.set_plain(v.raw);
    leaf.job.element = static_cast<uint32_t>(v.form.element);
    leaf.job.mode = static_cast<uint32_t>(v.mode);
    leaf.job.row = v.form.row;
    leaf.job.rows = v.form.rows;
  }
  const auto results = run_coded("kvbm_quantize", leaves, {static_cast<uint32_t>(1 + seed % 3), seed, true, true});
  size_t done = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Quantized want = by_cpu(all[i]);
    EXPECT_TRUE(leaves[i].is_untouched() && leaves[i].plain() == all[i].raw) << all[i].what();
    EXPECT_EQ(want.stored ? kCodedOk : kCodedNoGain, results[i].status) << all[i].what();
    if (!want.stored || results[i].status != kCodedOk) continue;
    ++done;
    EXPECT_EQ(want.stored->size(), results[i].stored_bytes) << all[i].what();
    const auto* const made = leaves[i].coded.data();
    EXPECT_TRUE(std::equal(want.stored->begin(), want.stored->end(), made)) << all[i].what();
    EXPECT_EQ(codec::raw_hash_of(*want.stored), results[i].hash);
    EXPECT_NEAR(want.encoded.difference, results[i].difference, 1e-4 * want.encoded.difference + 1e-30)
        << all[i].what();
    EXPECT_NEAR(want.encoded.value, results[i].value, 1e-4 * want.encoded.value + 1e-30) << all[i].what();
  }
  return done;
}

TEST(QuantizeKernel, values_of_all_magnitudes_give_the_cpus_bytes) {
  std::vector<Values> all;
  SeededRandom random(kSeed);
  for (const Element element : kFloats) {
    for (const Mode mode : kModes) {
      Values v{{element, 64, 0}, mode, {}};
      for (int i = 0; i < 8192; ++i) {
        // Small multiples of powers of two, so that there are ties.
        const float x =
            std::ldexp(static_cast<float>(random.below(4096)) - 2048.0F, -static_cast<int>(random.below(20)));
        const size_t at = v.raw.size();
        v.raw.resize(at + codec::element_bytes(element));
        if (element == Element::fp32) codec::write_value<Element::fp32>(v.raw.data() + at, 0, x);
        if (element == Element::fp16) codec::write_value<Element::fp16>(v.raw.data() + at, 0, x);
        if (element == Element::bf16) codec::write_value<Element::bf16>(v.raw.data() + at, 0, x);
      }
      all.push_back(std::move(v));
    }
  }
  EXPECT_EQ(all.size(), quantize_all(all, 3));
}

TEST(QuantizeKernel, every_half_up_to_the_largest_that_is_taken_gives_the_cpus_bytes) {
  std::vector<Values> all;
  for (const Mode mode : kModes) {
    for (const uint32_t sign : {0U, 0x8000U}) {
      Values v{{Element::fp16, 64, 0}, mode, Bytes(size_t{2} * 0x7800)};
      // Scattered, so that a channel has values of every magnitude.
      for (uint32_t i = 0; i < 0x7800; ++i)
        store_le(v.raw.data() + 2 * i, static_cast<uint16_t>(i * 7919 % 0x7800 | sign));
      all.push_back(std::move(v));
    }
  }
  EXPECT_EQ(all.size(), quantize_all(all, 1));
}

TEST(QuantizeKernel, real_leaves_of_every_form_give_the_cpus_bytes) {
  std::vector<Values> all;
  for (const Element element : kFloats) {
    for (const Mode mode : kModes) {
      // By rows: channels; few rows, where rows are weighed against channels; fewer; an unknown number of rows; rows of
      // 80 and of 576 values.
      for (const LeafForm& form : {LeafForm{element, 64, 256},
                                   {element, 64, 16},
                                   {element, 64, 8},
                                   {element, 64, 5},
                                   {element, 0, 0},
                                   {element, 80, 16},
                                   {element, 576, 16},
                                   {element, 7, 9},
                                   {element, 5000, 3}}) {
        const size_t count = form.rows == 256 ? 16384 : 3072;
        all.push_back({form, mode, real_values(element, 6144, count)});
      }
    }
  }
  EXPECT_GT(quantize_all(all, 7), 100U);
}

// The choice selects both kinds of scales, for K and V of the sample.
TEST(QuantizeKernel, the_choice_between_channels_and_rows_is_the_cpus) {
  std::vector<Values> all;
  size_t by_row = 0;
  for (size_t leaf = 0; leaf < 60; ++leaf)
    all.push_back({{Element::bf16, 64, 16}, Mode::int8, real_values(Element::bf16, leaf * 3072, 3072)});
  for (const Values& v : all) {
    const auto stored = by_cpu(v).stored;
    ASSERT_TRUE(stored);
    by_row += (*stored)[32] == std::byte{1};
  }
  EXPECT_GT(by_row, 10U);
  EXPECT_LT(by_row, 50U);
  EXPECT_EQ(all.size(), quantize_all(all, 5));
}

TEST(QuantizeKernel, made_leaves_of_any_form_and_place_give_the_cpus_bytes) {
  SeededRandom random(kSeed);
  std::vector<Values> all;
  for (int trial = 0; trial < 150; ++trial) {
    const Element element = kFloats[random.below(std::size(kFloats))];
    const auto width = static_cast<uint32_t>(codec::element_bytes(element));
    const auto row = static_cast<uint32_t>(random.below(8) == 0 ? random.below(5000) : random.below(200));
    const auto rows = static_cast<uint32_t>(random.below(80));
    const auto values = static_cast<uint32_t>(1 + random.below(6000));
    Values v{{element, row, rows},
             kModes[random.below(std::size(kModes))],
             test::made_leaf(element, values, row, random.next())};
    // Pieces of any divisor, at any place.
    for (const uint32_t n : {3U, 4U, 6U, 16U, 48U}) {
      if (random.below(3) == 0 && v.raw.size() % n == 0) v.piece = static_cast<uint32_t>(v.raw.size()) / n;
    }
    v.gap = static_cast<uint32_t>(random.below(4)) * (random.below(2) == 0 ? 16 : width);
    v.shift = random.below(2) == 0 ? 0 : width * static_cast<uint32_t>(random.below(8));
    all.push_back(std::move(v));
  }
  EXPECT_GT(quantize_all(all, 4), 100U);
}

// One head that is cut into two equal parts, and one into unequal parts. Two heads that are cut, and two that have no
// equal parts.
TEST(QuantizeKernel, heads_of_many_rows_are_cut_as_by_the_cpu) {
  std::vector<Values> all;
  size_t cut = 0;
  for (const auto& [row, rows, heads] :
       {std::array{64U, 512U, 1U}, {16U, 1000U, 1U}, {32U, 300U, 2U}, {16U, 300U, 2U}}) {
    all.push_back(
        {{Element::bf16, row, rows}, Mode::int8, test::made_leaf(Element::bf16, row * rows * heads, row, rows)});
    const auto stored = by_cpu(all.back()).stored;
    ASSERT_TRUE(stored);
    cut += load_le<uint32_t>(stored->data() + 16) < rows ? 1 : 0;
  }
  EXPECT_EQ(3U, cut);
  EXPECT_EQ(all.size(), quantize_all(all, 2));
}

TEST(QuantizeKernel, what_cannot_be_quantised_is_refused_as_by_the_cpu) {
  std::vector<Values> all;
  for (const Element element : kFloats) {
    for (const uint32_t rows : {64U, 16U, 4U}) {
      const Bytes good = test::made_leaf(element, 4096, 64, kSeed);
      const auto with = [&](uint32_t bf16_bits) {
        Bytes raw = good;
        const float x = std::bit_cast<float>(bf16_bits << 16);
        if (element == Element::fp32) store_le(raw.data() + 4 * 1111, std::bit_cast<uint32_t>(x));
        if (element == Element::bf16) store_le(raw.data() + 2 * 1111, static_cast<uint16_t>(bf16_bits));
        if (element == Element::fp16) {
          store_le(raw.data() + 2 * 1111, static_cast<uint16_t>(std::isnan(x) ? 0x7E01 : codec::float_to_half(x)));
        }
        all.push_back({{element, 64, rows}, Mode::int8, raw});
      };
      for (const uint32_t bits : {0x7F80U, 0xFF80U, 0x7FC0U, 0x7F81U, 0xFFC1U, 0x5900U, 0x4700U, 0x4701U, 0x7F00U})
        with(bits);
      // A whole unit that is tiny, of denormals, or zero of both signs.
      for (const uint16_t bits :
           {uint16_t{0}, uint16_t{0x8000}, uint16_t{1}, uint16_t{0x807F}, uint16_t{0x2680}, uint16_t{0x2600}}) {
        Bytes raw = good;
        for (size_t i = 0; i < 4096; ++i) {
          if (i % 64 != 5 && i / 64 != 3) continue;
          if (element == Element::fp32) store_le(raw.data() + 4 * i, static_cast<uint32_t>(bits) << 16);
          if (element != Element::fp32) store_le(raw.data() + 2 * i, bits);
        }
        all.push_back({{element, 64, rows}, Mode::fp8_e4m3, raw});
      }
    }
    all.push_back({{element, 64, 64}, Mode::int8, test::made_leaf(element, 8, 64, 1)});  // too short to gain
    all.push_back({{element, 3, 2}, Mode::int8, test::made_leaf(element, 4096, 3, 1)});  // neither kind of unit
    Bytes odd = test::made_leaf(element, 4096, 64, 2);
    odd.push_back(std::byte{1});
    all.push_back({{element, 64, 64}, Mode::int8, odd});
  }
  all.push_back({{Element::fp8_e4m3, 64, 64}, Mode::int8, real_values(Element::fp8_e4m3, 0, 4096)});
  const size_t done = quantize_all(all, 2);
  EXPECT_GT(done, 20U);
  EXPECT_GT(all.size() - done, 50U);
}

TEST(QuantizeKernel, modes_with_an_entropy_stage_and_no_memory_are_left_to_the_cpu) {
  std::vector<CodedLeaf> leaves;
  const Bytes raw = real_values(Element::bf16, 0, 4096);
  for (const uint32_t mode : {21U, 22U, 23U, 24U, 1U, 0U}) {
    leaves.emplace_back(Block(raw.size()), static_cast<uint32_t>(raw.size()));
    leaves.back().set_plain(raw);
    leaves.back().job.element = 1;
    leaves.back().job.mode = mode;
    leaves.back().job.row = 64;
  }
  for (const CodedResult& result : run_coded("kvbm_quantize", leaves, {1, 0, true, true}))
    EXPECT_EQ(kCodedElsewhere, result.status);
  for (CodedLeaf& leaf : leaves) leaf.job.mode = 18;
  for (const CodedResult& result : run_coded("kvbm_quantize", leaves, {1, 0, false, true}))
    EXPECT_EQ(kCodedElsewhere, result.status);
  // The given space is less than the leaf takes. Nothing behind it may be written, which run_coded would report.
  std::vector<CodedLeaf> small;
  small.emplace_back(Block(1024), static_cast<uint32_t>(raw.size()));
  small.back().set_plain(raw);
  small.back().job.element = 1;
  small.back().job.mode = 18;
  small.back().job.row = 64;
  EXPECT_EQ(kCodedElsewhere, run_coded("kvbm_quantize", small, {1, 0, true, true})[0].status);
}

struct Stored {
  Bytes bytes;
  uint32_t raw_bytes = 0;
  std::string what;
};
using Ends = std::array<size_t, 6>;

Ends dequantize_all(const std::vector<Stored>& all, uint64_t seed) {
  std::vector<CodedLeaf> leaves;
  for (const Stored& s : all) leaves.emplace_back(Block(s.bytes), s.raw_bytes);
  const auto results = run_coded("kvbm_dequantize", leaves, {static_cast<uint32_t>(1 + seed % 4), seed});
  Ends ends{};
  for (size_t i = 0; i < all.size(); ++i) {
    const Reference want = reference(LeafCodec::quantized, all[i].bytes, all[i].raw_bytes);
    if (results[i].status < ends.size()) ++ends[results[i].status];
    if (results[i].status == kCodedElsewhere) {
      // A mode with an entropy stage: the leaf is poison until the CPU has decoded it.
      EXPECT_TRUE(all[i].bytes[3] >= std::byte{21} && all[i].bytes[3] <= std::byte{23} && leaves[i].is_poisoned())
          << all[i].what;
      continue;
    }
    expect_like(want, leaves[i], results[i], all[i].what);
  }
  return ends;
}

std::vector<Stored> quantized_leaves() {
  std::vector<Stored> all;
  for (const Element element : kFloats) {
    for (const Mode mode : kModes) {
      for (const LeafForm& form :
           {LeafForm{element, 64, 16}, {element, 64, 64}, {element, 0, 0}, {element, 80, 7}, {element, 96, 33}}) {
        for (const size_t values : {size_t{3072}, size_t{4001}}) {
          const Values v{form, mode, real_values(element, 100, values)};
          const auto stored = by_cpu(v).stored;
          if (stored) all.push_back({*stored, static_cast<uint32_t>(v.raw.size()), v.what()});
        }
      }
    }
  }
  return all;
}

TEST(DequantizeKernel, quantised_leaves_decode_to_the_cpus_bytes) {
  const std::vector<Stored> all = quantized_leaves();
  EXPECT_GT(all.size(), 120U);
  for (const uint64_t seed : {0, 2}) EXPECT_EQ(all.size(), dequantize_all(all, seed)[kCodedOk]);
}

TEST(DequantizeKernel, every_byte_of_numbers_and_every_scale_decodes_as_on_the_cpu) {
  std::vector<Stored> all;
  SeededRandom random(kSeed);
  for (const Stored& good : quantized_leaves()) {
    Stored one = good;
    const size_t numbers = one.bytes.size() - 1024;
    for (size_t i = numbers; i < one.bytes.size(); ++i) one.bytes[i] = static_cast<std::byte>(i * 37);
    for (size_t u = 64; u + 1 < 160; u += 2) {
      store_le(one.bytes.data() + u,
               static_cast<uint16_t>((60U << 7) + random.below(((53U + 127U) << 7) - (60U << 7) + 1)));
    }
    const Reference r = reference(LeafCodec::quantized, one.bytes, one.raw_bytes);
    if (r.code == Code::ok) store_le(one.bytes.data() + codec::kFrameRawHashAt, r.hash);
    all.push_back(one);
  }
  EXPECT_GT(dequantize_all(all, 1)[kCodedOk], all.size() / 2);
}

TEST(DequantizeKernel, damage_is_refused_as_by_the_cpu) {
  SeededRandom random(kSeed);
  std::vector<Stored> all;
  for (const Stored& good : quantized_leaves()) {
    for (int i = 0; i < 15; ++i) {
      Stored bad = good;
      for (uint64_t c = 0; c < 1 + random.below(2); ++c) {
        const size_t at = random.below(random.below(3) != 0 ? 100 : bad.bytes.size());
        bad.bytes[at] = random.below(2) == 0 ? bad.bytes[at] ^ static_cast<std::byte>(1U << random.below(8))
                                             : static_cast<std::byte>(random.below(40));
      }
      if (random.below(8) == 0) bad.bytes.resize(random.below(bad.bytes.size() + 1));
      if (random.below(8) == 0) bad.raw_bytes = static_cast<uint32_t>(1 + random.below(codec::kMaxLeafBytes));
      if (random.below(3) == 0 && bad.bytes.size() >= codec::kFrameBytes) {
        bad.bytes.resize(bad.bytes.size() / 64 * 64);
        store_le(bad.bytes.data() + 4, bad.raw_bytes);
        store_le(bad.bytes.data() + 8, static_cast<uint32_t>(bad.bytes.size()));
      }
      all.push_back(std::move(bad));
    }
  }
  const Ends ends = dequantize_all(all, 6);
  EXPECT_GT(ends[kCodedDamaged], 500U);
  EXPECT_GT(ends[kCodedWrongHash], 60U);
  EXPECT_GT(ends[kCodedNewer], 10U);
}

TEST(DequantizeKernel, pieces_and_expected_hashes_are_kept_to) {
  const Values v{{Element::bf16, 64, 16}, Mode::int8, real_values(Element::bf16, 0, 3072)};
  const Bytes stored = by_cpu(v).stored.value();
  const Reference want = reference(LeafCodec::quantized, stored, v.raw.size());
  std::vector<CodedLeaf> leaves;
  for (const uint32_t piece : {2U, 6U, 8U, 96U, 128U, 512U, 2048U}) {
    for (const uint32_t gap : {0U, 1U, 8U, 64U}) {
      leaves.emplace_back(Block(stored), static_cast<uint32_t>(v.raw.size()), piece, gap, gap);
      leaves.back().job.leaf.flags |= kJobChecked;
      leaves.back().job.leaf.expected = want.hash;
    }
  }
  leaves.back().job.leaf.expected ^= 1;
  const auto results = run_coded("kvbm_dequantize", leaves, {2, 8});
  for (size_t i = 0; i + 1 < leaves.size(); ++i) expect_like(want, leaves[i], results[i], std::to_string(i));
  EXPECT_EQ(kCodedWrongHash, results.back().status);
  EXPECT_TRUE(leaves.back().is_poisoned() && leaves.back().is_untouched());
}

}  // namespace
}  // namespace kvbm::device::quantize_kernel_test
