// Quantisation with AVX-512 VBMI, 64 values at a time. Accepts leaves with heads of whole groups of 64 values (or with
// one head), and with rows of a moderate period in groups; by row: rows of whole groups.
#include "codec/hash/kernel.h"
#include "codec/lossy/quantize_kernel.h"
#include "codec/lossy/quantize_number.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <array>
#include <cstring>
#include <numeric>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2"))), \
                             apply_to = function)
#else
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vbmi2,prefer-vector-width=512")
// Turns off fused multiply-add: the compiler must not merge a product and a sum into one rounding, because every kernel
// must give equal bits.
#pragma GCC optimize("fp-contract=off")
#endif

namespace kvbm::codec {
namespace {

using Table = std::array<uint8_t, 64>;

// Four registers of 16 lanes hold a group; returns the value in lane k of register j. bf16: halves of 32-bit words are
// used where they are, so no value changes its lane.
constexpr uint32_t place_of(bool halves, uint32_t j, uint32_t k) noexcept {
  return halves ? 32 * (j / 2) + 2 * k + j % 2 : 16 * j + k;
}

// Position of each value's low byte after lane k of register j has become byte j of lane k.
constexpr Table gather_table(bool halves) noexcept {
  Table table{};
  for (uint32_t j = 0; j < 4; ++j) {
    for (uint32_t k = 0; k < 16; ++k) table[place_of(halves, j, k)] = static_cast<uint8_t>(4 * k + j);
  }
  return table;
}
// Reverse of gather_table(): moves the byte of each value into byte 3 of its lane.
constexpr Table spread_table(bool halves, uint32_t j) noexcept {
  Table table{};
  for (uint32_t k = 0; k < 16; ++k) table[4 * k + 3] = static_cast<uint8_t>(place_of(halves, j, k));
  return table;
}
// The value of each lane, register by register.
constexpr Table order_table(bool halves) noexcept {
  Table table{};
  for (uint32_t i = 0; i < 64; ++i) table[i] = static_cast<uint8_t>(place_of(halves, i / 16, i % 16));
  return table;
}
constexpr Table kOrder[2] = {order_table(false), order_table(true)};
alignas(64) constexpr Table kGather[2] = {gather_table(false), gather_table(true)};
alignas(64) constexpr Table kSpread[2][4] = {
    {spread_table(false, 0), spread_table(false, 1), spread_table(false, 2), spread_table(false, 3)},
    {spread_table(true, 0), spread_table(true, 1), spread_table(true, 2), spread_table(true, 3)}};

template <Element kElement>
inline constexpr bool kHalves = kElement == Element::bf16;
template <Element kElement>
inline constexpr size_t kGroupBytes = kQuantizeGroup* kElementBytes<kElement>;

inline __m512i table_of(const Table& table) noexcept { return _mm512_load_si512(table.data()); }
inline __m512i repeat(uint32_t v) noexcept { return _mm512_set1_epi32(static_cast<int>(v)); }

struct Group {
  __m512 v[4];
};

template <Element kElement>
inline Group load(const std::byte* raw) noexcept {
  Group g;
  if constexpr (kElement == Element::bf16) {
    for (int line = 0; line < 2; ++line) {
      const __m512i two = _mm512_loadu_si512(raw + 64 * line);
      g.v[2 * line] = _mm512_castsi512_ps(_mm512_slli_epi32(two, 16));
      g.v[2 * line + 1] = _mm512_castsi512_ps(_mm512_and_si512(two, repeat(0xFFFF0000U)));
    }
  } else {
    for (int j = 0; j < 4; ++j) {
      if constexpr (kElement == Element::fp16) {
        g.v[j] = _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(raw + 32 * j)));
      } else {
        g.v[j] = _mm512_loadu_ps(raw + 64 * j);
      }
    }
  }
  return g;
}

