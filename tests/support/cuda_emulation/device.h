// Replaces CUDA's headers when a kernel's source is compiled for the CPU.
//
// Names, arguments and results are those of the CUDA C++ programming guide (13.0). Only features that our kernels use
// are here. Included through device/kernels/cuda.cuh, in one C++ file for each kernel source (kernels_*.cc), nowhere
// else: it defines macros with the names of CUDA's keywords.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "support/cuda_emulation/block_runner.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __constant__ static const
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// A block runs on one thread of the system, which runs one block at a time.
#define __shared__ static thread_local
#define KVBM_DYNAMIC_SHARED(type, name) \
  type* name = static_cast<type*>(::kvbm::emulation::current_runner().dynamic_shared())
#define __builtin_assume(condition) \
  ((condition)                      \
       ? void()                     \
       : ::kvbm::emulation::current_runner().fail(::kvbm::emulation::Outcome::Kind::trapped, "assumes " #condition))

#define threadIdx (::kvbm::emulation::current_runner().here().thread)
#define blockIdx (::kvbm::emulation::current_runner().here().block)
#define blockDim (::kvbm::emulation::current_runner().here().block_dim)
#define gridDim (::kvbm::emulation::current_runner().here().grid_dim)
inline constexpr int warpSize = 32;

struct __align__(8) uint2 {
  unsigned x, y;
};
struct __align__(16) uint4 {
  unsigned x, y, z, w;
};
struct __align__(16) ulonglong2 {
  unsigned long long x, y;
};
struct __align__(8) float2 {
  float x, y;
};
struct __align__(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Barriers. The calling place in the source is part of what must agree.
inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  kvbm::emulation::current_runner().barrier(0, 0, {"__syncthreads", file, line});
}
inline void __syncwarp(unsigned mask = 0xFFFFFFFFU, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  (void)kvbm::emulation::current_runner().exchange(mask, 0, {"__syncwarp", file, line}, 0);
}
inline void __nanosleep(unsigned, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  kvbm::emulation::current_runner().give_way({"__nanosleep", file, line});
}
[[noreturn]] inline void __trap() {
  kvbm::emulation::current_runner().fail(kvbm::emulation::Outcome::Kind::trapped, "__trap");
}

namespace kvbm::emulation {

// Orders memory by an atomic word, because gcc's thread sanitizer knows no fences.
inline void fence() {
  static uint64_t word = 0;
  __atomic_fetch_add(&word, 0, __ATOMIC_SEQ_CST);
}

inline unsigned lane_index() {
  const Coordinates& c = current_runner().here();
  return (c.thread.x + c.block_dim.x * (c.thread.y + c.block_dim.y * c.thread.z)) % kWarp;
}

template <class T>
uint64_t to_word(T value) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(uint64_t));
  uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  return word;
}

template <class T>
T from_word(uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

// Returns to each lane the value of the lane that `source` names inside its part of `width` lanes; outside the part its
// own.
template <class T>
T shuffle(unsigned mask, T value, int source, int width, bool inside, const Site& site) {
  BlockRunner& runner = current_runner();
  const unsigned lane = lane_index();
  const unsigned from = (lane & ~(static_cast<unsigned>(width) - 1)) + static_cast<unsigned>(source);
  const uint64_t there = runner.exchange(mask, to_word(value), site, from);
  if (width <= 0 || width > 32 || (width & (width - 1)) != 0)
    runner.fail(Outcome::Kind::trapped, "a shuffle's width is no power of two");
  if (!inside) return value;
  if ((mask >> from & 1U) == 0) runner.fail(Outcome::Kind::divergent, "a shuffle reads a lane that takes no part");
  return from_word<T>(there);
}

template <class T, class Combine>
T reduce(unsigned mask, T value, const Site& site, Combine /*two of them*/) {
  const auto of_all = [](const uint64_t(&values)[kWarp], unsigned lanes) {
    bool first = true;
    T result{};
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((lanes >> lane & 1U) == 0) continue;
      const T one = from_word<T>(values[lane]);
      result = first ? one : Combine{}(result, one);
      first = false;
    }
    return to_word(result);
  };
  return from_word<T>(current_runner().combine(mask, to_word(value), site, of_all));
}

}  // namespace kvbm::emulation

#define KVBM_EMULATED_SITE(name) \
  ::kvbm::emulation::Site { #name, file, line }
#define KVBM_EMULATED_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, KVBM_EMULATED_PLACE) {
  return kvbm::emulation::shuffle(mask, value, source & (width - 1), width, true, KVBM_EMULATED_SITE(__shfl_sync));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int flip, int width = 32, KVBM_EMULATED_PLACE) {
  const int lane = static_cast<int>(kvbm::emulation::lane_index()) & (width - 1);
  return kvbm::emulation::shuffle(mask, value, lane ^ flip, width, (lane ^ flip) < width,
                                  KVBM_EMULATED_SITE(__shfl_xor_sync));
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, KVBM_EMULATED_PLACE) {
  const int lane = static_cast<int>(kvbm::emulation::lane_index()) & (width - 1);
  const int source = lane - static_cast<int>(by);
  return kvbm::emulation::shuffle(mask, value, source, width, source >= 0, KVBM_EMULATED_SITE(__shfl_up_sync));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, KVBM_EMULATED_PLACE) {
  const int lane = static_cast<int>(kvbm::emulation::lane_index()) & (width - 1);
  const int source = lane + static_cast<int>(by);
  return kvbm::emulation::shuffle(mask, value, source, width, source < width, KVBM_EMULATED_SITE(__shfl_down_sync));
}

