// Planar blocks in 64-bit words, with pdep and pext; processors with these have AVX2.
#include "codec/lossless/planar_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,bmi,bmi2,popcnt")
#endif

namespace kvbm::codec {
namespace {

inline uint64_t deposit(uint64_t bits, uint64_t mask) noexcept { return _pdep_u64(bits, mask); }
inline uint64_t deposit_few(uint64_t bits, uint64_t mask) noexcept { return _pdep_u64(bits, mask); }
inline uint64_t extract(uint64_t word, uint64_t mask) noexcept { return _pext_u64(word, mask); }
inline uint32_t count(uint64_t mask) noexcept { return static_cast<uint32_t>(_mm_popcnt_u64(mask)); }

constexpr uint32_t kTogether = 1;

#include "codec/lossless/planar_words.inc"

template <uint32_t kLevels>
inline void codes_of(const uint64_t* planes, uint8_t* codes) noexcept {
  const __m256i eights = _mm256_setr_epi64x(0, 0x0101010101010101LL, 0x0202020202020202LL, 0x0303030303030303LL);
  const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ULL));
  for (uint32_t half = 0; half < 2; ++half) {
    __m256i found = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (uint32_t l = 0; l < kLevels; ++l) {
      const __m256i word = _mm256_set1_epi32(static_cast<int32_t>(planes[l] >> (32 * half)));
      const __m256i is = _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(word, eights), bits), bits);
      found = _mm256_sub_epi8(_mm256_add_epi8(found, found), is);
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(codes + 32 * half), found);
  }
}

// Looks up tables of 16 and 32 bytes by the low four and five bits of `at`, which has bit 7 clear.
inline __m256i table_of_16(const uint8_t* table, __m256i at) noexcept {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(half), at);
}
inline __m256i table_of_32(const uint8_t* table, __m256i at) noexcept {
  return _mm256_blendv_epi8(table_of_16(table, at), table_of_16(table + 16, at), _mm256_slli_epi16(at, 3));
}

inline void make_symbols(const PlanarPlan& plan, Direct& direct) noexcept {
  for (uint32_t i = 0; i < kMaxClasses * kStride; ++i) {
    direct.of[i] = plan.symbol[i / kStride * kMaxSymbols + plan.rank[i % kStride]];
  }
}

inline void look_up(const Direct& direct, const uint8_t* classes, const uint8_t* codes, uint8_t* top) noexcept {
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kBlock; ++i) top[i] = direct.of[size_t{classes[i]} * (kStride / kMaxSymbols) + codes[i]];
}

template <uint32_t kLevels>
class Symbols {
 public:
  explicit Symbols(const PlanarPlan& plan) noexcept : plan_(plan) {
    if constexpr (kLevels > 6) make_symbols(plan, direct_);
  }

  void of(const uint64_t* planes, const uint8_t* classes, uint8_t* top) const noexcept {
    alignas(32) uint8_t codes[kBlock];
    codes_of<kLevels>(planes, codes);
    if constexpr (kLevels > 6) return look_up(direct_, classes, codes, top);
    for (uint32_t i = 0; i < kBlock; i += 32) {
      const __m256i code = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes + i));
      const __m256i of = _mm256_load_si256(reinterpret_cast<const __m256i*>(classes + i));
      const __m256i rank = _mm256_blendv_epi8(table_of_32(plan_.rank, code), table_of_32(plan_.rank + 32, code),
                                              _mm256_slli_epi16(code, 2));
      // Classes are multiples of 32: bits 5 and 6.
      static_assert(kMaxSymbols == 32 && kMaxClasses == 4);
      const __m256i odd = _mm256_slli_epi16(of, 2);
      const __m256i low =
          _mm256_blendv_epi8(table_of_32(plan_.symbol, rank), table_of_32(plan_.symbol + 32, rank), odd);
      const __m256i high =
          _mm256_blendv_epi8(table_of_32(plan_.symbol + 64, rank), table_of_32(plan_.symbol + 96, rank), odd);
      _mm256_store_si256(reinterpret_cast<__m256i*>(top + i), _mm256_blendv_epi8(low, high, _mm256_slli_epi16(of, 1)));
    }
  }

 private:
  const PlanarPlan& plan_;
  Direct direct_;  // for codes of more than 6 bits
};

#include "codec/lossless/planar_signs.inc"

constexpr PlanarKernel kKernel{"bmi2",     encode_blocks, decode_blocks, sample_block, count_symbols,
                               fold_signs, unfold_signs,  pack_low,      unpack_low};

}  // namespace
}  // namespace kvbm::codec

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kvbm::codec {
const PlanarKernel* planar_bmi2() noexcept {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt") ? &kKernel
                                                                                                              : nullptr;
}
}  // namespace kvbm::codec
#else
namespace kvbm::codec {
const PlanarKernel* planar_bmi2() noexcept { return nullptr; }
}  // namespace kvbm::codec
#endif
