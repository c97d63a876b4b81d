// AVX-512F rows: four registers of lanes, four of keys.
#include "codec/hash/kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

// A region instead of a file flag: everything that the headers above define stays baseline code.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f"))), apply_to = function)
#else
// gcc 12's own intrinsics leave the masked-off operand uninitialized on purpose, and warn of it.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,prefer-vector-width=512")
#endif

namespace kvbm::codec {
namespace {

using Vector = __m512i;
constexpr size_t kWords = 8;
constexpr bool kWordsApart = true;

inline Vector load(const std::byte* p) noexcept { return _mm512_loadu_si512(p); }
inline Vector load_aligned(const uint64_t* p) noexcept { return _mm512_load_si512(p); }
inline void store_aligned(uint64_t* p, Vector v) noexcept { _mm512_store_si512(p, v); }
inline void store_cached(std::byte* p, Vector v) noexcept { _mm512_storeu_si512(p, v); }
// With this, Zen 4 copies through its caches a tenth faster: its path to them is 32 bytes wide.
inline Vector load_halves(const std::byte* p) noexcept {
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32)),
                            1);
}
inline void store_halves(std::byte* p, Vector v) noexcept {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_castsi512_si256(v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 32), _mm512_extracti64x4_epi64(v, 1));
}
inline void store_stream(std::byte* p, Vector v) noexcept { _mm512_stream_si512(reinterpret_cast<__m512i*>(p), v); }
inline void store_stream16(std::byte* p, Vector v) noexcept {
  auto* q = reinterpret_cast<__m128i*>(p);
  _mm_stream_si128(q, _mm512_castsi512_si128(v));
  _mm_stream_si128(q + 1, _mm512_extracti32x4_epi32(v, 1));
  _mm_stream_si128(q + 2, _mm512_extracti32x4_epi32(v, 2));
  _mm_stream_si128(q + 3, _mm512_extracti32x4_epi32(v, 3));
}
inline Vector repeat(uint64_t word) noexcept { return _mm512_set1_epi64(static_cast<long long>(word)); }
inline Vector add(Vector a, Vector b) noexcept { return _mm512_add_epi64(a, b); }
inline Vector bit_xor(Vector a, Vector b) noexcept { return _mm512_xor_si512(a, b); }
inline Vector multiply_halves(Vector v) noexcept { return _mm512_mul_epu32(v, _mm512_srli_epi64(v, 32)); }
inline Vector swap_pairs(Vector v) noexcept { return _mm512_shuffle_epi32(v, _MM_PERM_BADC); }
inline Vector shift_right_47(Vector v) noexcept { return _mm512_srli_epi64(v, 47); }
inline Vector multiply_factor(Vector v) noexcept {
  const Vector factor = repeat(kScrambleFactor);
  const Vector high = _mm512_mul_epu32(_mm512_srli_epi64(v, 32), factor);
  return _mm512_add_epi64(_mm512_mul_epu32(v, factor), _mm512_slli_epi64(high, 32));
}

#include "codec/hash/kernel_rows.inc"

constexpr Kernel kFirst{"avx512_l1", rows<Ask::first_level>};
constexpr Kernel kSecond{"avx512_l2", rows<Ask::second_level>};

}  // namespace
}  // namespace kvbm::codec

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kvbm::codec {
// The builtin checks the system's support for the register state too, not only the processor.
const Kernel* avx512_kernel(Ask ask) noexcept {
  if (!__builtin_cpu_supports("avx512f")) return nullptr;
  return ask == Ask::first_level ? &kFirst : &kSecond;
}
}  // namespace kvbm::codec
#else
namespace kvbm::codec {
const Kernel* avx512_kernel(Ask) noexcept { return nullptr; }
}  // namespace kvbm::codec
#endif
