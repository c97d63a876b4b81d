// Planar leaves: every kernel, every element, real and odd values, and what damage does.
#include "codec/lossless/planar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/crypto/random.h"
#include "codec/coded/leaf_codec.h"
#include "codec/hash/leaf_hash.h"
#include "codec/lossless/planar_kernel.h"

namespace kvbm::codec::planar_test {
namespace {

constexpr uint64_t kSeed = 20261122;
constexpr size_t kShapeAt = 3;
constexpr std::byte kSignsShape{17};
constexpr const char* kKernels[] = {"portable", "bmi2", "avx512"};
constexpr Mode kModes[] = {Mode::fast, Mode::standard, Mode::max};
constexpr Element kElements[] = {Element::bf16, Element::fp16, Element::fp32, Element::fp8_e4m3, Element::fp8_e5m2};

using Bytes = std::vector<std::byte>;

Bytes file(const std::string& path) {
  std::ifstream in(std::string(KVBM_TEST_DATA) + path, std::ios::binary);
  const std::vector<char> chars((std::istreambuf_iterator<char>(in)), {});
  Bytes out(chars.size());
  if (!chars.empty()) std::memcpy(out.data(), chars.data(), chars.size());
  return out;
}

// `count` elements of that type, with top bytes of a real cache.
Bytes sample(Element element, size_t first, size_t count) {
  static const Bytes bf16 = file("/kv/smollm2_bf16.bin");
  EXPECT_FALSE(bf16.empty());
  if (element == Element::bf16) {
    return {bf16.begin() + static_cast<ptrdiff_t>(2 * first),
            bf16.begin() + static_cast<ptrdiff_t>(2 * (first + count))};
  }
  Bytes out(count * element_bytes(element));
  for (size_t i = 0; i < count; ++i) {
    const auto value = uint32_t{load_le<uint16_t>(bf16.data() + 2 * (first + i))};
    const uint32_t sign = value >> 15;
    const uint32_t exponent = value >> 7 & 0xFF;
    const uint32_t mantissa = value & 0x7F;
    const auto rebased = [&](uint32_t below, uint32_t limit) {
      return std::min(exponent > below ? exponent - below : 0, limit);
    };
    if (element == Element::fp16) {
      store_le(out.data() + 2 * i,
               static_cast<uint16_t>(sign << 15 | rebased(112, 30) << 10 | mantissa << 3 | (i & 7)));
    } else if (element == Element::fp32) {
      store_le(out.data() + 4 * i, value << 16 | ((static_cast<uint32_t>(i) * 2654435761U) >> 16));
    } else if (element == Element::fp8_e4m3) {
      out[i] = static_cast<std::byte>(sign << 7 | rebased(120, 14) << 3 | mantissa >> 4);
    } else {
      out[i] = static_cast<std::byte>(sign << 7 | rebased(112, 30) << 2 | mantissa >> 5);
    }
  }
  return out;
}

struct Coded {
  LeafCodec codec = LeafCodec::raw;
  Bytes stored;
};

Coded code(const LeafForm& form, Mode mode, ConstBytes raw) {
  static Workspace workspace;
  Bytes room(encode_room(raw.size()), std::byte{0xA5});
  const auto coded = encode_leaf(form, mode, raw, leaf_hash(raw), room, workspace);
  EXPECT_TRUE(coded.ok()) << coded.status().message();
  if (!coded.ok() || coded.value().codec == LeafCodec::raw) return {};
  room.resize(coded.value().bytes);
  return {coded.value().codec, room};
}

Status decode(const Coded& coded, Bytes& raw) {
  static Workspace workspace;
  return decode_leaf(coded.codec, coded.stored, raw, workspace);
}

struct RestoreKernel {
  ~RestoreKernel() { force_codec_kernel(nullptr); }
};

// Codes and decodes with every kernel of this machine, and expects equal bytes. Returns the stored size.
size_t agree(const LeafForm& form, Mode mode, const Bytes& raw) {
  const RestoreKernel restore;
  Coded first;
  bool any = false;
  for (const char* kernel : kKernels) {
    if (!force_codec_kernel(kernel)) continue;
    const Coded coded = code(form, mode, raw);
    if (!any) first = coded;
    any = true;
    EXPECT_EQ(first.codec, coded.codec) << kernel;
    EXPECT_EQ(first.stored, coded.stored) << kernel;
    if (first.codec == LeafCodec::raw) continue;
    Bytes back(raw.size(), std::byte{0x77});
    const Status status = decode(first, back);
    EXPECT_TRUE(status.ok()) << kernel << ": " << status.message();
    EXPECT_EQ(raw, back) << kernel;
  }
  EXPECT_TRUE(any);
  return first.codec == LeafCodec::raw ? raw.size() : first.stored.size();
}

TEST(Planar, kernels_agree_on_real_values) {
  for (const Element element : kElements) {
    for (const Mode mode : kModes) {
      const size_t width = element_bytes(element);
      for (const size_t count : {size_t{1024} * (width == 1 ? 2 : 1), size_t{3072}, kMaxLeafBytes / width}) {
        const Bytes raw = sample(element, 6144, count);
        EXPECT_LT(agree({element, 64, 16}, mode, raw), raw.size())
            << static_cast<int>(element) << ' ' << static_cast<int>(mode) << ' ' << count;
      }
    }
  }
}

TEST(Planar, makes_real_leaves_smaller_by_what_is_promised) {
  const Bytes raw = sample(Element::bf16, 0, 184320);
  size_t coded[2] = {};
  constexpr size_t kLeaf = 6144;  // 16 tokens of 3 heads
  for (size_t at = 0; at < raw.size(); at += kLeaf) {
    const Bytes leaf(raw.begin() + static_cast<ptrdiff_t>(at), raw.begin() + static_cast<ptrdiff_t>(at + kLeaf));
    coded[0] += agree({Element::bf16, 64, 16}, Mode::fast, leaf);
    coded[1] += agree({Element::bf16, 64, 16}, Mode::standard, leaf);
  }
  EXPECT_GT(static_cast<double>(raw.size()), 1.36 * static_cast<double>(coded[0]));
  EXPECT_GT(static_cast<double>(raw.size()), 1.42 * static_cast<double>(coded[1]));
}

TEST(Planar, a_leaf_tells_its_mode) {
  Workspace workspace;
  for (const Element element : kElements) {
    const Bytes raw = sample(element, 0, 8192);
    for (const Mode mode : kModes) {
      alignas(64) static std::byte room[encode_room(kMaxLeafBytes)];
      const LeafForm form{element, 64, 0};
      const auto coded = encode_leaf(form, mode, raw, leaf_hash(raw), {room, encode_room(raw.size())}, workspace);
      ASSERT_TRUE(coded.ok());
      if (element != Element::bf16 && coded.value().codec == LeafCodec::raw) continue;  // no gain
      ASSERT_EQ(coded.value().codec, LeafCodec::planar);
      const auto told = mode_of(LeafCodec::planar, ConstBytes(room, coded.value().bytes));
      if (std::to_integer<uint8_t>(room[kShapeAt]) <= 8) {
        EXPECT_EQ(mode, told) << static_cast<int>(element);
      } else {
        EXPECT_FALSE(told.has_value()) << "signs and equal rows are of several modes";
      }
    }
  }
  EXPECT_EQ(Mode::off, mode_of(LeafCodec::raw, {}));
  EXPECT_FALSE(mode_of(LeafCodec::planar, {}).has_value());
}

TEST(Planar, rows_and_heads_of_any_shape_come_back) {
  SeededRandom random(kSeed);
  for (int trial = 0; trial < 200; ++trial) {
    const Element element = kElements[random.below(std::size(kElements))];
    const size_t count = 1 + random.below(kMaxLeafBytes / element_bytes(element) - 1);
    Bytes raw = sample(element, random.below(100000), count);
    for (uint64_t extra = random.below(element_bytes(element)); extra > 0 && raw.size() < kMaxLeafBytes; --extra) {
      raw.push_back(std::byte{1});
    }
    const auto row = static_cast<uint32_t>(random.below(300));
    const auto rows = static_cast<uint32_t>(random.below(300));
    agree({element, row, rows}, kModes[random.below(std::size(kModes))], raw);
  }
  agree({Element::bf16, UINT32_MAX, UINT32_MAX}, Mode::standard, sample(Element::bf16, 0, 4096));
  agree({Element::bf16, 65535, UINT32_MAX}, Mode::standard, sample(Element::bf16, 0, 32768));
  // The last head is incomplete, so there are more samples than blocks.
  agree({Element::fp8_e4m3, 64, 1023}, Mode::max, sample(Element::fp8_e4m3, 0, kMaxLeafBytes));
}

template <class T>
Bytes bits_of(std::initializer_list<T> values, size_t count) {
  const std::vector<T> list(values);
  Bytes out(count * sizeof(T));
  for (size_t i = 0; i < count; ++i) {
    // Runs of different lengths, so that no period hides a mistake.
    store_le(out.data() + i * sizeof(T), list[(i * i / 7 + i) % list.size()]);
  }
  return out;
}

TEST(Planar, odd_values_come_back_bit_for_bit) {
  for (const Mode mode : kModes) {
    for (const size_t count : {64, 127, 1000, 4096}) {
      // NaN quiet, signalling and with payload, infinities, denormals, zeros of both signs, the largest, one.
      const std::initializer_list<uint16_t> bf16 = {0x7FC0, 0xFFC1, 0x7F81, 0x7F80, 0xFF80, 0x0001,
                                                    0x807F, 0x0000, 0x8000, 0x7F7F, 0x3F80};
      const std::initializer_list<uint16_t> fp16 = {0x7E00, 0xFE01, 0x7C01, 0x7C00, 0xFC00, 0x0001,
                                                    0x83FF, 0x0000, 0x8000, 0x7BFF, 0x3C00};
      const std::initializer_list<uint32_t> fp32 = {0x7FC00000, 0xFFC00001, 0x7F800001, 0x7F800000, 0xFF800000, 1,
                                                    0x807FFFFF, 0,          0x80000000, 0x7F7FFFFF, 0x3F800000};
      const std::initializer_list<uint8_t> fp8 = {0x7F, 0xFF, 0x7C, 0xFC, 0x01, 0x87, 0x00, 0x80, 0x7E, 0x38};
      agree({Element::bf16, 64, 16}, mode, bits_of(bf16, count));
      agree({Element::fp16, 64, 16}, mode, bits_of(fp16, count));
      agree({Element::fp32, 64, 16}, mode, bits_of(fp32, count));
      agree({Element::fp8_e4m3, 64, 16}, mode, bits_of(fp8, count));
      agree({Element::fp8_e5m2, 64, 16}, mode, bits_of(fp8, count));
    }
  }
}

TEST(Planar, values_that_no_sample_saw_are_escaped) {
  for (const Element element : kElements) {
    for (const Mode mode : kModes) {
      Bytes raw = sample(element, 0, kMaxLeafBytes / element_bytes(element));
      SeededRandom random(kSeed);
      // Changes values outside of the sampled rows.
      for (size_t at = 64 * element_bytes(element); at + 64 < raw.size(); at += 100 + random.below(400)) {
        for (size_t i = 0; i < random.below(64); ++i) raw[at + i] = static_cast<std::byte>(random.next());
      }
      agree({element, 64, 256}, mode, raw);
    }
  }
}

TEST(Planar, every_length_comes_back) {
  for (const Element element : kElements) {
    for (size_t bytes = 1; bytes <= 700; ++bytes) {
      Bytes raw = sample(element, 5000 + bytes, bytes / element_bytes(element) + 1);
      raw.resize(bytes);
      agree({element, 64, 2}, kModes[bytes % std::size(kModes)], raw);
    }
  }
}

// Returns 256 rows, of which every second one repeats an earlier one.
Bytes with_equal_rows(Element element) {
  const size_t row = 64 * element_bytes(element);
  Bytes raw = sample(element, 0, size_t{256} * 64);
  SeededRandom random(kSeed);
  for (size_t r = 1; r < 256; r += 2) {
    std::memcpy(raw.data() + r * row, raw.data() + random.below(r) * row, row);
  }
  return raw;
}

TEST(Planar, equal_rows_are_stored_once) {
  for (const Element element : kElements) {
    for (const Mode mode : kModes) {
      const Bytes raw = with_equal_rows(element);
      EXPECT_LT(agree({element, 64, 128}, mode, raw), raw.size() / 2 + 2048);
    }
  }
}

TEST(Planar, rows_that_are_not_filled_cost_next_to_nothing) {
  Bytes raw = sample(Element::bf16, 0, 32768);
  std::fill(raw.begin() + 8192, raw.end(), std::byte{0});
  EXPECT_LT(agree({Element::bf16, 64, 256}, Mode::standard, raw), 8192U);
}

// Returns rows like those of K: a channel mostly keeps its sign from row to row.
Bytes with_kept_signs(Element element, size_t row, size_t count) {
  Bytes raw = sample(element, 0, count);
  const size_t width = element_bytes(element);
  SeededRandom random(kSeed);
  for (size_t i = 0; i < count; ++i) {
    std::byte& top = raw[(i + 1) * width - 1];
    const auto sign = i < row ? std::byte{0} : raw[(i + 1 - row) * width - 1] & std::byte{0x80};
    top = (top & std::byte{0x7F}) | (random.below(16) == 0 ? sign ^ std::byte{0x80} : sign);
  }
  return raw;
}

constexpr Element kSigned[] = {Element::bf16, Element::fp16, Element::fp8_e4m3, Element::fp8_e5m2};

// `standard` codes signs of fp16 only: for other elements the gain is not worth the time.
TEST(Planar, signs_that_stay_are_coded_by_max_and_of_fp16_by_default) {
  for (const Element element : kElements) {
    const size_t count = kMaxLeafBytes / element_bytes(element) / 2;
    const Bytes raw = with_kept_signs(element, 64, count);
    const Coded fast = code({element, 64, 512}, Mode::fast, raw);
    const Coded standard = code({element, 64, 512}, Mode::standard, raw);
    const Coded max = code({element, 64, 512}, Mode::max, raw);
    EXPECT_TRUE(fast.codec == LeafCodec::raw || fast.stored[kShapeAt] == std::byte{3}) << static_cast<int>(element);
    ASSERT_EQ(LeafCodec::planar, standard.codec);
    ASSERT_EQ(LeafCodec::planar, max.codec);
    EXPECT_EQ(element == Element::fp16 ? kSignsShape : std::byte{6}, standard.stored[kShapeAt]);
    if (element == Element::fp32) {
      EXPECT_EQ(std::byte{8}, max.stored[kShapeAt]);
      continue;
    }
    EXPECT_EQ(kSignsShape, max.stored[kShapeAt]) << static_cast<int>(element);
    if (element != Element::fp16) {
      EXPECT_LT(max.stored.size() + count / 16, standard.stored.size())
          << static_cast<int>(element);  // half a bit each
    }
    agree({element, 64, 512}, Mode::standard, raw);
    agree({element, 64, 512}, Mode::max, raw);
  }
}

TEST(Planar, signs_that_change_are_not_coded_by_default) {
  const Bytes raw = sample(Element::fp16, 0, 32768);  // every sign is a coin's
  EXPECT_EQ(std::byte{6}, code({Element::fp16, 64, 512}, Mode::standard, raw).stored[kShapeAt]);
  const Bytes few = with_kept_signs(Element::fp16, 8, 128);  // too few rows to tell
  agree({Element::fp16, 8, 16}, Mode::standard, few);
}

TEST(Planar, signs_of_rows_of_any_length_come_back) {
  SeededRandom random(kSeed);
  for (const Element element : kSigned) {
    size_t with_signs = 0;
    for (uint32_t row = 1; row < 700; row += row < 70 ? 1 : 37) {
      const size_t count = 4096 + random.below(700);
      const Bytes raw = with_kept_signs(element, row, count);
      agree({element, row, static_cast<uint32_t>(random.below(20))}, Mode::max, raw);
      const Coded coded = code({element, row, 0}, Mode::max, raw);
      with_signs += coded.codec == LeafCodec::planar && coded.stored[kShapeAt] == kSignsShape;
    }
    EXPECT_GT(with_signs, 60U) << static_cast<int>(element);
  }
}

// Coded signs cost the exponents of bf16 one bit: 65 to 191 and zero remain. Leaves with other exponents are coded
// without signs.
TEST(Planar, exponents_at_the_limits_of_coded_signs_come_back) {
  for (const uint32_t exponent : {0U, 1U, 64U, 65U, 66U, 127U, 128U, 190U, 191U, 192U, 254U, 255U}) {
    for (const size_t at : {size_t{0}, size_t{100}, size_t{8191}}) {
      Bytes raw = with_kept_signs(Element::bf16, 64, 8192);
      for (const uint32_t mantissa : {0U, 1U, 0x7FU}) {
        store_le(raw.data() + 2 * at, static_cast<uint16_t>(0x8000 | exponent << 7 | mantissa));
        agree({Element::bf16, 64, 128}, Mode::max, raw);
      }
      const bool fits = exponent == 0 || (exponent > 64 && exponent < 192);
      EXPECT_EQ(fits, code({Element::bf16, 64, 128}, Mode::max, raw).stored[kShapeAt] == kSignsShape) << exponent;
    }
  }
}

TEST(Planar, signs_of_different_rows_are_coded) {
  for (const Element element : kSigned) {
    const size_t row = 64 * element_bytes(element);
    Bytes raw = with_kept_signs(element, 64, 256 * 64);
    for (size_t r = 128; r < 256; ++r) std::memcpy(raw.data() + r * row, raw.data() + (r - 128) * row, row);
    agree({element, 64, 256}, Mode::max, raw);
    const Coded coded = code({element, 64, 256}, Mode::max, raw);
    EXPECT_EQ(std::byte{16}, coded.stored[kShapeAt]);
    EXPECT_EQ(kSignsShape, coded.stored[64 + 2 * 256 + kShapeAt]);
  }
}

TEST(Planar, coded_signs_that_cannot_be_are_refused) {
  const Bytes raw = with_kept_signs(Element::bf16, 64, 4096);
  const Coded good = code({Element::bf16, 64, 64}, Mode::max, raw);
  ASSERT_EQ(kSignsShape, good.stored[kShapeAt]);
  Bytes back(raw.size());
  const auto with = [&](size_t at, uint32_t value, size_t bytes) {
    Coded bad = good;
    for (size_t i = 0; i < bytes; ++i) bad.stored[at + i] = static_cast<std::byte>(value >> (8 * i));
    return decode(bad, back).code();
  };
  EXPECT_EQ(Code::ok, with(12, 4096, 4));  // other signs, which the hash tells
  EXPECT_NE(raw, back);
  EXPECT_EQ(Code::damaged, with(12, 0, 4));
  EXPECT_EQ(Code::damaged, with(12, 4097, 4));
  EXPECT_EQ(Code::damaged, with(12, UINT32_MAX, 4));
  EXPECT_EQ(Code::damaged, with(2, 3, 1));  // fp32
  EXPECT_EQ(Code::damaged, with(2, 6, 1));  // int8
  EXPECT_EQ(Code::damaged, with(kShapeAt, 8, 1));
  EXPECT_EQ(Code::newer_version, with(kShapeAt, 18, 1));
  EXPECT_EQ(Code::newer_version, with(kShapeAt, 9, 1));
}

// No changed byte may crash, nor give wrong bytes that carry the right hash.
TEST(Planar, damage_is_seen_or_told_by_the_hash) {
  constexpr Mode kTried[] = {Mode::fast, Mode::standard, Mode::max, Mode::max};
  for (const Element element : kElements) {
    for (size_t kind = 0; kind < std::size(kTried); ++kind) {
      const Mode mode = kTried[kind];
      const Bytes raw = kind == 3           ? with_kept_signs(element, 64, 2100)
                        : mode == Mode::max ? with_equal_rows(element)
                                            : sample(element, 0, 2100);
      const Coded good = code({element, 64, 8}, mode, raw);
      ASSERT_EQ(LeafCodec::planar, good.codec);
      SeededRandom random(kSeed);
      for (size_t at = 0; at < good.stored.size(); at += at < 1024 ? 1 : 1 + random.below(good.stored.size() / 1024)) {
        Coded bad = good;
        bad.stored[at] ^= static_cast<std::byte>(1 + random.below(255));
        Bytes back(raw.size());
        if (!decode(bad, back).ok()) continue;
        EXPECT_TRUE(back == raw || leaf_hash(back) != raw_hash_of(bad.stored)) << at;
      }
      for (size_t cut = 0; cut < good.stored.size(); cut += 64) {
        Coded bad = good;
        bad.stored.resize(cut);
        Bytes back(raw.size());
        EXPECT_FALSE(decode(bad, back).ok()) << cut;
      }
    }
  }
}

TEST(Planar, trees_that_are_not_complete_are_refused) {
  const Bytes raw = sample(Element::bf16, 0, 4096);
  const Coded good = code({Element::bf16, 64, 16}, Mode::standard, raw);
  ASSERT_EQ(LeafCodec::planar, good.codec);
  Bytes back(raw.size());
  const auto with_counts = [&](std::initializer_list<uint8_t> counts) {
    Coded bad = good;
    std::transform(counts.begin(), counts.end(), bad.stored.begin() + 32, [](uint8_t c) { return std::byte{c}; });
    return decode(bad, back).code();
  };
  EXPECT_EQ(Code::damaged, with_counts({0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(Code::damaged, with_counts({2, 0, 0, 0, 0, 2, 0, 0}));
  EXPECT_EQ(Code::damaged, with_counts({1, 1, 1, 1, 1, 1, 0, 0}));
  EXPECT_EQ(Code::damaged, with_counts({0, 0, 0, 0, 0, 64, 0, 0}));
  EXPECT_EQ(Code::damaged, with_counts({255, 255, 255, 255, 255, 255, 255, 255}));
  Coded bad = good;
  bad.stored[3] = std::byte{200};
  EXPECT_EQ(Code::newer_version, decode(bad, back).code());
}

// Leaves that an earlier version wrote must stay readable in all later ones. KVBM_WRITE_GOLDEN=1 writes the files
// again.
TEST(Planar, golden_leaves_decode_and_are_still_written) {
  struct Golden {
    const char* name;
    Element element;
    Mode mode;
    uint32_t row;
    size_t count;
    bool signs = false;
    bool written = true;  // false: by an earlier version, and read still
  };
  constexpr Golden kGolden[] = {
      {"bf16-fast", Element::bf16, Mode::fast, 64, 1024},
      {"bf16-default", Element::bf16, Mode::standard, 64, 2000},
      {"bf16-max", Element::bf16, Mode::max, 96, 2000},
      {"fp16-default", Element::fp16, Mode::standard, 64, 1024, false, false},
      {"fp16-default-signs", Element::fp16, Mode::standard, 64, 1024, true},
      {"fp32-default", Element::fp32, Mode::standard, 64, 600},
      {"e4m3-default", Element::fp8_e4m3, Mode::standard, 64, 2048},
      {"e5m2-default", Element::fp8_e5m2, Mode::standard, 80, 2050},
      {"bf16-rows", Element::bf16, Mode::standard, 64, 3072},
      {"bf16-zstd", Element::bf16, Mode::zstd, 64, 1024},
      {"bf16-signs", Element::bf16, Mode::max, 64, 2000, true},
      {"fp16-signs", Element::fp16, Mode::max, 64, 1024, true},
      {"e4m3-signs", Element::fp8_e4m3, Mode::max, 80, 2048, true},
      {"e5m2-signs", Element::fp8_e5m2, Mode::max, 64, 2050, true},
  };
  for (const Golden& golden : kGolden) {
    Bytes raw = golden.signs ? with_kept_signs(golden.element, golden.row, golden.count)
                             : sample(golden.element, 12288, golden.count);
    if (std::string(golden.name) == "bf16-rows")
      std::copy_n(raw.begin(), raw.size() / 2, raw.begin() + static_cast<ptrdiff_t>(raw.size() / 2));
    const std::string path = std::string("/golden/leaf-v1-") + golden.name + ".bin";
    const Coded now = code({golden.element, golden.row, 16}, golden.mode, raw);
    EXPECT_TRUE(!golden.written || golden.signs == (now.stored[kShapeAt] == kSignsShape)) << path;
    if (golden.written && std::getenv("KVBM_WRITE_GOLDEN") != nullptr) {
      std::ofstream(std::string(KVBM_TEST_DATA) + path, std::ios::binary)
          .write(reinterpret_cast<const char*>(now.stored.data()), static_cast<std::streamsize>(now.stored.size()));
    }
    const Bytes stored = file(path);
    ASSERT_FALSE(stored.empty()) << path;
    const bool zstd = golden.mode == Mode::zstd;
    const RestoreKernel restore;
    for (const char* kernel : kKernels) {
      if (!force_codec_kernel(kernel)) continue;
      Bytes back(raw.size());
      const Status status = decode({zstd ? LeafCodec::zstd : LeafCodec::planar, stored}, back);
      if (status.code() == Code::unsupported) continue;  // built without zstd
      EXPECT_TRUE(status.ok()) << path << ' ' << status.message();
      EXPECT_EQ(raw, back) << path;
      EXPECT_EQ(leaf_hash(raw), raw_hash_of(stored)) << path;
    }
    if (zstd || !golden.written) continue;  // another zstd may write other bytes
    EXPECT_EQ(stored, now.stored) << path;
  }
}

TEST(Planar, unknown_kernels_are_not_forced) {
  EXPECT_FALSE(force_codec_kernel("mmx"));
  EXPECT_TRUE(force_codec_kernel("portable"));
  EXPECT_STREQ("portable", codec_kernel_name());
  EXPECT_TRUE(force_codec_kernel(nullptr));
}

}  // namespace
}  // namespace kvbm::codec::planar_test
