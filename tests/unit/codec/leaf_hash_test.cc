#include "codec/hash/leaf_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <vector>

#include "base/crypto/random.h"
#include "codec/hash/copy_hint.h"

namespace kvbm::codec::leaf_hash_test {
namespace {

constexpr uint64_t kSeed = 20261121;
using Bytes = std::vector<std::byte>;

Bytes random_bytes(size_t size, uint64_t seed = kSeed) {
  Bytes bytes(size);
  SeededRandom(seed).fill(bytes);
  return bytes;
}

TEST(LeafHash, changes_with_every_single_bit) {
  for (size_t size : {1U, 8U, 63U, 256U, 300U, 4096U, 4352U}) {
    Bytes bytes = random_bytes(size);
    const uint64_t before = leaf_hash(bytes);
    for (size_t bit = 0; bit < size * 8; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      ASSERT_NE(before, leaf_hash(bytes)) << "size " << size << " bit " << bit;
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

TEST(LeafHash, flips_half_of_its_bits_for_one_bit_of_input) {
  for (size_t size : {8U, 256U, 4096U, 20000U}) {
    Bytes bytes = random_bytes(size);
    const uint64_t before = leaf_hash(bytes);
    SeededRandom random(kSeed + size);
    std::array<int, 64> per_bit{};
    constexpr int kTrials = 2000;
    for (int trial = 0; trial < kTrials; ++trial) {
      const uint64_t bit = random.below(size * 8);
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      const uint64_t changed = before ^ leaf_hash(bytes);
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      for (size_t b = 0; b < 64; ++b) per_bit[b] += static_cast<int>(changed >> b & 1);
    }
    if (size == 8) continue;  // 64 distinct flips: too few for a statement on each output bit
    for (size_t b = 0; b < 64; ++b) EXPECT_NEAR(per_bit[b], kTrials / 2, 200) << "size " << size << " bit " << b;
  }
}

TEST(LeafHash, changes_when_words_or_rows_are_swapped) {
  const Bytes bytes = random_bytes(8192);
  const uint64_t before = leaf_hash(bytes);
  for (size_t unit : {size_t{1}, size_t{8}, size_t{64}, size_t{256}, size_t{1024}, size_t{4096}}) {
    for (size_t at = 0; at + 2 * unit <= bytes.size(); at += unit) {
      for (size_t distance : {unit, 4096 - unit, bytes.size() - unit - at}) {
        if (distance < unit || at + distance + unit > bytes.size()) continue;
        Bytes swapped = bytes;
        std::swap_ranges(swapped.begin() + static_cast<long>(at), swapped.begin() + static_cast<long>(at + unit),
                         swapped.begin() + static_cast<long>(at + distance));
        if (swapped == bytes) continue;
        ASSERT_NE(before, leaf_hash(swapped)) << "unit " << unit << " at " << at << " distance " << distance;
      }
    }
  }
}

TEST(LeafHash, separates_small_words_at_every_place) {
  std::set<uint64_t> seen;
  size_t inputs = 0;
  for (size_t at = 0; at < 1024; ++at) {  // one word, its place and its value
    for (uint64_t value : {uint64_t{1}, uint64_t{2}, uint64_t{1} << 31, uint64_t{1} << 32, UINT64_MAX}) {
      std::vector<uint64_t> words(1024);
      words[at] = value;
      seen.insert(leaf_hash(std::as_bytes(std::span(words))));
      ++inputs;
    }
  }
  EXPECT_EQ(inputs, seen.size());
}

TEST(LeafHash, separates_zeros_of_every_length_and_rotations) {
  std::set<uint64_t> seen;
  const Bytes zeros(9000);
  for (size_t size = 0; size <= zeros.size(); ++size) seen.insert(leaf_hash(ConstBytes(zeros).first(size)));
  const Bytes ones(4096, std::byte{0xFF});
  for (size_t size = 1; size <= ones.size(); ++size) seen.insert(leaf_hash(ConstBytes(ones).first(size)));
  Bytes bytes = random_bytes(2304);
  for (size_t n = 0; n < bytes.size(); ++n) {
    std::rotate(bytes.begin(), bytes.begin() + 1, bytes.end());
    seen.insert(leaf_hash(bytes));
  }
  EXPECT_EQ(9001U + 4096U + 2304U, seen.size());
}

// Every kernel that this machine can run.
class Kernels : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!force_kernel(GetParam())) GTEST_SKIP() << GetParam() << " is not available here";
  }
  void TearDown() override { force_kernel(nullptr); }
};
INSTANTIATE_TEST_SUITE_P(Each, Kernels, testing::Values("portable", "avx2_l1", "avx2_l2", "avx512_l1", "avx512_l2"),
                         [](const auto& kernel) { return std::string(kernel.param); });

TEST_P(Kernels, equal_the_reference_at_every_length_and_alignment) {
  EXPECT_STREQ(GetParam(), kernel_name());
  const Bytes bytes = random_bytes(70000);
  for (size_t size = 0; size < 1100; ++size) {
    const ConstBytes part = ConstBytes(bytes).subspan(size % 67, size);
    ASSERT_EQ(leaf_hash_reference(part), leaf_hash(part)) << size;
  }
  for (size_t size : {4095U, 4096U, 4097U, 8192U, 65535U, 65536U, 65537U}) {
    const ConstBytes part = ConstBytes(bytes).subspan(size % 67, size);
    ASSERT_EQ(leaf_hash_reference(part), leaf_hash(part)) << size;
  }
}

TEST_P(Kernels, copy_what_they_hash_and_nothing_beside) {
  const Bytes source = random_bytes(80000);
  for (CopyHint hint : {CopyHint::automatic, CopyHint::streaming, CopyHint::cached}) {
    for (size_t size : {0U, 1U, 63U, 64U, 256U, 257U, 1000U, 4096U, 65536U, 70001U}) {
      for (size_t skew : {0U, 1U, 16U, 32U, 64U}) {
        Bytes target(size + 256, std::byte{0xA5});
        const size_t at = 128 - reinterpret_cast<uintptr_t>(target.data()) % 64 + skew;
        const ConstBytes from = ConstBytes(source).subspan(skew / 2, size);
        const CopyOrder order = (size + skew) % 3 == 0 ? CopyOrder::now : CopyOrder::later;
        ASSERT_EQ(leaf_hash_reference(from), copy_hashed(target.data() + at, from.data(), size, hint, order));
        if (order == CopyOrder::later) order_copies();
        ASSERT_TRUE(std::equal(from.begin(), from.end(), target.begin() + static_cast<long>(at)));
        const auto is_fill = [](std::byte b) { return b == std::byte{0xA5}; };
        ASSERT_TRUE(std::all_of(target.begin(), target.begin() + static_cast<long>(at), is_fill));
        ASSERT_TRUE(std::all_of(target.begin() + static_cast<long>(at + size), target.end(), is_fill));
      }
    }
  }
}

Bytes gathered(std::span<const StridedRun> runs) {
  Bytes out;
  for (const StridedRun& run : runs) {
    for (int64_t i = 0; i < run.count0; ++i) {
      for (int64_t j = 0; j < run.count1; ++j) {
        const std::byte* at = run.data + i * run.stride0 + j * run.stride1;
        out.insert(out.end(), at, at + run.bytes);
      }
    }
  }
  return out;
}

StridedRun random_run(SeededRandom& random, uint64_t unit) {
  StridedRun run;
  run.bytes = unit * random.below(9);
  run.count0 = static_cast<uint32_t>(random.below(6));
  run.count1 = static_cast<uint32_t>(random.below(6));
  run.stride1 = static_cast<int64_t>(run.bytes + unit * random.below(3));
  run.stride0 = run.stride1 * run.count1 + static_cast<int64_t>(unit * random.below(3));
  return run;
}

TEST_P(Kernels, gather_and_scatter_pieces_of_any_size) {
  SeededRandom random(kSeed);
  for (int trial = 0; trial < 600; ++trial) {
    const uint64_t unit = std::array<uint64_t, 8>{1, 8, 16, 64, 128, 320, 1024, 3000}[random.below(8)];
    const CopyHint hint = random.below(2) == 0 ? CopyHint::streaming : CopyHint::cached;
    std::vector<StridedRun> runs(random.below(4));
    std::vector<Bytes> areas(runs.size());
    for (size_t r = 0; r < runs.size(); ++r) {
      runs[r] = random_run(random, unit);
      areas[r] = random_bytes(unit * 9 * 6 * 6 * 3 + 128, random.next());
      runs[r].data = areas[r].data() + (64 - reinterpret_cast<uintptr_t>(areas[r].data()) % 64) % 64;
    }
    const Bytes expected = gathered(runs);
    Bytes packed(expected.size() + 1);
    ASSERT_EQ(leaf_hash_reference(expected), gather_hashed(packed.data(), runs, hint)) << "trial " << trial;
    packed.pop_back();
    ASSERT_EQ(expected, packed) << "trial " << trial;
    const Bytes other = random_bytes(expected.size(), random.next());
    ASSERT_EQ(leaf_hash_reference(other), scatter_hashed(runs, other.data(), hint)) << "trial " << trial;
    ASSERT_EQ(other, gathered(runs)) << "trial " << trial;
  }
}

TEST(LeafHash, small_copies_stay_in_the_cache_and_large_ones_choose_for_themselves) {
  EXPECT_EQ(hint_for(4096), CopyHint::cached);
  EXPECT_EQ(hint_for(uint64_t{1} << 30), CopyHint::automatic);
}

TEST(LeafHash, refuses_a_kernel_it_does_not_have) {
  EXPECT_FALSE(force_kernel("abacus"));
  EXPECT_TRUE(force_kernel(nullptr));
}

}  // namespace
}  // namespace kvbm::codec::leaf_hash_test