// Stores `g` as elements; returns them as floats if kReturn.
template <Element kElement, bool kReturn>
inline Group store(std::byte* raw, const Group& g) noexcept {
  Group back = g;
  if constexpr (kElement == Element::bf16) {
    const __m512i half = repeat(0x8000U);
    const __m512i high = repeat(0xFFFF0000U);
    for (int line = 0; line < 2; ++line) {
      const __m512i even = _mm512_add_epi32(_mm512_castps_si512(g.v[2 * line]), half);
      const __m512i odd = _mm512_add_epi32(_mm512_castps_si512(g.v[2 * line + 1]), half);
      // high ? odd : even >> 16
      const __m512i both = _mm512_ternarylogic_epi32(high, odd, _mm512_srli_epi32(even, 16), 0xCA);
      _mm512_storeu_si512(raw + 64 * line, both);
      if constexpr (!kReturn) continue;
      back.v[2 * line] = _mm512_castsi512_ps(_mm512_and_si512(even, high));
      back.v[2 * line + 1] = _mm512_castsi512_ps(_mm512_and_si512(odd, high));
    }
  } else {
    for (int j = 0; j < 4; ++j) {
      if constexpr (kElement == Element::fp16) {
        const __m256i h = _mm512_cvtps_ph(g.v[j], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(raw + 32 * j), h);
        if constexpr (kReturn) back.v[j] = _mm512_cvtph_ps(h);
      } else {
        _mm512_storeu_ps(raw + 64 * j, g.v[j]);
      }
    }
  }
  return back;
}

template <int kMantissa>
inline __m512i small_encode(__m512 v) noexcept {
  using Small = SmallFloat<kMantissa>;
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 24), repeat(0x80));
  const __m512i magnitude = _mm512_and_si512(bits, repeat(0x7FFFFFFFU));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, Small::kShift), repeat(1));
  const __m512i base = _mm512_add_epi32(magnitude, repeat((1U << (Small::kShift - 1)) - 1 - Small::kRebias));
  const __m512i normal = _mm512_srli_epi32(_mm512_add_epi32(base, odd), Small::kShift);
  const __m512 shift = _mm512_set1_ps(Small::kDenormalShift);
  const __m512i tiny = _mm512_sub_epi32(_mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(magnitude), shift)),
                                        _mm512_castps_si512(shift));
  const __mmask16 is_tiny = _mm512_cmplt_epu32_mask(magnitude, repeat(Small::kLeastNormal));
  return _mm512_or_si512(sign, _mm512_mask_mov_epi32(normal, is_tiny, tiny));
}

template <int kMantissa>
inline __m512 small_decode(__m512i top) noexcept {  // the code in byte 3, zeros below
  using Small = SmallFloat<kMantissa>;
  const __m512i sign = _mm512_and_si512(top, repeat(0x80000000U));
  const __m512i magnitude = _mm512_and_si512(top, repeat(0x7F000000U));
  const __m512i normal = _mm512_add_epi32(_mm512_srli_epi32(magnitude, 24 - Small::kShift), repeat(Small::kRebias));
  const __m512 tiny =
      _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_srli_epi32(magnitude, 24)), _mm512_set1_ps(Small::kDenormalUnit));
  const __mmask16 is_tiny = _mm512_cmplt_epu32_mask(magnitude, repeat(1U << (24 + kMantissa)));
  const __m512i value = _mm512_mask_mov_epi32(normal, is_tiny, _mm512_castps_si512(tiny));
  return _mm512_castsi512_ps(_mm512_or_si512(sign, value));
}

// Returns the value of a code before it is multiplied, from byte 3 of its lane. An integer is 2^24 times too large, and
// its scale 2^24 times too small: both exact.
template <Number kNumber>
inline __m512 value_of(__m512i top) noexcept {
  if constexpr (kNumber == Number::e4m3) return small_decode<3>(top);
  if constexpr (kNumber == Number::e5m2) return small_decode<2>(top);
  return _mm512_cvtepi32_ps(top);
}
template <Number kNumber>
inline constexpr float kScaleFactor = kNumber == Number::integer ? power_of_two(-24) : 1.0F;

// Added to a number below 2^22, this leaves the nearest whole number, ties to even, in the low bits.
constexpr float kWholes = 12582912.0F;  // 1.5 * 2^23

// A code in the low byte, and its value.
struct Rounded {
  __m512i code;
  __m512 value;
};

