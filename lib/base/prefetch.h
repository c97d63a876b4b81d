// Prefetches a cache line ahead of its use.
#pragma once

namespace kvbm {

// Prefetches for writing: a line in another core's cache is fetched exclusively at once, instead of shared first and
// then again at the store. The compiler's builtin does this only with a flag for such a processor. All of x86-64 can,
// or treats the instruction as a no-op.
inline void prefetch_for_write(const void* p) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

}  // namespace kvbm
