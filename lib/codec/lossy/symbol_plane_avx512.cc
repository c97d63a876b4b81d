// Symbol planes with AVX-512 VBMI and BMI2: 64 symbols a step.
#include "codec/lossy/symbol_plane.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <bit>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,bmi2,popcnt"))), \
                             apply_to = function)
#else
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512vbmi,bmi2,popcnt,prefer-vector-width=512")
#endif

namespace kvbm::codec {
namespace {

inline __m512i table_of(const SymbolTable& table) noexcept { return _mm512_load_si512(table.data()); }

void encode(const SymbolCode& code, const std::byte* symbols, const std::byte* contexts, uint32_t groups,
            PlaneStreams& streams) noexcept {
  const __m512i lengths = table_of(code.length);
  const __m512i codes = table_of(code.bits);
  uint64_t pending[kCodeLevels] = {};  // unwritten bits of the last word of each stream
  for (size_t g = 0; g < groups; ++g) {
    const __m512i index = _mm512_or_si512(_mm512_loadu_si512(symbols + g * kSymbolGroup),
                                          _mm512_loadu_si512(contexts + g * kSymbolGroup));
    const __m512i lane_length = _mm512_permutexvar_epi8(index, lengths);
    __m512i lane_code = _mm512_permutexvar_epi8(index, codes);
    __mmask64 left = ~__mmask64{0};
    for (size_t l = 0; l < kCodeLevels && left != 0; ++l) {
      const uint64_t bits = _pext_u64(_mm512_movepi8_mask(lane_code), left);
      const auto n = static_cast<uint32_t>(_mm_popcnt_u64(left));
      const uint32_t fill = streams.bits[l] % 64;
      pending[l] |= bits << fill;
      store_le(streams.data[l] + streams.bits[l] / 64 * 8, pending[l]);
      if (fill + n >= 64) pending[l] = fill == 0 ? 0 : bits >> (64 - fill);
      streams.bits[l] += n;
      lane_code = _mm512_add_epi8(lane_code, lane_code);
      left = _mm512_cmpgt_epu8_mask(lane_length, _mm512_set1_epi8(static_cast<char>(l + 1)));
    }
  }
  for (size_t l = 0; l < kCodeLevels; ++l) {
    if (streams.bits[l] % 64 != 0) store_le(streams.data[l] + streams.bits[l] / 64 * 8, pending[l]);
  }
}

bool decode(const SymbolCode& code, const PlaneStreams& streams, const std::byte* contexts, uint32_t groups,
            std::byte* symbols) noexcept {
  uint32_t at[kCodeLevels] = {};
  const __m512i by_rank = table_of(code.by_rank);
  for (size_t g = 0; g < groups; ++g) {
    const __m512i context = _mm512_loadu_si512(contexts + g * kSymbolGroup);
    __m512i read = _mm512_setzero_si512();
    __m512i rank = read;
    __mmask64 left = ~__mmask64{0};
    for (size_t l = 0; l < kCodeLevels && left != 0; ++l) {
      // Up to 64 bits from any bit. A stream that ended before a group is detected here, one that ends inside it at the
      // next group: at most 17 bytes are read behind it.
      if (at[l] > streams.bits[l]) return false;
      const std::byte* const word = streams.data[l] + at[l] / 8;
      const uint32_t shift = at[l] % 8;
      const uint64_t bits = load_le<uint64_t>(word) >> shift | static_cast<uint64_t>(load_le<uint8_t>(word + 8))
                                                                   << 1 << (63 - shift);
      read = _mm512_add_epi8(read, read);
      read = _mm512_mask_sub_epi8(read, _pdep_u64(bits, left), read, _mm512_set1_epi8(-1));
      at[l] += static_cast<uint32_t>(_mm_popcnt_u64(left));
      const __m512i limit = _mm512_permutexvar_epi8(context, table_of(code.limit[l]));
      const __m512i offset = _mm512_permutexvar_epi8(context, table_of(code.offset[l]));
      const __mmask64 whole = _mm512_mask_cmplt_epu8_mask(left, read, limit);
      rank = _mm512_mask_add_epi8(rank, whole, read, offset);
      left &= ~whole;
    }
    const __m512i found = _mm512_permutexvar_epi8(_mm512_or_si512(context, rank), by_rank);
    _mm512_storeu_si512(symbols + g * kSymbolGroup, found);
  }
  bool exact = true;
  for (size_t l = 0; l < kCodeLevels; ++l) exact &= at[l] == streams.bits[l];
  return exact;
}

constexpr SymbolKernel kKernel{"avx512", encode, decode};

}  // namespace
}  // namespace kvbm::codec

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kvbm::codec {
const SymbolKernel* avx512_symbol_kernel() noexcept {
  static const bool available = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                                __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
                                __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
  return available ? &kKernel : nullptr;
}
}  // namespace kvbm::codec
#else
namespace kvbm::codec {
const SymbolKernel* avx512_symbol_kernel() noexcept { return nullptr; }
}  // namespace kvbm::codec
#endif
