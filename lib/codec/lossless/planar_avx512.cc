// Planar blocks with AVX-512 (BW, VBMI, VBMI2) and BMI2: one register holds the codes of a block.
#include "codec/lossless/planar_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#if defined(__clang__)
#pragma clang attribute push( \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt"))), apply_to = function)
#else
// gcc 12's own intrinsics leave the masked-off operand uninitialized on purpose, and warn of it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt,prefer-vector-width=512")
#endif

namespace kvbm::codec {
namespace {

using Vector = __m512i;

inline Vector load(const void* p) noexcept { return _mm512_loadu_si512(p); }
inline void store(std::byte* p, Vector v) noexcept { _mm512_storeu_si512(p, v); }
inline Vector repeat(uint32_t byte) noexcept { return _mm512_set1_epi8(static_cast<char>(byte)); }
inline uint64_t load_word(const std::byte* p) noexcept {
  uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
inline void store_word(std::byte* p, uint64_t v) noexcept { std::memcpy(p, &v, sizeof v); }
// Moves a mask that is used twice only once: compilers would repeat the move, and that port is the busiest.
inline uint64_t word_of(__mmask64 mask) noexcept {
  uint64_t v = _cvtmask64_u64(mask);
  __asm__("" : "+r"(v));
  return v;
}
inline uint32_t ones_of(uint64_t v) noexcept { return static_cast<uint32_t>(_mm_popcnt_u64(v)); }

// Selects the bytes of two registers that make one: every `step`-th from `first` on; and places the bytes of two
// planes.
template <class T>
struct Pick {
  static constexpr uint32_t kCount = kBlock / sizeof(T);
  alignas(64) T at[kCount];
};
constexpr Pick<uint8_t> pick_every(uint32_t step, uint32_t first) noexcept {
  Pick<uint8_t> pick{};
  for (uint32_t i = 0; i < kBlock; ++i) pick.at[i] = static_cast<uint8_t>((i * step + first) % 128);
  return pick;
}
template <class T>
constexpr Pick<T> interleave(uint32_t first) noexcept {  // a, b alternate: a from element `first` on
  Pick<T> pick{};
  for (uint32_t i = 0; i < pick.kCount; ++i) pick.at[i] = static_cast<T>(first + i / 2 + (i % 2) * pick.kCount);
  return pick;
}
constexpr Pick<uint8_t> kEven = pick_every(2, 0);
constexpr Pick<uint8_t> kOdd = pick_every(2, 1);
constexpr Pick<uint8_t> kFourth[4] = {pick_every(4, 0), pick_every(4, 1), pick_every(4, 2), pick_every(4, 3)};
constexpr Pick<uint8_t> kLowHalf = interleave<uint8_t>(0);
constexpr Pick<uint8_t> kHighHalf = interleave<uint8_t>(32);
// Join two interleaved pairs of bytes to elements of four: words of a and b alternate.
constexpr Pick<uint16_t> kLowWords = interleave<uint16_t>(0);
constexpr Pick<uint16_t> kHighWords = interleave<uint16_t>(16);

// Leaves mostly follow one another: while one is coded, the memory behind it is fetched. A hint, so it may belong to no
// leaf.
template <uint32_t kLines, auto kHint>
inline void fetch(const std::byte* from, size_t distance) noexcept {
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(from) + distance;
#pragma GCC unroll 4
  for (uint32_t line = 0; line < kLines; ++line) {
    _mm_prefetch(reinterpret_cast<const char*>(ahead + 64 * line), kHint);
  }
}

// Stores wait for their lines too, and stores that miss fill their queue. Not if only memory is waited for, as when all
// levels are full.
constexpr size_t kBlocksAhead = 16;

// Returns the top bytes of a block; the others go to their planes.
template <uint32_t kWidth>
inline Vector split(const std::byte* raw, std::byte* plane, size_t plane_bytes) noexcept {
  if constexpr (kWidth == 1) {
    const Vector v = load(raw);
    const Vector high = _mm512_and_si512(_mm512_slli_epi16(v, 1), repeat(0xFE));
    return _mm512_or_si512(high, _mm512_and_si512(_mm512_srli_epi16(v, 7), repeat(1)));
  } else if constexpr (kWidth == 2) {
    const Vector a = load(raw);
    const Vector b = load(raw + 64);
    const Vector ta = _mm512_shldi_epi16(a, a, 1);
    const Vector tb = _mm512_shldi_epi16(b, b, 1);
    store(plane, _mm512_permutex2var_epi8(ta, load(kEven.at), tb));
    return _mm512_permutex2var_epi8(ta, load(kOdd.at), tb);
  } else {
    const Vector a = _mm512_rol_epi32(load(raw), 1);
    const Vector b = _mm512_rol_epi32(load(raw + 64), 1);
    const Vector c = _mm512_rol_epi32(load(raw + 128), 1);
    const Vector d = _mm512_rol_epi32(load(raw + 192), 1);
    Vector planes[4];
    for (uint32_t p = 0; p < 4; ++p) {
      const Vector pick = load(kFourth[p].at);
      const Vector low = _mm512_permutex2var_epi8(a, pick, b);
      const Vector high = _mm512_permutex2var_epi8(c, pick, d);
      planes[p] = _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
    }
    for (uint32_t p = 0; p < 3; ++p) store(plane + p * plane_bytes, planes[p]);
    return planes[3];
  }
}

// Returns eight words of seven bits a byte. Seven words of eight bits are stored: their lowest bits together are the
// eighth word.
inline Vector unpack(const std::byte* packed) noexcept {
  const Vector places = _mm512_setr_epi64(1, 2, 3, 4, 5, 6, 7, 0);
  const Vector words = _mm512_maskz_loadu_epi64(0x7F, packed);
  Vector eighth = _mm512_sllv_epi64(_mm512_and_si512(words, repeat(1)), places);
  eighth = _mm512_or_si512(eighth, _mm512_shuffle_i64x2(eighth, eighth, 0x4E));
  eighth = _mm512_or_si512(eighth, _mm512_shuffle_i64x2(eighth, eighth, 0xB1));
  const Vector turned = _mm512_shuffle_epi32(eighth, _MM_PERM_BADC);
  return _mm512_mask_or_epi64(_mm512_andnot_si512(repeat(1), words), 0x80, eighth, turned);
}

template <uint32_t kWidth, bool kPacked>
inline void join(Vector top, const std::byte* plane, size_t plane_bytes, std::byte* raw) noexcept {
  if constexpr (kWidth == 1) {
    const Vector low = _mm512_and_si512(_mm512_srli_epi16(top, 1), repeat(0x7F));
    store(raw, _mm512_or_si512(low, _mm512_and_si512(_mm512_slli_epi16(top, 7), repeat(0x80))));
  } else if constexpr (kWidth == 2) {
    const Vector bytes = kPacked ? unpack(plane) : load(plane);
    const Vector a = _mm512_permutex2var_epi8(bytes, load(kLowHalf.at), top);
    const Vector b = _mm512_permutex2var_epi8(bytes, load(kHighHalf.at), top);
    store(raw, _mm512_shrdi_epi16(a, a, 1));
    store(raw + 64, _mm512_shrdi_epi16(b, b, 1));
  } else {
    const Vector p0 = load(plane);
    const Vector p1 = load(plane + plane_bytes);
    const Vector p2 = load(plane + 2 * plane_bytes);
    const Vector halves[2][2] = {
        {_mm512_permutex2var_epi8(p0, load(kLowHalf.at), p1), _mm512_permutex2var_epi8(p2, load(kLowHalf.at), top)},
        {_mm512_permutex2var_epi8(p0, load(kHighHalf.at), p1), _mm512_permutex2var_epi8(p2, load(kHighHalf.at), top)}};
    for (uint32_t h = 0; h < 2; ++h) {
      const Vector a = _mm512_permutex2var_epi16(halves[h][0], load(kLowWords.at), halves[h][1]);
      const Vector b = _mm512_permutex2var_epi16(halves[h][0], load(kHighWords.at), halves[h][1]);
      store(raw + 128 * h, _mm512_ror_epi32(a, 1));
      store(raw + 128 * h + 64, _mm512_ror_epi32(b, 1));
    }
  }
}

// Returns `n` bits from bit `at` on, and undefined bits above. At level 2 and beyond n is seldom more than half of 64.
inline uint64_t take_bits(const std::byte* streams, uint64_t at, uint32_t n) noexcept {
  const std::byte* const byte = streams + at / 8;
  const uint64_t bits = load_word(byte) >> at % 8;
  if (__builtin_expect(n <= 57, 1)) return bits;
  return bits | std::to_integer<uint64_t>(byte[8]) << 1 << (63 - at % 8);
}

// A stream being written: `at` bits so far. The bits of its last byte are read back: an eight-byte store is forwarded
// at once to a load within it. Bits behind the last one in that byte must be zero, also at the beginning.
struct BitWriter {
  uint64_t at;
  inline void put(std::byte* stream, uint64_t bits, uint32_t n) noexcept {
    const uint64_t fill = at % 8;
    std::byte* const byte = stream + at / 8;
    store_word(byte, std::to_integer<uint64_t>(*byte) | bits << fill);
    at += n;
    if (__builtin_expect(n > 56, 0)) byte[8] = static_cast<std::byte>(bits >> 1 >> (63 - fill));
  }
};

// Table from a code to its rank. A register holds the ranks of 64 codes, so codes of up to 6 bits need one register,
// those of 7 bits two, and those of 8 bits four.
template <uint32_t kLevels>
struct RankTable {
  Vector at[kLevels == 8 ? 4 : kLevels == 7 ? 2 : 1];
  explicit RankTable(const uint8_t* rank) noexcept {
    for (uint32_t i = 0; i < sizeof at / sizeof at[0]; ++i) at[i] = load(rank + size_t{kBlock} * i);
  }
  [[nodiscard]] inline Vector of(Vector codes) const noexcept {
    if constexpr (kLevels <= 6) return _mm512_permutexvar_epi8(codes, at[0]);
    if constexpr (kLevels == 7) return _mm512_permutex2var_epi8(at[0], codes, at[1]);
    if constexpr (kLevels == 8) {
      const Vector low = _mm512_permutex2var_epi8(at[0], codes, at[1]);
      const Vector high = _mm512_permutex2var_epi8(at[2], codes, at[3]);
      return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(codes), high);
    }
  }
};

template <uint32_t kLevels, uint32_t kFull>
struct LevelLimits {
  Vector at[kLevels];
  explicit LevelLimits(const PlanarPlan& plan) noexcept {
    for (uint32_t l = 0; l < kLevels; ++l) at[l] = repeat(plan.limit[l]);
  }
};

// Walks over the channels of the blocks: the vectors of a group's period, repeated.
class ClassWalk {
 public:
  explicit ClassWalk(const PlanarPlan& plan) noexcept
      : at_(plan.classes), first_(plan.classes), end_(plan.classes + size_t{kBlock} * plan.period) {}
  [[nodiscard]] inline Vector classes() const noexcept { return load(at_); }
  inline void next() noexcept {
    at_ += kBlock;
    if (at_ == end_) at_ = first_;
  }
  void next_group() noexcept {
    const ptrdiff_t bytes = end_ - first_;
    at_ = first_ = end_;
    end_ += bytes;
  }

