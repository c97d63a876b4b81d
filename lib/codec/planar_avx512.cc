// Planar blocks with AVX-512 (BW, VBMI, VBMI2) and BMI2: one register holds the codes of a block.
#include "codec/planar_kernel.h"

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
inline uint32_t count(uint64_t v) noexcept { return static_cast<uint32_t>(_mm_popcnt_u64(v)); }

// Which bytes of two registers make one: every `step`-th from `first` on; and where the bytes of two planes go.
struct Pick {
  alignas(64) uint8_t at[kBlock];
};
constexpr Pick pick_every(uint32_t step, uint32_t first) noexcept {
  Pick pick{};
  for (uint32_t i = 0; i < kBlock; ++i) pick.at[i] = static_cast<uint8_t>((i * step + first) % 128);
  return pick;
}
constexpr Pick interleave(uint32_t first) noexcept {  // a, b alternate: a from element `first` on
  Pick pick{};
  for (uint32_t i = 0; i < kBlock; ++i) pick.at[i] = static_cast<uint8_t>(first + i / 2 + (i % 2) * 64);
  return pick;
}
constexpr Pick kEven = pick_every(2, 0);
constexpr Pick kOdd = pick_every(2, 1);
constexpr Pick kFourth[4] = {pick_every(4, 0), pick_every(4, 1), pick_every(4, 2), pick_every(4, 3)};
constexpr Pick kLowHalf = interleave(0);
constexpr Pick kHighHalf = interleave(32);
// Two interleaved pairs of bytes to elements of four: words of a and b alternate.
struct PickWords {
  alignas(64) uint16_t at[32];
};
constexpr PickWords interleave_words(uint32_t first) noexcept {
  PickWords pick{};
  for (uint32_t i = 0; i < 32; ++i) pick.at[i] = static_cast<uint16_t>(first + i / 2 + (i % 2) * 32);
  return pick;
}
constexpr PickWords kLowWords = interleave_words(0);
constexpr PickWords kHighWords = interleave_words(16);

// The top bytes of a block; the others go to their planes.
template <uint32_t kWidth>
inline Vector split(const std::byte* raw, const PlanarPlaces& to, size_t at) noexcept {
  if constexpr (kWidth == 1) {
    const Vector v = load(raw);
    const Vector high = _mm512_and_si512(_mm512_slli_epi16(v, 1), repeat(0xFE));
    return _mm512_or_si512(high, _mm512_and_si512(_mm512_srli_epi16(v, 7), repeat(1)));
  } else if constexpr (kWidth == 2) {
    const Vector a = load(raw);
    const Vector b = load(raw + 64);
    const Vector ta = _mm512_shldi_epi16(a, a, 1);
    const Vector tb = _mm512_shldi_epi16(b, b, 1);
    store(to.planes[0] + at, _mm512_permutex2var_epi8(ta, load(kEven.at), tb));
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
    for (uint32_t p = 0; p < 3; ++p) store(to.planes[p] + at, planes[p]);
    return planes[3];
  }
}

template <uint32_t kWidth>
inline void join(Vector top, const PlanarPlaces& from, size_t at, std::byte* raw) noexcept {
  if constexpr (kWidth == 1) {
    const Vector low = _mm512_and_si512(_mm512_srli_epi16(top, 1), repeat(0x7F));
    store(raw, _mm512_or_si512(low, _mm512_and_si512(_mm512_slli_epi16(top, 7), repeat(0x80))));
  } else if constexpr (kWidth == 2) {
    const Vector low = load(from.planes[0] + at);
    const Vector a = _mm512_permutex2var_epi8(low, load(kLowHalf.at), top);
    const Vector b = _mm512_permutex2var_epi8(low, load(kHighHalf.at), top);
    store(raw, _mm512_shrdi_epi16(a, a, 1));
    store(raw + 64, _mm512_shrdi_epi16(b, b, 1));
  } else {
    const Vector p0 = load(from.planes[0] + at);
    const Vector p1 = load(from.planes[1] + at);
    const Vector p2 = load(from.planes[2] + at);
    const Vector halves[2][2] = {{_mm512_permutex2var_epi8(p0, load(kLowHalf.at), p1),
                                  _mm512_permutex2var_epi8(p2, load(kLowHalf.at), top)},
                                 {_mm512_permutex2var_epi8(p0, load(kHighHalf.at), p1),
                                  _mm512_permutex2var_epi8(p2, load(kHighHalf.at), top)}};
    for (uint32_t h = 0; h < 2; ++h) {
      const Vector a = _mm512_permutex2var_epi16(halves[h][0], load(kLowWords.at), halves[h][1]);
      const Vector b = _mm512_permutex2var_epi16(halves[h][0], load(kHighWords.at), halves[h][1]);
      store(raw + 128 * h, _mm512_ror_epi32(a, 1));
      store(raw + 128 * h + 64, _mm512_ror_epi32(b, 1));
    }
  }
}

