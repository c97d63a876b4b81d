#include "support/cuda_emulation/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVBM_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define KVBM_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define KVBM_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define KVBM_TSAN 1
#endif

#if defined(KVBM_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(KVBM_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace kvbm::emulation {
namespace {

// Instrumented frames are several times as large.
#if defined(KVBM_ASAN) || defined(KVBM_TSAN)
constexpr size_t kStackBytes = 128 * 1024;
#else
constexpr size_t kStackBytes = 64 * 1024;
#endif

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

}  // namespace

Fiber::Fiber() {
  mapping_ = mmap(nullptr, page_bytes() + kStackBytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED || mprotect(mapping_, page_bytes(), PROT_NONE) != 0) {
    std::perror("no memory for the stack of an emulated thread");
    std::exit(1);
  }
#if defined(KVBM_TSAN)
  tsan_inside_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(KVBM_TSAN)
  __tsan_destroy_fiber(tsan_inside_);
#endif
  munmap(mapping_, page_bytes() + kStackBytes);
}

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  fake_inside_ = nullptr;
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = static_cast<char*>(mapping_) + page_bytes();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
#if defined(KVBM_ASAN)
  __asan_unpoison_memory_region(inside_.uc_stack.ss_sp, kStackBytes);
#endif
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

void Fiber::enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low);
#if defined(KVBM_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &self->outside_stack_, &self->outside_bytes_);
#endif
  self->entry_(self->argument_);
}

void Fiber::resume() {
#if defined(KVBM_ASAN)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, inside_.uc_stack.ss_sp, kStackBytes);
#endif
#if defined(KVBM_TSAN)
  tsan_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_inside_, 0);
#endif
  swapcontext(&outside_, &inside_);
#if defined(KVBM_ASAN)
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#if defined(KVBM_ASAN)
  __sanitizer_start_switch_fiber(&fake_inside_, outside_stack_, outside_bytes_);
#endif
#if defined(KVBM_TSAN)
  __tsan_switch_to_fiber(tsan_outside_, 0);
#endif
  swapcontext(&inside_, &outside_);
#if defined(KVBM_ASAN)
  __sanitizer_finish_switch_fiber(fake_inside_, &outside_stack_, &outside_bytes_);
#endif
}

void Fiber::finish() {
#if defined(KVBM_ASAN)
  __sanitizer_start_switch_fiber(nullptr, outside_stack_, outside_bytes_);
#endif
#if defined(KVBM_TSAN)
  __tsan_switch_to_fiber(tsan_outside_, 0);
#endif
  setcontext(&outside_);
  __builtin_unreachable();
}

}  // namespace kvbm::emulation