 private:
  const uint8_t* at_;
  const uint8_t* first_;
  const uint8_t* end_;
};

uint32_t group_after(const PlanarPlan& plan, uint32_t block) noexcept {
  return plan.blocks - block < plan.group_blocks ? plan.blocks - block : plan.group_blocks;
}

// Parts of the loops below, always inlined: their counters stay in registers.
#define KVBM_INLINE __attribute__((always_inline)) inline

// Returns the codes of the next block. `at`: bits of the open streams so far.
template <uint32_t kLevels, uint32_t kFull>
KVBM_INLINE Vector read_codes(const std::byte* full, size_t full_bytes, const std::byte* streams,
                              uint64_t (&at)[kLevels], const LevelLimits<kLevels, kFull>& limits) noexcept {
  Vector codes = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (uint32_t l = 0; l < kLevels; ++l) {
    __mmask64 bit;
    if (l < kFull) {
      bit = _cvtu64_mask64(load_word(full + l * full_bytes));
    } else {
      const uint64_t open = word_of(_mm512_cmpge_epu8_mask(codes, limits.at[l]));
      const uint32_t n = ones_of(open);
      bit = _cvtu64_mask64(_pdep_u64(take_bits(streams, at[l], n), open));
      at[l] += n;
    }
    codes = _mm512_mask_add_epi8(codes, bit, codes, repeat(1U << (kLevels - 1 - l)));
  }
  return codes;
}

template <uint32_t kLevels, uint32_t kFull>
KVBM_INLINE void write_codes(Vector codes, std::byte* full, size_t full_bytes, std::byte* streams,
                             BitWriter (&writers)[kLevels], const LevelLimits<kLevels, kFull>& limits) noexcept {
#pragma GCC unroll 8
  for (uint32_t l = 0; l < kLevels; ++l) {
    const uint64_t ones = _cvtmask64_u64(_mm512_test_epi8_mask(codes, repeat(1U << (kLevels - 1 - l))));
    if (l < kFull) {
      store_word(full + l * full_bytes, ones);
      continue;
    }
    const uint64_t open = word_of(_mm512_cmpge_epu8_mask(codes, limits.at[l]));
    writers[l].put(streams, _pext_u64(ones, open), ones_of(open));
  }
}

// Returns top bytes: symbols, and their raw bits behind them.
template <uint32_t kRaw>
KVBM_INLINE Vector join_bits(Vector symbols, const std::byte* bits) noexcept {
  Vector top = _mm512_and_si512(_mm512_slli_epi16(symbols, kRaw), repeat(0xFF & ~((1U << kRaw) - 1)));
#pragma GCC unroll 8
  for (uint32_t b = 0; b < kRaw; ++b) {
    const __mmask64 bit = _cvtu64_mask64(load_word(bits + size_t{8} * b));
    top = _mm512_mask_add_epi8(top, bit, top, repeat(1U << (kRaw - 1 - b)));
  }
  return top;
}

// Returns the symbols of top bytes; stores the raw bits.
template <uint32_t kRaw>
KVBM_INLINE Vector split_bits(Vector top, std::byte* bits) noexcept {
#pragma GCC unroll 8
  for (uint32_t b = 0; b < kRaw; ++b) {
    store_word(bits + size_t{8} * b, _cvtmask64_u64(_mm512_test_epi8_mask(top, repeat(1U << (kRaw - 1 - b)))));
  }
  return _mm512_and_si512(_mm512_srli_epi16(top, kRaw), repeat(0xFF >> kRaw));
}

#undef KVBM_INLINE

template <uint32_t kWidth, uint32_t kRaw, uint32_t kLevels, uint32_t kFull, bool kPacked = false>
void decode(const PlanarPlan& plan, const PlanarPlaces& from, std::byte* raw, PlanarEnds& ends) noexcept {
  const RankTable<kLevels> ranks(plan.rank);
  const LevelLimits<kLevels, kFull> limits(plan);
  const Vector symbols_low = load(plan.symbol);
  const Vector symbols_high = load(plan.symbol + kBlock);
  const Vector escape = repeat((1U << kLevels) - 1);
  // Registers are few: one pointer for all open streams, one for the full ones, one for the lower planes.
  const std::byte* const streams = from.streams[kFull < kLevels ? kFull : 0];
  uint64_t at[kLevels];
  for (uint32_t l = kFull; l < kLevels; ++l) at[l] = static_cast<uint64_t>(from.streams[l] - streams) * 8;
  const std::byte* full = from.streams[0];
  const size_t full_bytes = size_t{8} * plan.blocks;
  const std::byte* low = from.planes[0];
  const std::byte* bits = from.bits;
  const size_t plane_bytes = size_t{kBlock} * plan.blocks;
  const std::byte* escapes = from.escapes;
  ClassWalk walk(plan);
  for (uint32_t block = 0; block < plan.blocks; walk.next_group()) {
    const uint32_t group = group_after(plan, block);
    block += group;
    for (const std::byte* const end = raw + size_t{group} * kBlock * kWidth; raw != end; raw += kBlock * kWidth) {
      if constexpr (kFull < kLevels) fetch<kWidth, _MM_HINT_T0>(raw, kBlocksAhead * kBlock * kWidth);
      const Vector codes = read_codes<kLevels, kFull>(full, full_bytes, streams, at, limits);
      full += 8;
      const __mmask64 escaped = _mm512_cmpeq_epi8_mask(codes, escape);
      const Vector index = _mm512_add_epi8(ranks.of(codes), walk.classes());
      Vector top = _mm512_permutex2var_epi8(symbols_low, index, symbols_high);
      top = _mm512_mask_expand_epi8(top, escaped, load(escapes));
      escapes += ones_of(_cvtmask64_u64(escaped));
      if constexpr (kRaw != 0) {
        top = join_bits<kRaw>(top, bits);
        bits += size_t{8} * kRaw;
      }
      join<kWidth, kPacked>(top, low, plane_bytes, raw);
      if constexpr (kWidth > 1) low += kPacked ? kPackedBlock : kBlock;
      walk.next();
    }
  }
  for (uint32_t l = 0; l < kFull; ++l) ends.bits[l] = plan.blocks * kBlock;
  for (uint32_t l = kFull; l < kLevels; ++l) {
    ends.bits[l] = static_cast<uint32_t>(at[l] - static_cast<uint64_t>(from.streams[l] - streams) * 8);
  }
  ends.escapes = static_cast<uint32_t>(escapes - from.escapes);
}

template <uint32_t kWidth, uint32_t kRaw, uint32_t kLevels, uint32_t kFull>
void encode(const PlanarPlan& plan, const std::byte* raw, const PlanarPlaces& to, PlanarEnds& ends) noexcept {
  const LevelLimits<kLevels, kFull> limits(plan);
  const Vector codes_low = load(plan.code);
  const Vector codes_high = load(plan.code + kBlock);
  const Vector escape = repeat((1U << kLevels) - 1);
  const Vector base = repeat(plan.base);
  BitWriter writers[kLevels];
  // Uses one pointer for all open streams, because registers are few.
  std::byte* const streams = to.streams[kFull < kLevels ? kFull : 0];
  for (uint32_t l = kFull; l < kLevels; ++l) {
    writers[l] = {static_cast<uint64_t>(to.streams[l] - streams) * 8};
    *to.streams[l] = std::byte{0};
  }
  std::byte* full = to.streams[0];
  const size_t full_bytes = size_t{8} * plan.blocks;
  std::byte* low = to.planes[0];
  std::byte* bits = to.bits;
  const size_t plane_bytes = size_t{kBlock} * plan.blocks;
  const size_t raw_bytes = plane_bytes * kWidth;
  std::byte* escapes = to.escapes;
  ClassWalk walk(plan);
  for (uint32_t block = 0; block < plan.blocks; walk.next_group()) {
    const uint32_t group = group_after(plan, block);
    block += group;
    for (const std::byte* const end = raw + size_t{group} * kBlock * kWidth; raw != end; raw += kBlock * kWidth) {
      fetch<kWidth, _MM_HINT_T1>(raw, raw_bytes);
      Vector top = split<kWidth>(raw, low, plane_bytes);
      if constexpr (kWidth > 1) low += kBlock;
      if constexpr (kRaw != 0) {
        top = split_bits<kRaw>(top, bits);
        bits += size_t{8} * kRaw;
      }
      const Vector place = _mm512_sub_epi8(top, base);
      const Vector index = _mm512_add_epi8(place, walk.classes());
      const Vector found = _mm512_permutex2var_epi8(codes_low, index, codes_high);
      const Vector codes = _mm512_mask_mov_epi8(escape, _mm512_cmplt_epu8_mask(place, repeat(kMaxSymbols)), found);
      write_codes<kLevels, kFull>(codes, full, full_bytes, streams, writers, limits);
      full += 8;
      const __mmask64 escaped = _mm512_cmpeq_epi8_mask(codes, escape);
      store(escapes, _mm512_maskz_compress_epi8(escaped, top));
      escapes += ones_of(_cvtmask64_u64(escaped));
      walk.next();
    }
  }
  for (uint32_t l = 0; l < kFull; ++l) ends.bits[l] = plan.blocks * kBlock;
  for (uint32_t l = kFull; l < kLevels; ++l) {
    // Zeroes the bits behind the last one of its word.
    writers[l].put(streams, 0, 0);
    ends.bits[l] = static_cast<uint32_t>(writers[l].at - static_cast<uint64_t>(to.streams[l] - streams) * 8);
  }
  ends.escapes = static_cast<uint32_t>(escapes - to.escapes);
}

void sample(const PlanarElement& element, const std::byte* raw, uint8_t* symbols, uint16_t* sums) noexcept {
  Vector top;
  if (element.width == 1) {
    top = _mm512_and_si512(_mm512_slli_epi16(load(raw), 1), repeat(0xFE));
  } else if (element.width == 2) {
    const Vector a = _mm512_slli_epi16(load(raw), 1);
    const Vector b = _mm512_slli_epi16(load(raw + 64), 1);
    top = _mm512_permutex2var_epi8(a, load(kOdd.at), b);
  } else {
    const Vector pick = load(kFourth[3].at);
    const Vector low =
        _mm512_permutex2var_epi8(_mm512_slli_epi32(load(raw), 1), pick, _mm512_slli_epi32(load(raw + 64), 1));
    const Vector high =
        _mm512_permutex2var_epi8(_mm512_slli_epi32(load(raw + 128), 1), pick, _mm512_slli_epi32(load(raw + 192), 1));
    top = _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
  }
  const Vector kept = repeat(0xFFU >> element.raw_bits);
  top = _mm512_and_si512(_mm512_srl_epi16(top, _mm_cvtsi32_si128(static_cast<int>(element.raw_bits))), kept);
  _mm512_storeu_si512(symbols, top);
  const Vector low = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(top));
  const Vector high = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(top, 1));
  _mm512_storeu_si512(sums, _mm512_add_epi16(load(sums), low));
  _mm512_storeu_si512(sums + 32, _mm512_add_epi16(load(sums + 32), high));
}

