// Leaves, memory and launches for tests of the kernels that decode and code leaves.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/crypto/random.h"
#include "codec/coded/leaf_codec.h"
#include "codec/hash/leaf_hash.h"
#include "codec/leaf/frame.h"
#include "device/kernels/codec_job.h"
#include "support/cuda_emulation/kernels.h"
#include "support/lossy_leaves.h"
#include "support/test_data.h"

namespace kvbm::device {

using Bytes = std::vector<std::byte>;

inline constexpr codec::Element kFloats[] = {codec::Element::bf16, codec::Element::fp16, codec::Element::fp32};
inline constexpr codec::Element kPlanarElements[] = {codec::Element::bf16, codec::Element::fp16, codec::Element::fp32,
                                                     codec::Element::fp8_e4m3, codec::Element::fp8_e5m2};

// Returns `count` elements of that kind with the exponents of a real cache, from its element `first` on.
inline Bytes real_values(codec::Element element, size_t first, size_t count) {
  static const Bytes cache = test::real_cache(test::data_folder(KVBM_TEST_DATA));
  EXPECT_FALSE(cache.empty());
  Bytes out(count * codec::element_bytes(element));
  for (size_t i = 0; i < count; ++i) {
    const uint32_t value = load_le<uint16_t>(cache.data() + 2 * ((first + i) % (cache.size() / 2)));
    const uint32_t sign = value >> 15;
    const uint32_t exponent = value >> 7 & 0xFF;
    const uint32_t mantissa = value & 0x7F;
    const auto rebased = [&](uint32_t below, uint32_t limit) {
      return std::min(exponent > below ? exponent - below : 0, limit);
    };
    const uint32_t noise = static_cast<uint32_t>(i) * 2654435761U >> 16;
    if (element == codec::Element::bf16) store_le(out.data() + 2 * i, static_cast<uint16_t>(value));
    if (element == codec::Element::fp16) {
      store_le(out.data() + 2 * i,
               static_cast<uint16_t>(sign << 15 | rebased(112, 30) << 10 | mantissa << 3 | (i & 7)));
    }
    if (element == codec::Element::fp32) store_le(out.data() + 4 * i, value << 16 | noise);
    if (element == codec::Element::fp8_e4m3)
      out[i] = static_cast<std::byte>(sign << 7 | rebased(120, 14) << 3 | mantissa >> 4);
    if (element == codec::Element::fp8_e5m2)
      out[i] = static_cast<std::byte>(sign << 7 | rebased(112, 30) << 2 | mantissa >> 5);
  }
  return out;
}

// Returns values with signs that `max` codes: a channel mostly keeps its sign from row to row.
inline Bytes kept_signs(codec::Element element, uint32_t row, size_t count) {
  Bytes out = real_values(element, 0, count);
  const size_t width = codec::element_bytes(element);
  SeededRandom random(count);
  for (size_t i = 0; i < count; ++i) {
    std::byte& top = out[(i + 1) * width - 1];
    const std::byte before = i < row ? std::byte{0} : out[(i + 1 - row) * width - 1] & std::byte{0x80};
    top = (top & std::byte{0x7F}) | (random.below(16) == 0 ? before ^ std::byte{0x80} : before);
  }
  return out;
}

// Memory that begins at a multiple of 64 and has its exact length, so that a sanitizer sees the byte behind it.
class Block {
 public:
  explicit Block(size_t bytes, std::byte fill = std::byte{0xA5})
      : memory_(static_cast<std::byte*>(::operator new (bytes == 0 ? 1 : bytes, std::align_val_t{64}))), bytes_(bytes) {
    std::fill_n(memory_.get(), bytes, fill);
  }
  explicit Block(ConstBytes from) : Block(from.size()) {
    if (!from.empty()) std::memcpy(memory_.get(), from.data(), from.size());
  }
  [[nodiscard]] std::byte* data() const { return memory_.get(); }
  [[nodiscard]] size_t size() const { return bytes_; }
  [[nodiscard]] MutableBytes span() const { return {memory_.get(), bytes_}; }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(memory_.get()); }