// An integer's value is (its number + kWholes) * scale - kWholes * scale, rounded once: the products are exact, since a
// scale has 8 bits. So number * scale equals that of the other kernels, and no number must be converted back to a
// float.
template <Number kNumber>
inline Rounded round_to(__m512 v, __m512 scale, __m512 wholes) noexcept {
  if constexpr (kNumber == Number::integer) {
    const __m512 above = _mm512_add_ps(v, _mm512_set1_ps(kWholes));
    return {_mm512_castps_si512(above), _mm512_fmsub_ps(above, scale, wholes)};
  }
  const __m512i code = kNumber == Number::e4m3 ? small_encode<3>(v) : small_encode<2>(v);
  return {code, _mm512_mul_ps(value_of<kNumber>(_mm512_slli_epi32(code, 24)), scale)};
}

// Packs the low bytes of the lanes, one behind the other in each, then the bytes in the order of their values.
template <Element kElement>
inline void store_codes(std::byte* q, const __m512i (&code)[4]) noexcept {
  __m512i all = _mm512_slli_epi32(code[0], 24);
  for (int j = 1; j < 4; ++j) all = _mm512_shrdi_epi32(all, code[j], 8);
  _mm512_storeu_si512(q, _mm512_permutexvar_epi8(table_of(kGather[kHalves<kElement>]), all));
}

// Scales in the order of lanes, `kArrays` times 64 floats a group, for one period of groups of each head.
struct Pattern {
  const float* data;
  uint32_t period;          // groups
  uint32_t groups_of_head;  // of the leaf, if that is less
  uint32_t groups;          // of the leaf
};

constexpr uint32_t kMaxPeriod = kMaxScaleRow / kQuantizeGroup;

uint32_t period_of(const ScaleMap& map) noexcept {
  return map.row / std::gcd(map.row, kQuantizeGroup);  // groups until a row begins with a group again
}

bool fits(const ScaleMap& map) noexcept {
  if (map.by_row) return map.row % kQuantizeGroup == 0;
  return period_of(map) <= kMaxPeriod && (map.head() % kQuantizeGroup == 0 || map.head() == map.values);
}

#include "codec/hash/leaf_lanes_avx512.inc"

// Walks over the scales of the groups.
template <bool kByRow, uint32_t kFloats>
class Walk {
 public:
  explicit Walk(const Pattern& p) noexcept : at_(p.data), begin_(p.data), p_(p), in_head_(p.groups_of_head) {}
  [[nodiscard]] const float* at() const noexcept { return at_; }
  void next() noexcept {
    if constexpr (kByRow) {
      if (++in_period_ < p_.period) return;
      in_period_ = 0;
      at_ += kFloats / kQuantizeGroup;
    } else {
      at_ += kFloats;
      if (--in_head_ == 0) {
        begin_ += size_t{p_.period} * kFloats;
        in_head_ = p_.groups_of_head;
      } else if (++in_period_ < p_.period) {
        return;
      }
      in_period_ = 0;
      at_ = begin_;
    }
  }

 private:
  const float* at_;
  const float* begin_;
  Pattern p_;
  uint32_t in_head_;
  uint32_t in_period_ = 0;
};

uint32_t groups_of(const ScaleMap& map) noexcept { return (map.values + kQuantizeGroup - 1) / kQuantizeGroup; }

Pattern shape_of(const ScaleMap& map) noexcept {
  return {nullptr, map.by_row ? map.row / kQuantizeGroup : period_of(map),
          (map.head() + kQuantizeGroup - 1) / kQuantizeGroup, groups_of(map)};
}

// Returns the channel `i` values after channel `begin`; mostly without a division.
inline uint32_t channel_of(const ScaleMap& map, uint32_t begin, uint32_t i) noexcept {
  const uint32_t at = begin + i;
  return at < map.row ? at : at % map.row;
}

