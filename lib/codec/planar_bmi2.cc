// Planar blocks in 64-bit words, with pdep and pext.
#include "codec/planar_kernel.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("bmi,bmi2,popcnt")
#endif

namespace kvbm::codec {
namespace {

inline uint64_t deposit(uint64_t bits, uint64_t mask) noexcept { return _pdep_u64(bits, mask); }
inline uint64_t extract(uint64_t word, uint64_t mask) noexcept { return _pext_u64(word, mask); }

#include "codec/planar_words.inc"

constexpr PlanarKernel kKernel{"bmi2", encode_blocks, decode_blocks};

}  // namespace
}  // namespace kvbm::codec

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace kvbm::codec {
const PlanarKernel* planar_bmi2() noexcept {
  return __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt") ? &kKernel : nullptr;
}
}  // namespace kvbm::codec
#else
namespace kvbm::codec {
const PlanarKernel* planar_bmi2() noexcept { return nullptr; }
}  // namespace kvbm::codec
#endif
