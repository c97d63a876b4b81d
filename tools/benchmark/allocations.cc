#include "benchmark/allocations.h"

#include <cstdlib>
#include <new>

namespace {
thread_local uint64_t count = 0;
}

namespace kvbm::benchmark {

uint64_t allocations() noexcept { return count; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
bool allocations_counted() noexcept { return false; }
#else
bool allocations_counted() noexcept { return true; }
#endif

}  // namespace kvbm::benchmark

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The array and nothrow forms of the standard library call these.
void* operator new(size_t bytes) {
  ++count;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  ++count;
  const auto align = static_cast<size_t>(alignment);
  if (void* p = std::aligned_alloc(align, (bytes + align - 1) / align * align)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
#endif