// Returns the least of 64 bytes.
inline uint32_t least(Vector v) noexcept {
  const __m256i half = _mm256_min_epu8(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  const __m128i quarter = _mm_min_epu8(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i pairs = _mm_min_epu8(quarter, _mm_srli_epi16(quarter, 8));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_minpos_epu16(pairs))) & 0xFF;
}

// Counts of four symbols in 64 channels and at most 128 rows.
constexpr uint32_t kCountedAtOnce = 4;
constexpr uint32_t kCountedRows = 128;
struct FourCounts {
  uint32_t of[kMaxClasses][kCountedAtOnce];
};
inline FourCounts count_four(const uint8_t* symbols, uint32_t rows, uint32_t channels, uint32_t first,
                             const __mmask64 (&in_class)[kMaxClasses]) noexcept {
  const Vector one = repeat(1);
  Vector seen[kCountedAtOnce] = {};
  for (uint32_t r = 0; r < rows; ++r, symbols += channels) {
    const Vector v = load(symbols);
    for (uint32_t j = 0; j < kCountedAtOnce; ++j) {
      seen[j] = _mm512_mask_add_epi8(seen[j], _mm512_cmpeq_epi8_mask(v, repeat(first + j)), seen[j], one);
    }
  }
  FourCounts counts;
  for (uint32_t k = 0; k < kMaxClasses; ++k) {
    // Sums of 8 bytes are at most 2^10, and of all below 2^16: four of them fit in a word.
    Vector sums = _mm512_setzero_si512();
    for (uint32_t j = 0; j < kCountedAtOnce; ++j) {
      const Vector here = _mm512_sad_epu8(_mm512_maskz_mov_epi8(in_class[k], seen[j]), _mm512_setzero_si512());
      sums = _mm512_or_si512(sums, _mm512_slli_epi64(here, 16 * j));
    }
    const auto word = static_cast<uint64_t>(_mm512_reduce_add_epi64(sums));
    for (uint32_t j = 0; j < kCountedAtOnce; ++j) counts.of[k][j] = static_cast<uint32_t>(word >> (16 * j) & 0xFFFF);
  }
  return counts;
}