 private:
  struct Free {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t bytes_;
};

inline DeviceRun run_of(const StridedRun& run) {
  return make_run(reinterpret_cast<uint64_t>(run.data), run.bytes, run.count1, run.stride0, run.stride1);
}

// A kernel's job for one leaf, with all memory that it may touch: the coded side unchanged, and the plain side in
// pieces between unused bytes.
struct CodedLeaf {
  static constexpr std::byte kNobody{0x3C};
  Block coded;
  Block memory;
  StridedRun run;
  CodedJob job{};

  // Lays out plain bytes in pieces of piece_bytes, which divide them, `gap` apart; 0: in one piece.
  CodedLeaf(Block coded_side, uint32_t raw_bytes, uint32_t piece_bytes = 0, uint32_t gap = 0, uint32_t shift = 0)
      : coded(std::move(coded_side)), memory(memory_bytes(raw_bytes, piece_bytes, gap), kNobody) {
    run.data = memory.data() + 64 + shift;
    run.bytes = piece_bytes == 0 ? raw_bytes : piece_bytes;
    const uint32_t pieces = raw_bytes / static_cast<uint32_t>(run.bytes);
    // Uses two levels if the number of pieces allows it.
    run.count1 = pieces % 3 == 0 ? 3 : 1;
    run.count0 = pieces / run.count1;
    run.stride1 = static_cast<int64_t>(run.bytes + gap);
    run.stride0 = run.stride1 * run.count1;
    job.leaf = make_leaf_job(run_of(run), run.count0, coded.address(), false, 0);
    job.stored_bytes = static_cast<uint32_t>(coded.size());
  }
  static size_t memory_bytes(uint32_t raw_bytes, uint32_t piece_bytes, uint32_t gap) {
    const size_t pieces = piece_bytes == 0 ? 1 : raw_bytes / piece_bytes;
    return raw_bytes + pieces * gap + 256;
  }
  template <class F>
  void each_piece(F f) const {
    for (uint32_t i = 0; i < run.count0; ++i) {
      for (uint32_t j = 0; j < run.count1; ++j)
        f(run.data + int64_t{i} * run.stride0 + int64_t{j} * run.stride1, run.bytes);
    }
  }
  [[nodiscard]] Bytes plain() const {
    Bytes out;
    each_piece([&](const std::byte* p, size_t n) { out.insert(out.end(), p, p + n); });
    return out;
  }
  void set_plain(ConstBytes from) const {
    size_t at = 0;
    each_piece([&](std::byte* p, size_t n) {
      std::memcpy(p, from.data() + at, n);
      at += n;
    });
  }
  // Returns true if nothing between the pieces was written.
  [[nodiscard]] bool is_untouched() const {
    Bytes expected(memory.size(), kNobody);
    each_piece([&](const std::byte* p, size_t n) { std::memcpy(expected.data() + (p - memory.data()), p, n); });
    return std::equal(expected.begin(), expected.end(), memory.data());
  }
  [[nodiscard]] bool is_poisoned() const {
    const Bytes bytes = plain();
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0xFF}; });
  }
};

struct CodedLaunch {
  uint32_t blocks = 2;
  uint64_t order_seed = 0;
  bool scratch = true;
  bool writes_coded = false;  // the kernel writes the coded side
};

