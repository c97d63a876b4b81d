#include "support/cuda_emulation/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

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

#if defined(__x86_64__)
// Pushes the callee-saved registers, saves the stack pointer, switches to the other stack and pops. Floating-point
// modes stay unchanged: no code here sets them.
extern "C" __attribute__((visibility("hidden"))) void kvbm_fiber_change(void** from, void* to);
// Start of a new stack: rbx is the fiber, r12 its entry.
extern "C" __attribute__((visibility("hidden"))) void kvbm_fiber_begin();
asm(R"(
.text
.hidden kvbm_fiber_change
.globl kvbm_fiber_change
.type kvbm_fiber_change, @function
kvbm_fiber_change:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kvbm_fiber_change, .-kvbm_fiber_change
.hidden kvbm_fiber_begin
.globl kvbm_fiber_begin
.type kvbm_fiber_begin, @function
kvbm_fiber_begin:
  movq %rbx, %rdi
  callq *%r12
  ud2
.size kvbm_fiber_begin, .-kvbm_fiber_begin
)");
#endif

namespace kvbm::emulation {
namespace {

// Larger stacks, because a sanitizer makes frames several times as large.
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
#if defined(KVBM_ASAN)
  // Dropped frames are still poisoned, and so would be the next mapping at this address.
  __asan_unpoison_memory_region(stack(), kStackBytes);
#endif
  munmap(mapping_, page_bytes() + kStackBytes);
}

char* Fiber::stack() const noexcept { return static_cast<char*>(mapping_) + page_bytes(); }

void Fiber::start(void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  fake_inside_ = nullptr;
#if defined(KVBM_ASAN)
  __asan_unpoison_memory_region(stack(), kStackBytes);
#endif
#if defined(__x86_64__)
  // Laid out as kvbm_fiber_change leaves a stack, lowest first: r15, r14, r13, r12, rbx, rbp, and the return address.
  auto* const top = reinterpret_cast<void**>(stack() + kStackBytes);
  void* const left[] = {nullptr,
                        nullptr,
                        nullptr,
                        reinterpret_cast<void*>(&Fiber::enter),
                        this,
                        nullptr,
                        reinterpret_cast<void*>(&kvbm_fiber_begin)};
  inside_ = top - std::size(left);
  std::memcpy(inside_, left, sizeof left);
#else
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack();
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::enter), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
#endif
}

#if defined(__x86_64__)
void Fiber::enter(Fiber* self) { self->begin(); }
void Fiber::change(Stopped& from, Stopped& to) { kvbm_fiber_change(&from, to); }
#else
void Fiber::enter(unsigned high, unsigned low) { reinterpret_cast<Fiber*>(uintptr_t{high} << 32 | low)->begin(); }
void Fiber::change(Stopped& from, Stopped& to) { swapcontext(&from, &to); }
#endif

void Fiber::begin() {
#if defined(KVBM_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &outside_stack_, &outside_bytes_);
#endif
  entry_(argument_);
}

void Fiber::resume() {
#if defined(KVBM_ASAN)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack(), kStackBytes);
#endif
#if defined(KVBM_TSAN)
  tsan_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_inside_, 0);
#endif
  change(outside_, inside_);
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
  change(inside_, outside_);
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
  change(inside_, outside_);
  __builtin_unreachable();
}

}  // namespace kvbm::emulation
