// AVX2 rows: eight registers of lanes; keys come from memory.
#include "codec/hash/kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

// A region instead of a file flag: everything that the headers above define stays baseline code.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

namespace kvbm::codec {
namespace {

using Vector = __m256i;
constexpr size_t kWords = 4;
constexpr bool kWordsApart = false;

inline Vector load(const std::byte* p) noexcept { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline Vector load_aligned(const uint64_t* p) noexcept {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
inline void store_aligned(uint64_t* p, Vector v) noexcept { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
inline void store_cached(std::byte* p, Vector v) noexcept { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
inline Vector load_halves(const std::byte* p) noexcept { return load(p); }
inline void store_halves(std::byte* p, Vector v) noexcept { store_cached(p, v); }
inline void store_stream(std::byte* p, Vector v) noexcept { _mm256_stream_si256(reinterpret_cast<__m256i*>(p), v); }
inline void store_stream16(std::byte* p, Vector v) noexcept {
  auto* q = reinterpret_cast<__m128i*>(p);
  _mm_stream_si128(q, _mm256_castsi256_si128(v));
  _mm_stream_si128(q + 1, _mm256_extracti128_si256(v, 1));
}
inline Vector repeat(uint64_t word) noexcept { return _mm256_set1_epi64x(static_cast<long long>(word)); }
inline Vector add(Vector a, Vector b) noexcept { return _mm256_add_epi64(a, b); }
inline Vector bit_xor(Vector a, Vector b) noexcept { return _mm256_xor_si256(a, b); }
inline Vector multiply_halves(Vector v) noexcept { return _mm256_mul_epu32(v, _mm256_srli_epi64(v, 32)); }
inline Vector swap_pairs(Vector v) noexcept { return _mm256_shuffle_epi32(v, _MM_SHUFFLE(1, 0, 3, 2)); }
inline Vector shift_right_47(Vector v) noexcept { return _mm256_srli_epi64(v, 47); }
inline Vector multiply_factor(Vector v) noexcept {
  const Vector factor = repeat(kScrambleFactor);
  const Vector high = _mm256_mul_epu32(_mm256_srli_epi64(v, 32), factor);
  return _mm256_add_epi64(_mm256_mul_epu32(v, factor), _mm256_slli_epi64(high, 32));
}

#include "codec/hash/kernel_rows.inc"

constexpr Kernel kFirst{"avx2_l1", rows<Ask::first_level>};
constexpr Kernel kSecond{"avx2_l2", rows<Ask::second_level>};

}  // namespace
}  // namespace kvbm::codec

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kvbm::codec {
// The builtin checks the system's support for the register state too, not only the processor.
const Kernel* avx2_kernel(Ask ask) noexcept {
  if (!__builtin_cpu_supports("avx2")) return nullptr;
  return ask == Ask::first_level ? &kFirst : &kSecond;
}
}  // namespace kvbm::codec
#else
namespace kvbm::codec {
const Kernel* avx2_kernel(Ask) noexcept { return nullptr; }
}  // namespace kvbm::codec
#endif