// Writes 64 scales of consecutive channels, in the order of lanes.
inline void lay_group(const float* from, bool halves, float factor, float* to) noexcept {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512 by = _mm512_set1_ps(factor);
  for (int j = 0; j < 4; j += 2) {
    const __m512 low = _mm512_mul_ps(_mm512_loadu_ps(from + 16 * j), by);
    const __m512 high = _mm512_mul_ps(_mm512_loadu_ps(from + 16 * j + 16), by);
    const __m512i odd = _mm512_add_epi32(even, repeat(1));
    _mm512_storeu_ps(to + 16 * j, halves ? _mm512_permutex2var_ps(low, even, high) : low);
    _mm512_storeu_ps(to + 16 * j + 16, halves ? _mm512_permutex2var_ps(low, odd, high) : high);
  }
}

// Writes the scales of one to three arrays as a Pattern to `scratch`. By row: the arrays interleaved.
template <uint32_t kArrays>
Pattern lay_out(const ScaleMap& map, bool halves, const float* const* scales, const float* factors,
                float* scratch) noexcept {
  Pattern p = shape_of(map);
  p.data = scratch;
  if (map.by_row) {
    for (uint32_t unit = 0; unit < map.units(); ++unit) {
      for (uint32_t a = 0; a < kArrays; ++a) scratch[unit * kArrays + a] = scales[a][unit] * factors[a];
    }
    return p;
  }
  const uint32_t heads = (map.values + map.head() - 1) / map.head();
  const uint32_t units = map.units();
  const Table& order = kOrder[halves];
  for (uint32_t h = 0; h < heads; ++h) {
    const uint32_t first = h * map.row;
    // A last head of less than a row has fewer units; places without a value are never used.
    const uint32_t last = units - 1;
    const uint32_t groups = std::min(p.period, p.groups_of_head);
    for (uint32_t g = 0; g < groups; ++g) {
      float* const to = scratch + (size_t{h} * p.period + g) * kQuantizeGroup * kArrays;
      const uint32_t begin = g * kQuantizeGroup % map.row;
      if (begin + kQuantizeGroup <= map.row && first + begin + kQuantizeGroup <= units) {
        for (uint32_t a = 0; a < kArrays; ++a) {
          lay_group(scales[a] + first + begin, halves, factors[a], to + a * kQuantizeGroup);
        }
        continue;
      }
      for (uint32_t i = 0; i < kQuantizeGroup; ++i) {
        const uint32_t unit = first + std::min(channel_of(map, begin, order[i]), last - first);
        for (uint32_t a = 0; a < kArrays; ++a) to[a * kQuantizeGroup + i] = scales[a][unit] * factors[a];
      }
    }
  }
  return p;
}

template <bool kByRow>
inline __m512 scale_at(const float* at, int array, int j) noexcept {
  if constexpr (kByRow) return _mm512_set1_ps(at[array]);
  return _mm512_loadu_ps(at + 64 * array + 16 * j);
}

// Keeps the bits of the larger magnitudes, in the order of unsigned integers.
template <Element kElement>
inline void raise(__m512i (&most)[4], const std::byte* raw) noexcept {
  constexpr int kVectors = kGroupBytes<kElement> / 64;
  for (int i = 0; i < kVectors; ++i) {
    const __m512i v = _mm512_loadu_si512(raw + 64 * i);
    if constexpr (kElement == Element::fp32) {
      most[i] = _mm512_max_epu32(most[i], _mm512_and_si512(v, repeat(0x7FFFFFFFU)));
    } else {
      most[i] = _mm512_max_epu16(most[i], _mm512_and_si512(v, repeat(0x7FFF7FFFU)));
    }
  }
}

// Leaves mostly follow one another, and the first pass over one waits for memory. While a leaf is quantised, memory
// that far behind is fetched. A hint, so it may belong to no leaf.
__attribute__((always_inline)) inline void fetch_ahead(const std::byte* raw, size_t bytes,
                                                       size_t group_bytes) noexcept {
  const uintptr_t at = reinterpret_cast<uintptr_t>(raw) + bytes;
  for (size_t line = 0; line < group_bytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at + line), _MM_HINT_T1);
  }
}