// Counts symbol by symbol: real values have few different ones.
void count(const uint8_t* symbols, uint32_t rows, uint32_t channels, const uint8_t* classes, uint8_t base,
           uint32_t* counts) noexcept {
  std::memset(counts, 0, kCounts * sizeof *counts);
  for (uint32_t c = 0; c < channels; c += kBlock) {
    __mmask64 in_class[kMaxClasses];
    for (uint32_t k = 0; k < kMaxClasses; ++k) {
      in_class[k] = _mm512_cmpeq_epi8_mask(load(classes + c), repeat(k * kMaxSymbols));
    }
    for (uint32_t row = 0; row < rows; row += kCountedRows) {
      const uint32_t n = rows - row < kCountedRows ? rows - row : kCountedRows;
      const uint8_t* const from = symbols + size_t{row} * channels + c;
      Vector low = repeat(0xFF);
      Vector high = _mm512_setzero_si512();
      for (uint32_t r = 0; r < n; ++r) {
        const Vector v = load(from + size_t{r} * channels);
        low = _mm512_min_epu8(low, v);
        high = _mm512_max_epu8(high, v);
      }
      const uint32_t most = 0xFF - least(_mm512_xor_si512(high, repeat(0xFF)));
      uint32_t first = least(low) > base ? least(low) - base : 0;
      uint32_t inside = 0;
      for (; first < kMaxSymbols && first + base <= most; first += kCountedAtOnce) {
        const FourCounts four = count_four(from, n, channels, base + first, in_class);
        for (uint32_t k = 0; k < kMaxClasses; ++k) {
          for (uint32_t j = 0; j < kCountedAtOnce && first + j < kMaxSymbols; ++j) {
            counts[k * kMaxSymbols + first + j] += four.of[k][j];
            inside += four.of[k][j];
          }
        }
      }
      counts[kClassEntries] += n * kBlock - inside;
    }
  }
}