// Runs all leaves in one launch, which may touch only their memory.
inline std::vector<CodedResult> run_coded(const std::string& kernel, const std::vector<CodedLeaf>& leaves,
                                          const CodedLaunch& launch) {
  std::vector<CodedJob> jobs;
  for (const CodedLeaf& leaf : leaves) jobs.push_back(leaf.job);
  std::vector<CodedResult> results(leaves.size() + 1, CodedResult{7, 77, 7, 7, 7});
  const Block scratch(launch.scratch ? size_t{kCodedScratch} * kCodedWarps * launch.blocks : 0);
  const uint64_t at = launch.scratch ? scratch.address() : 0;
  emulation::Options options;
  options.order_seed = launch.order_seed;
  // By address, because it is looked up for each access.
  struct Range {
    const std::byte* begin;
    const std::byte* end;
    bool written;
  };
  std::vector<Range> ranges;
  const auto add = [&](const Block& block, bool written) {
    ranges.push_back({block.data(), block.data() + block.size(), written});
  };
  add(scratch, true);
  for (const CodedLeaf& leaf : leaves) {
    add(leaf.coded, launch.writes_coded);
    add(leaf.memory, !launch.writes_coded);
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  options.reaches = [&](const void* address, size_t n, bool writes) {
    const auto* const p = static_cast<const std::byte*>(address);
    const auto behind = std::upper_bound(ranges.begin(), ranges.end(), p,
                                         [](const std::byte* a, const Range& r) { return a < r.begin; });
    if (behind == ranges.begin()) return false;
    const Range& range = *(behind - 1);
    return p + n <= range.end && (range.written || !writes);
  };
  const emulation::LaunchShape shape{{launch.blocks, 1, 1}, {32 * kCodedWarps, 1, 1}, 0};
  const auto count = static_cast<uint32_t>(jobs.size());
  const bool works = kernel == "kvbm_decode_planar" || kernel == "kvbm_quantize";
  const emulation::Outcome outcome =
      works ? emulation::launch_named(kernel, shape, options, static_cast<const CodedJob*>(jobs.data()), count,
                                      results.data(), at)
            : emulation::launch_named(kernel, shape, options, static_cast<const CodedJob*>(jobs.data()), count,
                                      results.data());
  EXPECT_TRUE(outcome.ok()) << outcome.text;
  EXPECT_EQ(77U, results.back().status);
  results.pop_back();
  return results;
}

// Result of the CPU for the leaf.
struct Reference {
  Code code = Code::ok;
  Bytes plain;
  uint64_t hash = 0;
  uint64_t in_frame = 0;
};

inline Reference reference(codec::LeafCodec codec, ConstBytes stored, size_t raw_bytes) {
  static codec::Workspace workspace;
  Reference r;
  r.plain.resize(raw_bytes);
  r.code = codec::decode_leaf(codec, stored, r.plain, workspace).code();
  r.hash = codec::leaf_hash(r.plain);
  r.in_frame = codec::raw_hash_of(stored).value_or(0);
  return r;
}

// Expects the kernel's result to match the reference: refused by both, or equal bytes and hash, with nothing else
// touched.
inline void expect_like(const Reference& r, const CodedLeaf& leaf, const CodedResult& result, const std::string& what) {
  EXPECT_TRUE(leaf.is_untouched()) << what;
  if (r.code != Code::ok) {
    EXPECT_EQ(r.code == Code::newer_version ? kCodedNewer : kCodedDamaged, result.status) << what;
    EXPECT_TRUE(leaf.is_poisoned()) << what;
    return;
  }
  EXPECT_EQ(r.hash, result.hash) << what;
  if (r.hash != r.in_frame) {
    EXPECT_EQ(kCodedWrongHash, result.status) << what;
    EXPECT_TRUE(leaf.is_poisoned()) << what;
    return;
  }
  EXPECT_EQ(kCodedOk, result.status) << what;
  EXPECT_TRUE(r.plain == leaf.plain()) << what;
}

// Returns a coded leaf, or nothing if coding does not make it smaller.
inline std::optional<Bytes> coded_leaf(const codec::LeafForm& form, codec::Mode mode, ConstBytes raw,
                                       codec::LeafCodec codec) {
  static codec::Workspace workspace;
  Block room(codec::encode_room(raw.size()));
  const auto coded = codec::encode_leaf(form, mode, raw, codec::leaf_hash(raw), room.span(), workspace);
  EXPECT_TRUE(coded.ok());
  if (!coded.ok() || coded.value().codec != codec) return std::nullopt;
  return Bytes(room.data(), room.data() + coded.value().bytes);
}

}  // namespace kvbm::device