// Stores wait for their lines too, and stores that miss fill their queue. A hint, so it may be behind the end.
__attribute__((always_inline)) inline void fetch_target(const std::byte* to) noexcept {
  constexpr size_t kGroupsAhead = 24;
  const uintptr_t at = reinterpret_cast<uintptr_t>(to) + kGroupsAhead * kQuantizeGroup;
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

template <Element kElement>
inline uint32_t bits_of(const std::byte* most, uint32_t i) noexcept {
  return std::bit_cast<uint32_t>(read_value<kElement>(most, i));
}

// `raw` as whole groups: a last, incomplete one as a copy padded with zeros.
template <Element kElement>
class Groups {
 public:
  Groups(const ScaleMap& map, const std::byte* raw) noexcept : raw_(raw), whole_(map.values / kQuantizeGroup) {
    const size_t rest = map.values % kQuantizeGroup * kElementBytes<kElement>;
    if (rest == 0) return;
    std::memset(last_, 0, sizeof last_);
    std::memcpy(last_, raw + size_t{whole_} * kGroupBytes<kElement>, rest);
  }
  [[nodiscard]] const std::byte* at(uint32_t g) const noexcept {
    return g < whole_ ? raw_ + size_t{g} * kGroupBytes<kElement> : last_;
  }

 private:
  alignas(64) std::byte last_[kGroupBytes<kElement>];
  const std::byte* raw_;
  uint32_t whole_;
};

// Returns the largest of all lanes, as the bits of a float.
template <Element kElement>
inline uint32_t largest(const __m512i (&most)[4]) noexcept {
  __m512i all = _mm512_max_epu32(most[0], most[1]);
  if constexpr (kElement == Element::fp32) {
    return _mm512_reduce_max_epu32(_mm512_max_epu32(all, _mm512_max_epu32(most[2], most[3])));
  } else {
    all = _mm512_max_epu16(most[0], most[1]);
    all = _mm512_max_epu32(_mm512_srli_epi32(all, 16), _mm512_and_si512(all, repeat(0xFFFFU)));
    std::byte value[2];
    store_le(value, static_cast<uint16_t>(_mm512_reduce_max_epu32(all)));
    return bits_of<kElement>(value, 0);
  }
}

template <Element kElement>
void row_maxima(const ScaleMap& map, const std::byte* raw, uint32_t* maxima) noexcept {
  const Pattern p = shape_of(map);
  const Groups<kElement> groups(map, raw);
  for (uint32_t g = 0; g < p.groups; ++maxima) {
    __m512i most[4] = {};
    const uint32_t end = std::min(g + p.period, p.groups);
    for (; g < end; ++g) raise<kElement>(most, groups.at(g));
    *maxima = largest<kElement>(most);
  }
}

// Updates the maxima of 64 channels of bf16, in their order.
inline void raise_units(const __m512i (&most)[4], uint32_t* maxima) noexcept {
  for (int j = 0; j < 4; ++j) {
    const __m256i half = j % 2 == 0 ? _mm512_castsi512_si256(most[j / 2]) : _mm512_extracti64x4_epi64(most[j / 2], 1);
    const __m512i found = _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
    _mm512_storeu_si512(maxima + 16 * j, _mm512_max_epu32(_mm512_loadu_si512(maxima + 16 * j), found));
  }
}

template <Element kElement>
void channel_maxima(const ScaleMap& map, const std::byte* raw, uint32_t* maxima) noexcept {
  const Pattern p = shape_of(map);
  const Groups<kElement> groups(map, raw);
  const uint32_t units = map.units();
  std::fill_n(maxima, units, 0U);
  alignas(64) std::byte found[kGroupBytes<kElement>];
  for (uint32_t first = 0, h = 0; first < p.groups; first += p.groups_of_head, ++h) {
    const uint32_t end = std::min(first + p.groups_of_head, p.groups);
    for (uint32_t column = 0; column < p.period && first + column < end; ++column) {
      __m512i most[4] = {};
      for (uint32_t g = first + column; g < end; g += p.period) raise<kElement>(most, groups.at(g));
      const uint32_t begin = column * kQuantizeGroup % map.row;
      if (kElement == Element::bf16 && begin + kQuantizeGroup <= map.row &&
          h * map.row + begin + kQuantizeGroup <= units) {
        raise_units(most, maxima + h * map.row + begin);
        continue;
      }
      for (size_t i = 0; i < sizeof found / 64; ++i) _mm512_store_si512(found + 64 * i, most[i]);
      for (uint32_t i = 0; i < kQuantizeGroup; ++i) {
        const uint32_t unit = h * map.row + channel_of(map, begin, i);
        if (unit < units) maxima[unit] = std::max(maxima[unit], bits_of<kElement>(found, i));
      }
    }
  }
}

template <Element kElement>
void maxima_of(const ScaleMap& map, const std::byte* raw, uint32_t* maxima) noexcept {
  map.by_row ? row_maxima<kElement>(map, raw, maxima) : channel_maxima<kElement>(map, raw, maxima);
}

template <Element kElement, Number kNumber, bool kByRow>
void quantize_as(const ScaleMap& map, const std::byte* raw, const float* reciprocal, const float* scale, std::byte* q,
                 std::byte* decoded, std::byte* scratch, LeafHasher& hash, Sums& sums) noexcept {
  // Factor of a value, its scale, and for integers kWholes times that.
  constexpr uint32_t kArrays = kNumber == Number::integer ? 3 : 2;
  const float* const arrays[] = {reciprocal, scale, scale};
  constexpr float kFactors[] = {1.0F, 1.0F, kWholes};
  const Pattern p = lay_out<kArrays>(map, kHalves<kElement>, arrays, kFactors, reinterpret_cast<float*>(scratch));
  Walk<kByRow, kArrays * kQuantizeGroup> walk(p);
  const size_t bytes = size_t{map.values} * kElementBytes<kElement>;
  __m512 difference[2] = {};
  __m512 value[2] = {};
  const auto group = [&](const std::byte* from, std::byte* codes, std::byte* to) __attribute__((always_inline)) {
    const Group x = load<kElement>(from);
    fetch_ahead(from, bytes, kGroupBytes<kElement>);
    fetch_target(codes);
    __m512i code[4];
    Group y;
    for (int j = 0; j < 4; ++j) {
      const Rounded r =
          round_to<kNumber>(_mm512_mul_ps(x.v[j], scale_at<kByRow>(walk.at(), 0, j)), scale_at<kByRow>(walk.at(), 1, j),
                            scale_at<kByRow>(walk.at(), kArrays - 1, j));
      code[j] = r.code;
      y.v[j] = r.value;
    }
    store_codes<kElement>(codes, code);
    y = store<kElement, true>(to, y);
    for (int j = 0; j < 4; ++j) {
      const __m512 off = _mm512_sub_ps(y.v[j], x.v[j]);
      difference[j % 2] = _mm512_fmadd_ps(off, off, difference[j % 2]);
      value[j % 2] = _mm512_fmadd_ps(x.v[j], x.v[j], value[j % 2]);
    }
    walk.next();
  };
  LeafLanes lanes(hash.state());
  const std::byte* from = raw;
  for (size_t row = 0; row < bytes / kRowBytes; ++row) {
#pragma GCC unroll 2
    for (uint32_t i = 0; i < kRowBytes / kGroupBytes<kElement>; ++i) {
      group(from, q, decoded + i * kGroupBytes<kElement>);
      from += kGroupBytes<kElement>;
      q += kQuantizeGroup;
    }
    lanes.take(decoded);
  }
  LeafState after;
  lanes.put(after);
  hash.took(after);
  if (const size_t rest = bytes % kRowBytes; rest != 0) {
    alignas(64) std::byte last[kRowBytes] = {};
    std::memcpy(last, from, rest);
    for (size_t at = 0; at < rest; at += kGroupBytes<kElement>, q += kQuantizeGroup) group(last + at, q, decoded + at);
    hash.add({decoded, rest});
  }
  LaneSums lane_sums;
  for (int i = 0; i < 2; ++i) {
    _mm512_storeu_ps(lane_sums.difference + 16 * i, difference[i]);
    _mm512_storeu_ps(lane_sums.value + 16 * i, value[i]);
  }
  lane_sums.add_to(sums);
}

template <Element kElement, Number kNumber, bool kByRow>
void dequantize_as(const ScaleMap& map, const std::byte* q, const float* scale, std::byte* raw,
                   std::byte* scratch) noexcept {
  const Pattern p =
      lay_out<1>(map, kHalves<kElement>, &scale, &kScaleFactor<kNumber>, reinterpret_cast<float*>(scratch));
  constexpr __mmask64 kTop = 0x8888888888888888ULL;
  const Table(&spread)[4] = kSpread[kHalves<kElement>];
  const __m512i places[4] = {table_of(spread[0]), table_of(spread[1]), table_of(spread[2]), table_of(spread[3])};
  const uint32_t whole = map.values / kQuantizeGroup;
  Walk<kByRow, 64> walk(p);
  for (uint32_t g = 0; g < p.groups; ++g, walk.next()) {
    const __m512i codes = _mm512_loadu_si512(q + size_t{g} * kQuantizeGroup);
    Group y;
    for (int j = 0; j < 4; ++j) {
      const __m512i top = _mm512_maskz_permutexvar_epi8(kTop, places[j], codes);
      y.v[j] = _mm512_mul_ps(value_of<kNumber>(top), scale_at<kByRow>(walk.at(), 0, j));
    }
    if (g < whole) {
      store<kElement, false>(raw + size_t{g} * kGroupBytes<kElement>, y);
    } else {
      alignas(64) std::byte last[kGroupBytes<kElement>];
      store<kElement, false>(last, y);
      std::memcpy(raw + size_t{g} * kGroupBytes<kElement>, last, map.values % kQuantizeGroup * kElementBytes<kElement>);
    }
  }
}

bool maxima(const ScaleMap& map, const std::byte* raw, uint32_t* maxima) noexcept {
  if (!fits(map)) return false;
  if (map.element == Element::bf16) maxima_of<Element::bf16>(map, raw, maxima);
  if (map.element == Element::fp16) maxima_of<Element::fp16>(map, raw, maxima);
  if (map.element == Element::fp32) maxima_of<Element::fp32>(map, raw, maxima);
  return true;
}

using Quantize = void (*)(const ScaleMap&, const std::byte*, const float*, const float*, std::byte*, std::byte*,
                          std::byte*, LeafHasher&, Sums&) noexcept;
using Dequantize = void (*)(const ScaleMap&, const std::byte*, const float*, std::byte*, std::byte*) noexcept;
struct Pair {
  Quantize quantize;
  Dequantize dequantize;
};
template <Element kElement, Number kNumber, bool kByRow>
constexpr Pair kPair{quantize_as<kElement, kNumber, kByRow>, dequantize_as<kElement, kNumber, kByRow>};
template <Element kElement, Number kNumber>
Pair pair_of(bool by_row) noexcept {
  return by_row ? kPair<kElement, kNumber, true> : kPair<kElement, kNumber, false>;
}
template <Element kElement>
Pair pair_of(Number number, bool by_row) noexcept {
  if (number == Number::e4m3) return pair_of<kElement, Number::e4m3>(by_row);
  if (number == Number::e5m2) return pair_of<kElement, Number::e5m2>(by_row);
  return pair_of<kElement, Number::integer>(by_row);
}
Pair pair_of(const ScaleMap& map, Number number) noexcept {
  if (map.element == Element::fp16) return pair_of<Element::fp16>(number, map.by_row);
  if (map.element == Element::fp32) return pair_of<Element::fp32>(number, map.by_row);
  return pair_of<Element::bf16>(number, map.by_row);
}

bool quantize(const ScaleMap& map, Number number, const std::byte* raw, const float* reciprocal, const float* scale,
              std::byte* q, std::byte* decoded, std::byte* scratch, LeafHasher& hash, Sums& sums) noexcept {
  if (!fits(map)) return false;
  pair_of(map, number).quantize(map, raw, reciprocal, scale, q, decoded, scratch, hash, sums);
  return true;
}

bool dequantize(const ScaleMap& map, Number number, const std::byte* q, const float* scale, std::byte* raw,
                std::byte* scratch) noexcept {
  if (!fits(map)) return false;
  pair_of(map, number).dequantize(map, q, scale, raw, scratch);
  return true;
}

// Collects the three low bytes of 16 words. And places each byte of the packed numbers where its multishift needs it, 6
// bytes (8 numbers of 6 bits) in each 8.
constexpr Table pack6_table() noexcept {
  Table table{};
  for (uint32_t i = 0; i < 48; ++i) table[i] = static_cast<uint8_t>(4 * (i / 3) + i % 3);
  return table;
}
constexpr Table unpack_table(uint32_t bits) noexcept {
  Table table{};
  for (uint32_t i = 0; i < 64; ++i) table[i] = static_cast<uint8_t>(bits * (i / 8) + std::min(i % 8, bits - 1));
  return table;
}
// Moves number i of a word to the top of byte i, with the bits before it below.
constexpr Table shift_table(int bits) noexcept {
  Table table{};
  for (int i = 0; i < 64; ++i) table[static_cast<size_t>(i)] = static_cast<uint8_t>((i % 8 * bits - (8 - bits)) & 63);
  return table;
}
alignas(64) constexpr Table kPack6 = pack6_table();
alignas(64) constexpr Table kUnpack[3] = {unpack_table(2), unpack_table(4), unpack_table(6)};
alignas(64) constexpr Table kShift[3] = {shift_table(2), shift_table(4), shift_table(6)};

void pack(const std::byte* q, uint32_t groups, uint32_t bits, std::byte* packed) noexcept {
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1U << bits) - 1));
  const __m512i pairs = _mm512_set1_epi16(static_cast<int16_t>(1U << (8 + bits) | 1));  // a + (b << bits)
  for (uint32_t g = 0; g < groups; ++g, q += kQuantizeGroup, packed += 8 * bits) {
    const __m512i v = _mm512_and_si512(_mm512_loadu_si512(q), mask);
    const __m512i two = _mm512_maddubs_epi16(v, pairs);
    if (bits == 4) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(packed), _mm512_cvtepi16_epi8(two));
      continue;
    }
    const __m512i four = _mm512_madd_epi16(two, repeat(1U << (16 + 2 * bits) | 1U));
    if (bits == 2) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(packed), _mm512_cvtepi32_epi8(four));
    } else {
      _mm512_mask_storeu_epi8(packed, 0xFFFFFFFFFFFFULL, _mm512_permutexvar_epi8(table_of(kPack6), four));
    }
  }
}