using Encode = void (*)(const PlanarPlan&, const std::byte*, const PlanarPlaces&, PlanarEnds&) noexcept;
using Decode = void (*)(const PlanarPlan&, const PlanarPlaces&, std::byte*, PlanarEnds&) noexcept;

struct Pair {
  Encode encode = nullptr;
  Decode decode = nullptr;
};

template <uint32_t kWidth, uint32_t kRaw, uint32_t kLevels>
constexpr Pair pair_of(uint32_t full) noexcept {
  if constexpr (kLevels >= 3) {
    if (full >= 3) return {encode<kWidth, kRaw, kLevels, 3>, decode<kWidth, kRaw, kLevels, 3>};
  }
  if constexpr (kLevels >= 2) {
    if (full == 2) return {encode<kWidth, kRaw, kLevels, 2>, decode<kWidth, kRaw, kLevels, 2>};
  }
  return {encode<kWidth, kRaw, kLevels, 1>, decode<kWidth, kRaw, kLevels, 1>};
}

template <uint32_t kWidth, uint32_t kRaw>
Pair pair_of(const PlanarPlan& plan) noexcept {
  switch (plan.levels) {
    case 1:
      return pair_of<kWidth, kRaw, 1>(plan.full);
    case 2:
      return pair_of<kWidth, kRaw, 2>(plan.full);
    case 3:
      return pair_of<kWidth, kRaw, 3>(plan.full);
    case 4:
      return pair_of<kWidth, kRaw, 4>(plan.full);
    case 5:
      return pair_of<kWidth, kRaw, 5>(plan.full);
    case 6:
      return pair_of<kWidth, kRaw, 6>(plan.full);
    case 7:
      return pair_of<kWidth, kRaw, 7>(plan.full);
    default:
      return pair_of<kWidth, kRaw, 8>(plan.full);
  }
}

