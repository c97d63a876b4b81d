// Operator new, aligned_alloc and mmap of a program, which refuse what support/refused_memory.h says. Included by one
// source of a program.
#pragma once

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "support/refused_memory.h"

namespace {

void* take(size_t bytes, size_t align) {
  if (kvbm::test::refuse()) return nullptr;
  if (align <= alignof(std::max_align_t)) return std::malloc(bytes != 0 ? bytes : 1);
  return memalign(align, bytes);
}
// As the standard says: the new-handler may throw, or ask for another try.
void* take_or_throw(size_t bytes, size_t align) {
  for (;;) {
    if (void* memory = take(bytes, align)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

// Must not be inlined: the compiler would report a mismatch of new and free.
__attribute__((noinline)) void give(void* memory) { std::free(memory); }

}  // namespace

void* operator new(size_t n) { return take_or_throw(n, 1); }
void* operator new[](size_t n) { return take_or_throw(n, 1); }
void* operator new(size_t n, std::align_val_t a) { return take_or_throw(n, static_cast<size_t>(a)); }
void* operator new[](size_t n, std::align_val_t a) { return take_or_throw(n, static_cast<size_t>(a)); }
void* operator new(size_t n, const std::nothrow_t&) noexcept try { return take_or_throw(n, 1); } catch (...) {
  return nullptr;
}
void* operator new[](size_t n, const std::nothrow_t&) noexcept try { return take_or_throw(n, 1); } catch (...) {
  return nullptr;
}
void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept try {
  return take_or_throw(n, static_cast<size_t>(a));
} catch (...) {
  return nullptr;
}
void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept try {
  return take_or_throw(n, static_cast<size_t>(a));
} catch (...) {
  return nullptr;
}
void operator delete(void* p) noexcept { give(p); }
void operator delete[](void* p) noexcept { give(p); }
void operator delete(void* p, size_t) noexcept { give(p); }
void operator delete[](void* p, size_t) noexcept { give(p); }
void operator delete(void* p, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { give(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { give(p); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Functions by which the core allocates without operator new. A sanitizer replaces these itself.
extern "C" void* aligned_alloc(size_t align, size_t bytes) noexcept {
  if (!kvbm::test::refuse()) return memalign(align, bytes);
  errno = ENOMEM;
  return nullptr;
}
extern "C" void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) noexcept {
  if (!kvbm::test::refuse()) {
    return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
  }
  errno = ENOMEM;
  return MAP_FAILED;
}
#endif
