#include "codec/coded/coded_stream.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/crypto/random.h"
#include "codec/hash/leaf_hash.h"

namespace kvbm::codec::coded_stream_test {
namespace {

// Values of bf16 as in a cache: few exponents, any mantissa.
std::vector<std::byte> bf16_like(size_t values, uint64_t seed) {
  SeededRandom random(seed);
  std::vector<std::byte> out(values * 2);
  for (size_t i = 0; i < values; ++i) {
    const uint64_t word = random.next();
    const auto exponent = static_cast<uint16_t>(120 + (word & 3) + (i % 64) / 16);
    store_le(out.data() + 2 * i, static_cast<uint16_t>((word >> 32 & 0x807F) | exponent << 7));
  }
  return out;
}

struct Made {
  std::vector<std::byte> room;
  MutableBytes stream;
};

Made encode(const LeafForm& form, Mode mode, ConstBytes raw, size_t misaligned = 0) {
  Made made;
  made.room.resize(stream_room(form, raw.size()) + 128);
  auto* at = reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(made.room.data()), 64)) + misaligned;
  Workspace workspace;
  const auto bytes = encode_stream(form, mode, raw, {at, stream_room(form, raw.size())}, workspace);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  if (bytes.ok()) made.stream = {at, bytes.value()};
  return made;
}

Status decode(ConstBytes stream, std::vector<std::byte>& out, bool allow_lossy = false) {
  const auto view = StreamView::parse(stream);
  if (!view.ok()) return view.status();
  out.assign(view.value().info().raw_bytes, std::byte{0xEE});
  Workspace workspace;
  return view.value().decode(allow_lossy, out, workspace);
}