// `n` bits from bit `at` on, and whatever is behind them. At level 2 and beyond n is seldom more than half of 64.
inline uint64_t take_bits(const std::byte* streams, uint64_t at, uint32_t n) noexcept {
  const std::byte* const byte = streams + at / 8;
  const uint64_t bits = load_word(byte) >> at % 8;
  if (__builtin_expect(n <= 57, 1)) return bits;
  return bits | std::to_integer<uint64_t>(byte[8]) << 1 << (63 - at % 8);
}

// A stream being written: `at` bits so far, those of its last byte are held here.
struct BitWriter {
  uint64_t at;
  uint64_t held;
  inline void put(std::byte* stream, uint64_t bits, uint32_t n) noexcept {
    const uint64_t fill = at % 8;
    std::byte* const byte = stream + at / 8;
    held |= bits << fill;
    store_word(byte, held);
    at += n;
    if (__builtin_expect(fill + n < 64, 1)) {
      held >>= (fill + n) & 56;
      return;
    }
    held = bits >> 1 >> (63 - fill);
    byte[8] = static_cast<std::byte>(held);
  }
};

// Ranks of codes: the codes of 8 levels need a table of four registers.
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

template <uint32_t kWidth, uint32_t kRaw, uint32_t kLevels, uint32_t kFull>
void decode(const PlanarPlan& plan, const PlanarPlaces& from, std::byte* raw, PlanarEnds& ends) noexcept {
  const RankTable<kLevels> ranks(plan.rank);
  const LevelLimits<kLevels, kFull> limits(plan);
  const Vector symbols_low = load(plan.symbol);
  const Vector symbols_high = load(plan.symbol + kBlock);
  const Vector escape = repeat((1U << kLevels) - 1);
  // One pointer for all streams: there are too few registers for more.
  const std::byte* const streams = from.streams[0];
  uint64_t at[kLevels];
  for (uint32_t l = 0; l < kLevels; ++l) at[l] = static_cast<uint64_t>(from.streams[l] - streams) * 8;
  const std::byte* escapes = from.escapes;
  const uint8_t* classes = plan.classes;
  size_t escaped_total = 0;
  uint32_t block = 0;
  while (block < plan.blocks) {
    const uint32_t group_end = plan.blocks - block < plan.group_blocks ? plan.blocks : block + plan.group_blocks;
    uint32_t vector = 0;
    for (; block < group_end; ++block) {
      Vector codes = _mm512_setzero_si512();
#pragma GCC unroll 8
      for (uint32_t l = 0; l < kLevels; ++l) {
        __mmask64 bit;
        if (l < kFull) {
          bit = _cvtu64_mask64(load_word(streams + size_t{8} * (size_t{l} * plan.blocks + block)));
        } else {
          const uint64_t open = _cvtmask64_u64(_mm512_cmpge_epu8_mask(codes, limits.at[l]));
          const uint32_t n = count(open);
          bit = _cvtu64_mask64(_pdep_u64(take_bits(streams, at[l], n), open));
          at[l] += n;
        }
        codes = _mm512_mask_add_epi8(codes, bit, codes, repeat(1U << (kLevels - 1 - l)));
      }
      const uint64_t escaped = _cvtmask64_u64(_mm512_cmpeq_epi8_mask(codes, escape));
      const Vector index = _mm512_add_epi8(ranks.of(codes), load(classes + size_t{kBlock} * vector));
      Vector top = _mm512_permutex2var_epi8(symbols_low, index, symbols_high);
      top = _mm512_mask_expand_epi8(top, _cvtu64_mask64(escaped), load(escapes));
      const uint32_t n = count(escaped);
      escaped_total += n;
      escapes = escapes + n > from.last_escapes ? from.last_escapes : escapes + n;
      if constexpr (kRaw != 0) {
        const std::byte* const bits = from.bits + size_t{8} * kRaw * block;
        top = _mm512_and_si512(_mm512_slli_epi16(top, kRaw), repeat(0xFF & ~((1U << kRaw) - 1)));
#pragma GCC unroll 8
        for (uint32_t b = 0; b < kRaw; ++b) {
          const __mmask64 bit = _cvtu64_mask64(load_word(bits + size_t{8} * b));
          top = _mm512_mask_add_epi8(top, bit, top, repeat(1U << (kRaw - 1 - b)));
        }
      }
      join<kWidth>(top, from, size_t{block} * kBlock, raw + size_t{block} * kBlock * kWidth);
      if (++vector == plan.period) vector = 0;
    }
    classes += size_t{kBlock} * plan.period;
  }
  for (uint32_t l = 0; l < kLevels; ++l) {
    const auto first = static_cast<uint64_t>(from.streams[l] - streams) * 8;
    ends.bits[l] = l < kFull ? plan.blocks * kBlock : static_cast<uint32_t>(at[l] - first);
  }
  ends.escapes = static_cast<uint32_t>(escaped_total);
}

