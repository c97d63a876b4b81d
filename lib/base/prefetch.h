// Asking for a cache line ahead of its use.
#pragma once

namespace kvbm {

// For writing: where the line is in another core's cache it comes exclusively at once, not shared first and then again at
// the store. The compiler's own form asks for that only where it is told that the processor can; all of x86-64 can, or
// take it for nothing.
inline void prefetch_for_write(const void* p) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

}  // namespace kvbm
