// Compares kvbm_decode_planar, from its own source, with codec::decode_leaf: every element, mode and shape, and damaged
// leaves.
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "codec/coded/leaf_codec.h"
#include "coded_cases.h"

namespace kvbm::device::planar_kernel_test {
namespace {

using codec::Element;
using codec::LeafCodec;
using codec::LeafForm;
using codec::Mode;

constexpr uint64_t kSeed = 20261122;
constexpr Mode kModes[] = {Mode::fast, Mode::standard, Mode::max};

struct Stored {
  Bytes bytes;
  uint32_t raw_bytes = 0;
  std::string what;
};

// Number of leaves by CodedStatus.
using Ends = std::array<size_t, 6>;

// Decodes all leaves into contiguous memory.
Ends decode_all(const std::vector<Stored>& all, const CodedLaunch& launch) {
  Ends ends{};
  std::vector<CodedLeaf> leaves;
  for (const Stored& s : all) leaves.emplace_back(Block(s.bytes), s.raw_bytes);
  const auto results = run_coded("kvbm_decode_planar", leaves, launch);
  for (size_t i = 0; i < all.size(); ++i) {
    expect_like(reference(LeafCodec::planar, all[i].bytes, all[i].raw_bytes), leaves[i], results[i], all[i].what);
    if (results[i].status < ends.size()) ++ends[results[i].status];
  }
  return ends;
}

Stored stored(const LeafForm& form, Mode mode, const Bytes& raw) {
  const auto bytes = coded_leaf(form, mode, raw, LeafCodec::planar);
  const std::string what = "element " + std::to_string(static_cast<int>(form.element)) + ", mode " +
                           std::to_string(static_cast<int>(mode)) + ", " + std::to_string(raw.size()) + " bytes";
  return {bytes.value_or(Bytes()), static_cast<uint32_t>(raw.size()), what};
}

TEST(PlanarKernel, real_values_of_every_element_and_mode_come_back) {
  std::vector<Stored> all;
  for (const Element element : kPlanarElements) {
    const size_t width = codec::element_bytes(element);
    for (const Mode mode : kModes) {
      for (const size_t count : {size_t{1024} * (width == 1 ? 2 : 1), size_t{3072}, codec::kMaxLeafBytes / width}) {
        all.push_back(stored({element, 64, 16}, mode, real_values(element, 6144, count)));
        EXPECT_FALSE(all.back().bytes.empty()) << all.back().what;
      }
    }
  }
  for (const uint64_t seed : {0, 3}) decode_all(all, {static_cast<uint32_t>(1 + seed), seed});
}

TEST(PlanarKernel, rows_and_heads_of_any_shape_come_back) {
  SeededRandom random(kSeed);
  std::vector<Stored> all;
  for (int trial = 0; trial < 60; ++trial) {
    const Element element = kPlanarElements[random.below(std::size(kPlanarElements))];
    const size_t count = 1 + random.below(codec::kMaxLeafBytes / codec::element_bytes(element) / 2);
    Bytes raw = real_values(element, random.below(100000), count);
    for (uint64_t extra = random.below(codec::element_bytes(element)); extra > 0; --extra) raw.push_back(std::byte{1});
    const LeafForm form{element, static_cast<uint32_t>(random.below(300)), static_cast<uint32_t>(random.below(300))};
    const Stored one = stored(form, kModes[random.below(std::size(kModes))], raw);
    if (!one.bytes.empty()) all.push_back(one);
  }
  EXPECT_GT(all.size(), 40U);
  decode_all(all, {3, 5});
}

TEST(PlanarKernel, every_length_of_an_end_comes_back) {
  for (const Element element : kPlanarElements) {
    std::vector<Stored> all;
    for (size_t bytes = 3000; bytes < 3000 + 260; ++bytes) {
      Bytes raw = real_values(element, 5000 + bytes, bytes / codec::element_bytes(element) + 1);
      raw.resize(bytes);
      const Stored one = stored({element, 64, 2}, kModes[bytes % std::size(kModes)], raw);
      if (!one.bytes.empty()) all.push_back(one);
    }
    EXPECT_GT(all.size(), 200U) << static_cast<int>(element);
    decode_all(all, {2, 9});
  }
}

TEST(PlanarKernel, values_that_no_sample_saw_are_taken_from_the_escapes) {
  std::vector<Stored> all;
  for (const Element element : kPlanarElements) {
    for (const Mode mode : kModes) {
      Bytes raw = real_values(element, 0, codec::kMaxLeafBytes / codec::element_bytes(element));
      SeededRandom random(kSeed);
      for (size_t at = 64 * codec::element_bytes(element); at + 64 < raw.size(); at += 100 + random.below(400)) {
        for (size_t i = 0; i < random.below(64); ++i) raw[at + i] = static_cast<std::byte>(random.next());
      }
      const Stored one = stored({element, 64, 256}, mode, raw);
      if (!one.bytes.empty()) all.push_back(one);
    }
  }
  EXPECT_GT(all.size(), 8U);
  decode_all(all, {1, 4});
}

TEST(PlanarKernel, repeated_bytes_come_back) {
  std::vector<Stored> all;
  for (uint32_t bytes = 129; bytes < 1400; bytes += 37) {
    Bytes raw(bytes);
    for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::byte>(i % 8 * 31 + 1);
    all.push_back(stored({Element::bf16, 0, 0}, Mode::standard, raw));
    EXPECT_EQ(64U, all.back().bytes.size());
  }
  decode_all(all, {2, 1});
}

// Returns 256 rows, of which every second one repeats an earlier one.
Bytes with_equal_rows(Element element, uint32_t row) {
  const size_t row_bytes = row * codec::element_bytes(element);
  Bytes raw = real_values(element, 0, size_t{256} * row);
  SeededRandom random(kSeed);
  for (size_t r = 1; r < 256; r += 2) {
    std::memcpy(raw.data() + r * row_bytes, raw.data() + random.below(r) * row_bytes, row_bytes);
  }
  raw.resize(std::min(raw.size(), codec::kMaxLeafBytes / row_bytes * row_bytes));
  return raw;
}

TEST(PlanarKernel, rows_that_repeat_come_back) {
  std::vector<Stored> all;
  for (const Element element : kPlanarElements) {
    for (const uint32_t row : {64U, 66U, 63U}) {
      for (const Mode mode : kModes) {
        const Stored one = stored({element, row, 128}, mode, with_equal_rows(element, row));
        if (!one.bytes.empty()) all.push_back(one);
      }
    }
  }
  // Rows of noise are stored uncoded.
  Bytes noise(16384);
  SeededRandom random(kSeed);
  random.fill(noise);
  for (size_t r = 1; r < 128; r += 2) std::memcpy(noise.data() + r * 128, noise.data() + random.below(r) * 128, 128);
  all.push_back(stored({Element::bf16, 64, 128}, Mode::standard, noise));
  size_t of_rows = 0;
  for (const Stored& s : all) of_rows += s.bytes.size() > 3 && s.bytes[3] == std::byte{16};
  EXPECT_GT(of_rows, 30U);
  decode_all(all, {2, 3});
}

TEST(PlanarKernel, without_memory_to_work_in_rows_are_left_to_the_cpu) {
  const Stored rows = stored({Element::bf16, 64, 128}, Mode::standard, with_equal_rows(Element::bf16, 64));
  std::vector<CodedLeaf> leaves;
  leaves.emplace_back(Block(rows.bytes), rows.raw_bytes);
  const auto results = run_coded("kvbm_decode_planar", leaves, {1, 0, false});
  EXPECT_EQ(kCodedElsewhere, results[0].status);
  EXPECT_TRUE(leaves[0].is_poisoned());
}

constexpr Element kSigned[] = {Element::bf16, Element::fp16, Element::fp8_e4m3, Element::fp8_e5m2};
constexpr std::byte kSignsShape{17};

TEST(PlanarKernel, coded_signs_of_rows_of_any_length_come_back) {
  std::vector<Stored> all;
  for (const Element element : kSigned) {
    for (const uint32_t row : {64U, 128U, 192U, 66U, 63U, 31U, 5U, 2U, 1U, 2000U}) {
      for (const size_t count : {size_t{2048}, size_t{3001}}) {
        all.push_back(stored({element, row, 16}, Mode::max, kept_signs(element, row, count)));
        ASSERT_FALSE(all.back().bytes.empty()) << all.back().what;
        EXPECT_EQ(kSignsShape, all.back().bytes[3]) << all.back().what;
      }
    }
    all.push_back(stored({element, 64, 512}, Mode::max,
                         kept_signs(element, 64, codec::kMaxLeafBytes / codec::element_bytes(element))));
    // Adds rows that repeat.
    Bytes rows = kept_signs(element, 64, size_t{256} * 64);
    std::copy_n(rows.begin(), rows.size() / 2, rows.begin() + static_cast<ptrdiff_t>(rows.size() / 2));
    all.push_back(stored({element, 64, 256}, Mode::max, rows));
    EXPECT_EQ(std::byte{16}, all.back().bytes[3]);
    EXPECT_EQ(kSignsShape, all.back().bytes[64 + 2 * 256 + 3]);
  }
  for (const uint64_t seed : {0, 7}) {
    const Ends ends = decode_all(all, {static_cast<uint32_t>(1 + seed % 3), seed});
    EXPECT_EQ(all.size(), ends[kCodedOk]);
  }
}

TEST(PlanarKernel, without_memory_to_work_in_coded_signs_are_left_to_the_cpu) {
  const Stored signs = stored({Element::bf16, 64, 16}, Mode::max, kept_signs(Element::bf16, 64, 4096));
  ASSERT_EQ(kSignsShape, signs.bytes[3]);
  std::vector<CodedLeaf> leaves;
  leaves.emplace_back(Block(signs.bytes), signs.raw_bytes);
  const auto results = run_coded("kvbm_decode_planar", leaves, {1, 0, false});
  EXPECT_EQ(kCodedElsewhere, results[0].status);
  EXPECT_TRUE(leaves[0].is_poisoned());
}

TEST(PlanarKernel, pieces_of_any_size_are_filled) {
  const Bytes raw = real_values(Element::bf16, 0, 12288);
  const Stored one = stored({Element::bf16, 64, 16}, Mode::standard, raw);
  const Stored rows = stored({Element::bf16, 64, 128}, Mode::standard, with_equal_rows(Element::bf16, 64));
  std::vector<CodedLeaf> leaves;
  for (const uint32_t piece : {1U, 2U, 6U, 8U, 24U, 64U, 96U, 128U, 256U, 512U, 2048U, 3072U, 8192U}) {
    for (const uint32_t gap : {0U, 1U, 8U, 48U, 128U})
      leaves.emplace_back(Block(one.bytes), one.raw_bytes, piece, gap, gap % 16);
  }
  const size_t plain_ones = leaves.size();
  for (const uint32_t piece : {128U, 256U, 4096U}) leaves.emplace_back(Block(rows.bytes), rows.raw_bytes, piece, 32);
  const size_t with_rows = leaves.size();
  const Stored signs = stored({Element::bf16, 64, 16}, Mode::max, kept_signs(Element::bf16, 64, 12288));
  ASSERT_EQ(kSignsShape, signs.bytes[3]);
  for (const uint32_t piece : {1U, 8U, 96U, 256U, 8192U})
    leaves.emplace_back(Block(signs.bytes), signs.raw_bytes, piece, 16);
  const auto results = run_coded("kvbm_decode_planar", leaves, {2, 6});
  for (size_t i = 0; i < leaves.size(); ++i) {
    const Stored& from = i < plain_ones ? one : i < with_rows ? rows : signs;
    expect_like(reference(LeafCodec::planar, from.bytes, from.raw_bytes), leaves[i], results[i], std::to_string(i));
    EXPECT_EQ(kCodedOk, results[i].status);
  }
}

TEST(PlanarKernel, another_hash_than_expected_spoils_the_target) {
  const Bytes raw = real_values(Element::bf16, 0, 4096);
  const Stored one = stored({Element::bf16, 64, 16}, Mode::standard, raw);
  std::vector<CodedLeaf> leaves;
  for (int i = 0; i < 3; ++i) leaves.emplace_back(Block(one.bytes), one.raw_bytes, 256, 16);
  for (CodedLeaf& leaf : leaves) leaf.job.leaf.flags |= kJobChecked;
  leaves[0].job.leaf.expected = codec::leaf_hash(raw);
  leaves[1].job.leaf.expected = codec::leaf_hash(raw) ^ 1;
  leaves[2].job.leaf.expected = codec::leaf_hash(raw);
  leaves[2].coded.data()[one.bytes.size() - 1000] ^= std::byte{4};  // a byte that is stored plain
  const auto results = run_coded("kvbm_decode_planar", leaves, {1, 2});
  EXPECT_EQ(kCodedOk, results[0].status);
  EXPECT_TRUE(raw == leaves[0].plain());
  for (int i = 1; i < 3; ++i) {
    EXPECT_EQ(kCodedWrongHash, results[static_cast<size_t>(i)].status);
    EXPECT_TRUE(leaves[static_cast<size_t>(i)].is_poisoned());
    EXPECT_TRUE(leaves[static_cast<size_t>(i)].is_untouched());
  }
}

TEST(PlanarKernel, a_leaf_at_an_odd_place_is_left_to_the_cpu) {
  const Stored one = stored({Element::bf16, 64, 16}, Mode::standard, real_values(Element::bf16, 0, 4096));
  Bytes moved(4, std::byte{0});
  moved.insert(moved.end(), one.bytes.begin(), one.bytes.end());
  std::vector<CodedLeaf> leaves;
  leaves.emplace_back(Block(moved), one.raw_bytes);
  leaves[0].job.leaf.record += 4;
  leaves[0].job.stored_bytes -= 4;
  EXPECT_EQ(kCodedElsewhere, run_coded("kvbm_decode_planar", leaves, {})[0].status);
}

// Damages one good leaf: changed bytes, most of them in sensitive fields, and other lengths.
std::vector<Stored> damaged(const Stored& good, size_t n, Random& random) {
  std::vector<Stored> all;
  for (size_t i = 0; i < n; ++i) {
    Stored bad = good;
    const size_t changes = 1 + random.below(3);
    for (size_t c = 0; c < changes; ++c) {
      const size_t near = random.below(4) != 0 ? std::min<size_t>(bad.bytes.size(), 160) : bad.bytes.size();
      const size_t at = random.below(near);
      bad.bytes[at] = random.below(2) == 0 ? bad.bytes[at] ^ static_cast<std::byte>(1U << random.below(8))
                                           : static_cast<std::byte>(random.next());
    }
    if (random.below(8) == 0) bad.bytes.resize(random.below(bad.bytes.size() + 1));
    if (random.below(8) == 0) bad.raw_bytes = static_cast<uint32_t>(1 + random.below(codec::kMaxLeafBytes));
    if (random.below(4) == 0 && bad.bytes.size() >= codec::kFrameBytes) {  // with lengths that are not refused at once
      bad.bytes.resize(bad.bytes.size() / 64 * 64);
      store_le(bad.bytes.data() + 4, bad.raw_bytes);
      store_le(bad.bytes.data() + 8, static_cast<uint32_t>(bad.bytes.size()));
    }
    bad.what = good.what + ", damage " + std::to_string(i);
    all.push_back(std::move(bad));
  }
  return all;
}

TEST(PlanarKernel, damage_is_refused_as_by_the_cpu) {
  SeededRandom random(kSeed);
  Ends ends{};
  for (const Element element : kPlanarElements) {
    for (const Mode mode : kModes) {
      const uint32_t row = mode == Mode::max ? 96 : 64;
      for (const Stored& good : {stored({element, row, 8}, mode, real_values(element, 0, 2100)),
                                 stored({element, 64, 8}, mode, with_equal_rows(element, 64)),
                                 stored({element, row, 8}, mode, kept_signs(element, row, 2100))}) {
        ASSERT_FALSE(good.bytes.empty());
        const Ends now = decode_all(damaged(good, 50, random), {3, random.next()});
        for (size_t i = 0; i < ends.size(); ++i) ends[i] += now[i];
      }
    }
  }
  // All kinds of damage occurred: fields that do not matter, values, and fields that do.
  EXPECT_GT(ends[kCodedOk], 10U);
  EXPECT_GT(ends[kCodedWrongHash], 100U);
  EXPECT_GT(ends[kCodedDamaged], 500U);
  EXPECT_GT(ends[kCodedNewer], 10U);
  EXPECT_EQ(0U, ends[kCodedElsewhere]);
}

// Streams that end early shift later blocks; words, escapes and classes have their extreme values.
TEST(PlanarKernel, fields_at_their_limits_are_refused_as_by_the_cpu) {
  SeededRandom random(kSeed);
  for (const Element element : kPlanarElements) {
    const Stored good = stored({element, 64, 8}, Mode::standard, real_values(element, 0, 4200));
    ASSERT_FALSE(good.bytes.empty());
    std::vector<Stored> all;
    for (size_t at = 0; at < 64; ++at) {
      for (const int value : {0, 1, 2, 5, 8, 17, 64, 255}) {
        Stored bad = good;
        bad.bytes[at] = static_cast<std::byte>(value);
        bad.what = good.what + ", byte " + std::to_string(at) + " is " + std::to_string(value);
        all.push_back(std::move(bad));
      }
    }
    decode_all(all, {4, random.next()});
  }
}

// Corpus of the decoder's fuzz target: a choice, the raw size, a leaf.
TEST(PlanarKernel, the_fuzz_corpus_gives_what_the_cpu_says) {
  std::vector<Stored> all;
  SeededRandom random(kSeed);
  for (const char* folder : {"/../fuzz/corpus/leaf_codec", "/golden"}) {
    for (const auto& entry : std::filesystem::directory_iterator(test::data_folder(KVBM_TEST_DATA) + folder)) {
      std::ifstream in(entry.path(), std::ios::binary);
      const std::vector<char> chars((std::istreambuf_iterator<char>(in)), {});
      const size_t head = folder[1] == 'g' ? 0 : 5;
      if (chars.size() < head + codec::kFrameBytes) continue;
      Bytes bytes(chars.size() - head);
      std::memcpy(bytes.data(), chars.data() + head, bytes.size());
      // Golden files are named after the codec; the CPU refuses those of another one, and so must the kernel.
      uint32_t raw = static_cast<uint32_t>(load_le<uint32_t>(bytes.data() + 4) % (codec::kMaxLeafBytes + 1));
      if (raw == 0) raw = 64;
      const Stored one{bytes, raw, entry.path().filename().string()};
      all.push_back(one);
      for (Stored& bad : damaged(one, 40, random)) all.push_back(std::move(bad));
    }
  }
  EXPECT_GT(all.size(), 600U);
  decode_all(all, {4, 11});
}

}  // namespace
}  // namespace kvbm::device::planar_kernel_test