Decode decode_packed(const PlanarPlan& plan) noexcept {
  if (plan.full >= 3) return decode<2, 0, 8, 3, true>;
  return plan.full == 2 ? decode<2, 0, 8, 2, true> : decode<2, 0, 8, 1, true>;
}

Pair pair_of(const PlanarPlan& plan) noexcept {
  // Only elements with a coded sign have two raw bits, and these have 8 levels.
  if (plan.element.raw_bits == 2)
    return plan.element.width == 2 ? pair_of<2, 2, 8>(plan.full) : pair_of<1, 2, 8>(plan.full);
  if (plan.element.width == 4) return pair_of<4, 0>(plan);
  if (plan.element.width == 2) return plan.element.raw_bits == 0 ? pair_of<2, 0>(plan) : pair_of<2, 3>(plan);
  return plan.element.raw_bits == 3 ? pair_of<1, 3>(plan) : pair_of<1, 4>(plan);
}

void encode_any(const PlanarPlan& plan, const std::byte* raw, const PlanarPlaces& to, PlanarEnds& ends) noexcept {
  pair_of(plan).encode(plan, raw, to, ends);
}
void decode_any(const PlanarPlan& plan, const PlanarPlaces& from, std::byte* raw, PlanarEnds& ends) noexcept {
  const Decode decoder = plan.element.packed ? decode_packed(plan) : pair_of(plan).decode;
  decoder(plan, from, raw, ends);
}

#include "codec/lossless/planar_signs.inc"

constexpr PlanarKernel kKernel{"avx512",   encode_any,   decode_any, sample,     count,
                               fold_signs, unfold_signs, pack_low,   unpack_low, true};

}  // namespace
}  // namespace kvbm::codec

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kvbm::codec {
// The builtins check the system's support for the register state too, not only the processor.
const PlanarKernel* planar_avx512() noexcept {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
                 __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt")
             ? &kKernel
             : nullptr;
}
}  // namespace kvbm::codec
#else
namespace kvbm::codec {
const PlanarKernel* planar_avx512() noexcept { return nullptr; }
}  // namespace kvbm::codec
#endif