template <uint32_t kWidth, uint32_t kRaw, uint32_t kLevels, uint32_t kFull>
void encode(const PlanarPlan& plan, const std::byte* raw, const PlanarPlaces& to, PlanarEnds& ends) noexcept {
  const LevelLimits<kLevels, kFull> limits(plan);
  const Vector codes_low = load(plan.code);
  const Vector codes_high = load(plan.code + kBlock);
  const Vector escape = repeat((1U << kLevels) - 1);
  const Vector base = repeat(plan.base);
  BitWriter writers[kLevels];
  // One pointer for all streams: there are too few registers for more.
  std::byte* const streams = to.streams[0];
  const size_t stream_bytes = static_cast<size_t>(to.streams[1] - streams);
  for (uint32_t l = 0; l < kLevels; ++l) writers[l] = {stream_bytes * l * 8, 0};
  std::byte* escapes = to.escapes;
  const uint8_t* classes = plan.classes;
  uint32_t block = 0;
  while (block < plan.blocks) {
    const uint32_t group_end = plan.blocks - block < plan.group_blocks ? plan.blocks : block + plan.group_blocks;
    uint32_t vector = 0;
    for (; block < group_end; ++block) {
      Vector top = split<kWidth>(raw + size_t{block} * kBlock * kWidth, to, size_t{block} * kBlock);
      if constexpr (kRaw != 0) {
        std::byte* const bits = to.bits + size_t{8} * kRaw * block;
#pragma GCC unroll 8
        for (uint32_t b = 0; b < kRaw; ++b) {
          store_word(bits + size_t{8} * b,
                     _cvtmask64_u64(_mm512_test_epi8_mask(top, repeat(1U << (kRaw - 1 - b)))));
        }
        top = _mm512_and_si512(_mm512_srli_epi16(top, kRaw), repeat(0xFF >> kRaw));
      }
      const Vector place = _mm512_sub_epi8(top, base);
      const Vector index = _mm512_add_epi8(place, load(classes + size_t{kBlock} * vector));
      const Vector found = _mm512_permutex2var_epi8(codes_low, index, codes_high);
      const Vector codes =
          _mm512_mask_mov_epi8(escape, _mm512_cmplt_epu8_mask(place, repeat(kMaxSymbols)), found);
#pragma GCC unroll 8
      for (uint32_t l = 0; l < kLevels; ++l) {
        const uint64_t bits = _cvtmask64_u64(_mm512_test_epi8_mask(codes, repeat(1U << (kLevels - 1 - l))));
        if (l < kFull) {
          store_word(streams + (stream_bytes * l + size_t{8} * block), bits);
          continue;
        }
        const uint64_t open = _cvtmask64_u64(_mm512_cmpge_epu8_mask(codes, limits.at[l]));
        writers[l].put(streams, _pext_u64(bits, open), count(open));
      }
      const __mmask64 escaped = _mm512_cmpeq_epi8_mask(codes, escape);
      store(escapes, _mm512_maskz_compress_epi8(escaped, top));
      escapes += count(_cvtmask64_u64(escaped));
      if (++vector == plan.period) vector = 0;
    }
    classes += size_t{kBlock} * plan.period;
  }
  for (uint32_t l = 0; l < kLevels; ++l) {
    // What is behind the last bit of its word: zero.
    if (l >= kFull) store_word(streams + writers[l].at / 8, writers[l].held);
    ends.bits[l] = l < kFull ? plan.blocks * kBlock : static_cast<uint32_t>(writers[l].at - stream_bytes * l * 8);
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
    const Vector low = _mm512_permutex2var_epi8(_mm512_slli_epi32(load(raw), 1), pick,
                                                _mm512_slli_epi32(load(raw + 64), 1));
    const Vector high = _mm512_permutex2var_epi8(_mm512_slli_epi32(load(raw + 128), 1), pick,
                                                 _mm512_slli_epi32(load(raw + 192), 1));
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

void place(const uint8_t* symbols, const uint8_t* classes, uint8_t base, uint8_t* index) noexcept {
  const Vector at = _mm512_sub_epi8(load(symbols), repeat(base));
  const __mmask64 inside = _mm512_cmplt_epu8_mask(at, repeat(kMaxSymbols));
  _mm512_storeu_si512(index, _mm512_mask_add_epi8(repeat(kClassEntries), inside, at, load(classes)));
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

Pair pair_of(const PlanarPlan& plan) noexcept {
  if (plan.element.width == 4) return pair_of<4, 0>(plan);
  if (plan.element.width == 2) return plan.element.raw_bits == 0 ? pair_of<2, 0>(plan) : pair_of<2, 3>(plan);
  return plan.element.raw_bits == 3 ? pair_of<1, 3>(plan) : pair_of<1, 4>(plan);
}

void encode_any(const PlanarPlan& plan, const std::byte* raw, const PlanarPlaces& to, PlanarEnds& ends) noexcept {
  pair_of(plan).encode(plan, raw, to, ends);
}
void decode_any(const PlanarPlan& plan, const PlanarPlaces& from, std::byte* raw, PlanarEnds& ends) noexcept {
  pair_of(plan).decode(plan, from, raw, ends);
}

constexpr PlanarKernel kKernel{"avx512", encode_any, decode_any, sample, place};

}  // namespace
}  // namespace kvbm::codec

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kvbm::codec {
// The builtins ask the system for the register state too, not the processor alone.
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