inline unsigned __ballot_sync(unsigned mask, int predicate, KVBM_EMULATED_PLACE) {
  const unsigned bit = predicate != 0 ? 1U << kvbm::emulation::lane_index() : 0U;
  return kvbm::emulation::reduce(mask, bit, KVBM_EMULATED_SITE(__ballot_sync),
                                 [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int predicate, KVBM_EMULATED_PLACE) {
  return kvbm::emulation::reduce(mask, int{predicate != 0}, KVBM_EMULATED_SITE(__any_sync),
                                 [](int a, int b) { return a | b; });
}
inline int __all_sync(unsigned mask, int predicate, KVBM_EMULATED_PLACE) {
  return kvbm::emulation::reduce(mask, int{predicate != 0}, KVBM_EMULATED_SITE(__all_sync),
                                 [](int a, int b) { return a & b; });
}
template <class T>
T __reduce_add_sync(unsigned mask, T value, KVBM_EMULATED_PLACE) {
  return kvbm::emulation::reduce(mask, value, KVBM_EMULATED_SITE(__reduce_add_sync),
                                 [](T a, T b) { return static_cast<T>(a + b); });
}
template <class T>
T __reduce_min_sync(unsigned mask, T value, KVBM_EMULATED_PLACE) {
  return kvbm::emulation::reduce(mask, value, KVBM_EMULATED_SITE(__reduce_min_sync),
                                 [](T a, T b) { return a < b ? a : b; });
}
template <class T>
T __reduce_max_sync(unsigned mask, T value, KVBM_EMULATED_PLACE) {
  return kvbm::emulation::reduce(mask, value, KVBM_EMULATED_SITE(__reduce_max_sync),
                                 [](T a, T b) { return a > b ? a : b; });
}
template <class T>
T __reduce_or_sync(unsigned mask, T value, KVBM_EMULATED_PLACE) {
  return kvbm::emulation::reduce(mask, value, KVBM_EMULATED_SITE(__reduce_or_sync), [](T a, T b) { return a | b; });
}
template <class T>
T __reduce_xor_sync(unsigned mask, T value, KVBM_EMULATED_PLACE) {
  return kvbm::emulation::reduce(mask, value, KVBM_EMULATED_SITE(__reduce_xor_sync), [](T a, T b) { return a ^ b; });
}

// Bits and integers.
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __popcll(unsigned long long v) { return std::popcount(v); }
inline int __clz(int v) { return std::countl_zero(static_cast<unsigned>(v)); }
inline int __clzll(long long v) { return std::countl_zero(static_cast<unsigned long long>(v)); }
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline unsigned __brev(unsigned v) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (v >> i & 1U) << (31 - i);
  return r;
}
inline unsigned long long __brevll(unsigned long long v) {
  return static_cast<unsigned long long>(__brev(static_cast<unsigned>(v))) << 32 |
         __brev(static_cast<unsigned>(v >> 32));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<unsigned long long>(static_cast<Wide>(a) * b >> 64);
}
// Byte i of the result is byte (selector >> 4i & 7) of b:a; bit 3 of a digit repeats that byte's sign.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long both = static_cast<unsigned long long>(b) << 32 | a;
  unsigned r = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned digit = selector >> (4 * i) & 0xFU;
    auto byte = static_cast<unsigned>(both >> (8 * (digit & 7U)) & 0xFFU);
    if ((digit & 8U) != 0) byte = (byte & 0x80U) != 0 ? 0xFFU : 0U;
    r |= byte << (8 * i);
  }
  return r;
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both << (by & 31U) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
  return static_cast<unsigned>(both >> (by & 31U));
}
template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}

// Floats: every operation rounds by itself, to nearest even, as the _rn forms do on a device.
inline unsigned __float_as_uint(float f) { return std::bit_cast<unsigned>(f); }
inline int __float_as_int(float f) { return std::bit_cast<int>(f); }
inline float __uint_as_float(unsigned u) { return std::bit_cast<float>(u); }
inline float __int_as_float(int i) { return std::bit_cast<float>(i); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __uint2float_rn(unsigned u) { return static_cast<float>(u); }
inline float __int2float_rn(int i) { return static_cast<float>(i); }
inline int __float2int_rn(float f) { return static_cast<int>(std::nearbyint(f)); }
inline int __float2int_rz(float f) { return static_cast<int>(f); }

// Memory.
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
T __ldcv(const T* p) {
  return *static_cast<const volatile T*>(p);
}
template <class T>
void __stcs(T* p, T v) {
  *p = v;
}
template <class T>
void __stcg(T* p, T v) {
  *p = v;
}
template <class T>
void __stwt(T* p, T v) {
  *p = v;
}
inline void __threadfence() { kvbm::emulation::fence(); }
inline void __threadfence_block() { kvbm::emulation::fence(); }
inline void __threadfence_system() { kvbm::emulation::fence(); }

// Atomics are relaxed on a device; here they also order, which hides nothing that a fence would not.
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> v) {
  return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
  return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicXor(T* p, std::type_identity_t<T> v) {
  return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  return expected;
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (v < old && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  T old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
  while (old < v && !__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}
