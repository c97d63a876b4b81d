// First include of every kernel's source: CUDA, or its substitute in a compilation for the CPU, and the accesses to
// global memory that moving needs.
//
// Loads are asm volatile: the compiler does each once and never repeats it, so the hashed bytes are those written.
// Loads and stores are marked as read once (.cs, evict first).
#pragma once

#include <stdint.h>

#if defined(KVBM_CUDA_EMULATION)
#include KVBM_CUDA_EMULATION
#else
#define KVBM_DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
#endif

namespace kvbm::device::kernels {

#if defined(KVBM_CUDA_EMULATION)

template <class T>
inline T emulated_load(uint64_t address) {
  const void* at = reinterpret_cast<const void*>(address);
  emulation::current_runner().check_access(at, sizeof(T), sizeof(T), false);
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
inline void emulated_store(uint64_t address, T value) {
  void* at = reinterpret_cast<void*>(address);
  emulation::current_runner().check_access(at, sizeof(T), sizeof(T), true);
  memcpy(at, &value, sizeof value);
}

inline uint4 load16_if(uint64_t address, bool wanted) { return wanted ? emulated_load<uint4>(address) : uint4{}; }
inline uint2 load8_if(uint64_t address, bool wanted) { return wanted ? emulated_load<uint2>(address) : uint2{}; }
inline uint32_t load4_if(uint64_t address, bool wanted) { return wanted ? emulated_load<uint32_t>(address) : 0; }
inline uint4 load16(uint64_t address) { return emulated_load<uint4>(address); }
inline uint2 load8(uint64_t address) { return emulated_load<uint2>(address); }
inline uint32_t load4(uint64_t address) { return emulated_load<uint32_t>(address); }
inline uint32_t load1(uint64_t address) { return emulated_load<uint8_t>(address); }
inline void store16(uint64_t address, const uint4& v) { emulated_store(address, v); }
inline void store8(uint64_t address, const uint2& v) { emulated_store(address, v); }
inline void store4(uint64_t address, uint32_t v) { emulated_store(address, v); }
inline void store1(uint64_t address, uint32_t v) { emulated_store(address, static_cast<uint8_t>(v)); }
inline uint32_t apart(uint32_t v) { return v; }
inline uint64_t apart(uint64_t v) { return v; }
inline void prefetch(const void*) {}
// Waits until `threads` threads of the block, whole warps, are here. id 0 is the barrier of __syncthreads.
inline void sync_some(uint32_t id, uint32_t threads) {
  emulation::current_runner().barrier(id, threads, {"sync_some", __FILE__, __LINE__});
}

#else

__device__ __forceinline__ uint4 load16(uint64_t address) {
  uint4 v;
  asm volatile("ld.global.cs.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address));
  return v;
}
// Returns zero if not wanted, without a branch, so that a thread's loads follow each other at once.
__device__ __forceinline__ uint4 load16_if(uint64_t address, bool wanted) {
  uint4 v = make_uint4(0, 0, 0, 0);
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.cs.v4.u32 {%0,%1,%2,%3}, [%4]; }"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(address), "r"(static_cast<uint32_t>(wanted)));
  return v;
}
__device__ __forceinline__ uint2 load8_if(uint64_t address, bool wanted) {
  uint2 v = make_uint2(0, 0);
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.cs.v2.u32 {%0,%1}, [%2]; }"
               : "+r"(v.x), "+r"(v.y)
               : "l"(address), "r"(static_cast<uint32_t>(wanted)));
  return v;
}
__device__ __forceinline__ uint32_t load4_if(uint64_t address, bool wanted) {
  uint32_t v = 0;
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.cs.u32 %0, [%1]; }"
               : "+r"(v)
               : "l"(address), "r"(static_cast<uint32_t>(wanted)));
  return v;
}
__device__ __forceinline__ uint2 load8(uint64_t address) {
  uint2 v;
  asm volatile("ld.global.cs.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address));
  return v;
}
__device__ __forceinline__ uint32_t load4(uint64_t address) {
  uint32_t v;
  asm volatile("ld.global.cs.u32 %0, [%1];" : "=r"(v) : "l"(address));
  return v;
}
__device__ __forceinline__ uint32_t load1(uint64_t address) {
  uint32_t v;
  asm volatile("ld.global.cs.u8 %0, [%1];" : "=r"(v) : "l"(address));
  return v;
}
__device__ __forceinline__ void store16(uint64_t address, const uint4& v) {
  asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ void store8(uint64_t address, const uint2& v) {
  asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(address), "r"(v.x), "r"(v.y) : "memory");
}
__device__ __forceinline__ void store4(uint64_t address, uint32_t v) {
  asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(address), "r"(v) : "memory");
}
__device__ __forceinline__ void store1(uint64_t address, uint32_t v) {
  asm volatile("st.global.cs.u8 [%0], %1;" ::"l"(address), "r"(v) : "memory");
}
// Returns `v` as a number unknown to the compiler, so that values computed from it are not kept in registers for the
// other paths through a kernel.
__device__ __forceinline__ uint32_t apart(uint32_t v) {
  asm volatile("" : "+r"(v));
  return v;
}
// Returns `v`, a result that is kept: it is computed here, once, and not again at each use.
__device__ __forceinline__ uint64_t apart(uint64_t v) {
  asm volatile("" : "+l"(v));
  return v;
}
// Requests the line into the L2 cache.
__device__ __forceinline__ void prefetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
__device__ __forceinline__ void sync_some(uint32_t id, uint32_t threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

#endif

// Returns the data at `address`, one value for all threads of the warp, of which this is number `thread`. It is one
// request: lane n loads bytes 16 n to 16 n + 15, and the others get them from it. Used for memory of the host, where
// each load of a warp crosses the link on its own.
template <class T>
__device__ __forceinline__ T read_by_lanes(uint64_t address, uint32_t thread) {
  constexpr uint32_t kLanes = sizeof(T) / 16;
  static_assert(sizeof(T) % 16 == 0 && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0, "lanes read 16 bytes each");
  const uint4 mine = load16(address + 16 * (thread % kLanes));
  const uint64_t low = uint64_t{mine.y} << 32 | mine.x;
  const uint64_t high = uint64_t{mine.w} << 32 | mine.z;
  uint64_t words[2 * kLanes];
#if !defined(KVBM_CUDA_EMULATION)
#pragma unroll
#endif
  for (uint32_t k = 0; k < 2 * kLanes; ++k) {
    words[k] = __shfl_sync(0xFFFFFFFFU, k % 2 == 0 ? low : high, static_cast<int>(k / 2));
  }
  T out;
  memcpy(&out, words, sizeof out);
  return out;
}

// Reads like read_by_lanes(), but on the CPU just reads, because there shuffles take longer than all else.
template <class T>
__device__ __forceinline__ T read_once(const T* at, uint32_t thread) {
#if defined(KVBM_CUDA_EMULATION)
  (void)thread;
  return *at;
#else
  return read_by_lanes<T>(reinterpret_cast<uint64_t>(at), thread);
#endif
}

}  // namespace kvbm::device::kernels