constexpr LeafForm kForms[] = {{},
                               {Element::bf16, 64, 0},
                               {Element::bf16, 64, 512},
                               {Element::bf16, 192, 512},
                               {Element::bf16, 64, 16},
                               {Element::bf16, 40'000, 3},
                               {Element::bf16, 1000, UINT32_MAX},
                               {Element::fp32, UINT32_MAX, UINT32_MAX}};
constexpr Mode kModes[] = {Mode::off, Mode::fast, Mode::standard, Mode::max, Mode::zstd};

TEST(CodedStream, gives_back_every_byte_of_any_size_and_form) {
  Workspace workspace;
  for (const size_t bytes : {0, 1, 63, 64, 65, 127, 4096, 65535, 65536, 65537, 300'000}) {
    auto raw = bf16_like(bytes / 2 + 1, bytes);
    raw.resize(bytes);
    for (const LeafForm& form : kForms) {
      for (const Mode mode : kModes) {
        const Made made = encode(form, mode, raw);
        std::vector<std::byte> out;
        const Status done = decode(made.stream, out);
        ASSERT_TRUE(done.ok()) << done.message() << " bytes " << bytes << " mode " << mode_name(mode);
        ASSERT_TRUE(out == raw) << bytes;
      }
    }
  }
}

TEST(CodedStream, is_the_same_at_any_alignment) {
  const auto raw = bf16_like(100'000, 1);
  const Made aligned = encode(kForms[1], Mode::standard, raw);
  const Made moved = encode(kForms[1], Mode::standard, raw, 5);
  ASSERT_EQ(aligned.stream.size(), moved.stream.size());
  EXPECT_TRUE(std::equal(aligned.stream.begin(), aligned.stream.end(), moved.stream.begin()));
  std::vector<std::byte> out;
  ASSERT_TRUE(decode(moved.stream, out).ok());
  EXPECT_TRUE(out == raw);
}

// A byte that means nothing to decoding (a frame says again what the table says) may differ.
TEST(CodedStream, gives_the_right_bytes_or_none_whichever_byte_changed) {
  const auto raw = bf16_like(3000, 2);
  for (const Mode mode : {Mode::off, Mode::standard}) {
    Made made = encode({Element::bf16, 64, 0}, mode, raw);
    std::vector<std::byte> out;
    for (size_t i = 0; i < made.stream.size(); ++i) {
      for (const auto flip : {std::byte{1}, std::byte{0x80}, std::byte{0xFF}}) {
        made.stream[i] ^= flip;
        ASSERT_TRUE(!decode(made.stream, out).ok() || out == raw) << "byte " << i;
        made.stream[i] ^= flip;
      }
    }
    EXPECT_TRUE(decode(made.stream, out).ok());
  }
}

TEST(CodedStream, refuses_a_changed_head_and_every_other_length) {
  const auto raw = bf16_like(3000, 3);
  Made made = encode({Element::bf16, 64, 0}, Mode::standard, raw);
  for (size_t i = 0; i < 128; ++i) {  // header, table and checksum: nothing of them is idle
    made.stream[i] ^= std::byte{0x10};
    EXPECT_FALSE(StreamView::parse(made.stream).ok()) << i;
    made.stream[i] ^= std::byte{0x10};
  }
  for (size_t n = 0; n < made.stream.size(); ++n) EXPECT_FALSE(StreamView::parse(made.stream.first(n)).ok()) << n;
  std::vector<std::byte> longer(made.stream.begin(), made.stream.end());
  longer.resize(longer.size() + 64);
  EXPECT_EQ(StreamView::parse(longer).status().code(), Code::damaged);
}

TEST(CodedStream, finds_leaves_that_changed_places) {
  const auto raw = bf16_like(65536, 4);
  Made made = encode({}, Mode::off, raw);
  const size_t head = made.stream.size() - raw.size();
  std::swap_ranges(made.stream.begin() + static_cast<ptrdiff_t>(head),
                   made.stream.begin() + static_cast<ptrdiff_t>(head + 65536),
                   made.stream.begin() + static_cast<ptrdiff_t>(head + 65536));
  std::vector<std::byte> out;
  EXPECT_EQ(decode(made.stream, out).code(), Code::damaged);
}

TEST(CodedStream, knows_newer_versions) {
  const auto raw = bf16_like(100, 5);
  Made made = encode({}, Mode::off, raw);
  made.stream[4] = std::byte{2};
  EXPECT_EQ(StreamView::parse(made.stream).status().code(), Code::newer_version);
}

TEST(CodedStream, claims_of_huge_sizes_are_refused_without_taking_memory) {
  const auto raw = bf16_like(100, 6);
  for (const auto& [at, value] : {std::pair{8, UINT64_MAX}, {16, UINT64_MAX}, {8, uint64_t{1} << 41}}) {
    Made made = encode({}, Mode::off, raw);
    store_le(made.stream.data() + at, value);
    EXPECT_EQ(StreamView::parse(made.stream).status().code(), Code::damaged);
  }
  Made made = encode({}, Mode::off, raw);
  store_le(made.stream.data() + 24, UINT32_MAX);
  EXPECT_EQ(StreamView::parse(made.stream).status().code(), Code::damaged);
}

TEST(CodedStream, grows_within_its_room_and_by_its_head_alone) {
  SeededRandom random(7);
  std::vector<std::byte> raw(1'000'003);
  random.fill(raw);
  for (const LeafForm& form : kForms) {
    for (const Mode mode : kModes) {
      const Made made = encode(form, mode, raw);
      EXPECT_LE(made.stream.size(), stream_room(form, raw.size()));
      // 64 and 24 a leaf, filled up to 64; and zeros before the next leaf, where one does not end at a multiple of 64.
      const uint64_t leaves = StreamCut(form, raw.size()).leaves();
      EXPECT_LE(made.stream.size(), round_up(64 + 24 * leaves, 64) + raw.size() + 63 * leaves) << mode_name(mode);
      std::vector<std::byte> out;
      ASSERT_TRUE(decode(made.stream, out).ok());
      EXPECT_TRUE(out == raw);
    }
  }
}

TEST(CodedStream, noise_in_whole_leaves_grows_by_24_bytes_each) {
  SeededRandom random(8);
  std::vector<std::byte> raw(40 * kMaxLeafBytes);
  random.fill(raw);
  for (const Mode mode : {Mode::off, Mode::fast, Mode::standard, Mode::max, Mode::zstd}) {
    const Made made = encode({Element::bf16, 64, 512}, mode, raw);
    EXPECT_EQ(made.stream.size(), raw.size() + 64 + 24 * 40) << mode_name(mode);
  }
}

TEST(CodedStream, needs_its_room) {
  const auto raw = bf16_like(5000, 8);
  std::vector<std::byte> out(stream_room({}, raw.size()) - 1);
  Workspace workspace;
  EXPECT_EQ(encode_stream({}, Mode::zstd, raw, out, workspace).status().code(), Code::no_room);
  const Made made = encode({}, Mode::zstd, raw);
  std::vector<std::byte> small(raw.size() - 1);
  EXPECT_EQ(StreamView::parse(made.stream).value().decode(false, small, workspace).code(), Code::no_room);
}

TEST(CodedStream, lossy_needs_a_permission_and_says_what_it_lost) {
  const auto raw = bf16_like(64 * 512, 9);
  const Made made = encode({Element::bf16, 64, 512}, Mode::int8, raw);
  const auto view = StreamView::parse(made.stream);
  ASSERT_TRUE(view.ok());
  ASSERT_TRUE(view.value().info().lossy);
  std::vector<std::byte> out;
  EXPECT_EQ(decode(made.stream, out, false).code(), Code::not_permitted);
  ASSERT_TRUE(decode(made.stream, out, true).ok());
  EXPECT_FALSE(out == raw);
  const uint64_t ppb = error_ppb(view.value().info().difference, view.value().info().value);
  EXPECT_GT(ppb, 0U);
  EXPECT_LT(ppb, 1'000'000U);
}

TEST(CodedStream, a_lossy_mode_that_does_not_fit_loses_nothing) {
  const auto raw = bf16_like(5000, 10);
  const Made made = encode({}, Mode::int8, raw);
  std::vector<std::byte> out;
  ASSERT_TRUE(decode(made.stream, out, false).ok());
  EXPECT_TRUE(out == raw);
}

TEST(StreamCut, has_whole_heads_or_equal_pieces_of_one) {
  const auto cut = [](const LeafForm& form, uint64_t bytes) {
    const StreamCut c(form, bytes);
    std::vector<uint32_t> out;
    for (uint64_t at = 0; at < bytes; at += out.back()) out.push_back(c.next(at));
    EXPECT_EQ(out.size(), c.leaves());
    return out;
  };
  using List = std::vector<uint32_t>;
  EXPECT_EQ(cut({}, 150'000), (List{65536, 65536, 18928}));
  EXPECT_EQ(cut({Element::bf16, 64, 0}, 150'000), (List{65536, 65536, 18928}));
  EXPECT_EQ(cut({Element::bf16, 192, 0}, 150'000), (List{65280, 65280, 19440}));
  EXPECT_EQ(cut({Element::bf16, 192, 512}, 2 * 196'608),
            (List{49152, 49152, 49152, 49152, 49152, 49152, 49152, 49152}));
  EXPECT_EQ(cut({Element::bf16, 64, 100}, 40'000), (List{40'000}));
  EXPECT_EQ(cut({Element::bf16, 64, 100}, 100'000), (List{64'000, 36'000}));
}

TEST(StreamErrors, round_up_and_survive_any_figures) {
  EXPECT_EQ(error_ppb(0, 0), 0U);
  EXPECT_EQ(error_ppb(-1, 5), 0U);
  EXPECT_EQ(error_ppb(1, 0), uint64_t{1} << 63);
  EXPECT_EQ(error_ppb(1e-9, 1), 1U);
  EXPECT_EQ(error_ppb(1.5e-9, 1), 2U);
  EXPECT_EQ(error_ppb(std::bit_cast<double>(0x7FF8000000000000ULL), 1), 0U);
  EXPECT_EQ(error_ppb(1, std::bit_cast<double>(0x7FF8000000000000ULL)), uint64_t{1} << 63);
}

}  // namespace
}  // namespace kvbm::codec::coded_stream_test