void unpack(const std::byte* packed, uint32_t groups, uint32_t bits, std::byte* q) noexcept {
  const __mmask64 present = (__mmask64{1} << (8 * bits)) - 1;
  const __m512i place = table_of(kUnpack[bits / 2 - 1]);
  const __m512i shift = table_of(kShift[bits / 2 - 1]);
  // Sign: (v XOR top) - top, of v moved down.
  const __m512i top = _mm512_set1_epi8(static_cast<char>(1U << (bits - 1)));
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1U << bits) - 1));
  for (uint32_t g = 0; g < groups; ++g, q += kQuantizeGroup, packed += 8 * bits) {
    const __m512i words = _mm512_permutexvar_epi8(place, _mm512_maskz_loadu_epi8(present, packed));
    const __m512i high = _mm512_multishift_epi64_epi8(shift, words);
    const __m512i v = _mm512_and_si512(_mm512_srli_epi16(high, 8 - bits), mask);
    _mm512_storeu_si512(q, _mm512_sub_epi8(_mm512_xor_si512(v, top), top));
  }
}

constexpr QuantizeKernel kKernel{"avx512", maxima, quantize, dequantize, pack, unpack};

}  // namespace
}  // namespace kvbm::codec

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kvbm::codec {
const QuantizeKernel* avx512_quantize_kernel() noexcept {
  static const bool available = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                                __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
  return available ? &kKernel : nullptr;
}
}  // namespace kvbm::codec
#else
namespace kvbm::codec {
const QuantizeKernel* avx512_quantize_kernel() noexcept { return nullptr; }
}  // namespace kvbm::codec
#endif
