// A second stack on a system thread with explicit switches: one thread of a block.
//
// On x86-64 a switch of stacks is a few own instructions: swapcontext asks the kernel for the signal mask each time,
// which was more than half of the time of emulated kernels. The sanitizers are notified of every switch. Thread: all
// calls on one fiber come from one system thread.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace kvbm::emulation {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Prepares the next resume() to call entry(argument) on an empty stack; frames left there are dropped, not unwound.
  // `entry` ends with finish() and never returns.
  void start(void (*entry)(void*), void* argument);
  // Called from outside: runs the fiber until it calls suspend() or finish().
  void resume();
  // Called by the fiber itself: returns to the caller of resume().
  void suspend();
  [[noreturn]] void finish();

 private:
#if defined(__x86_64__)
  using Stopped = void*;  // stack pointer where a stack was left
  static void enter(Fiber* self);
#else
  using Stopped = ucontext_t;
  static void enter(unsigned high, unsigned low);
#endif
  void begin();  // common start of every fiber
  [[nodiscard]] char* stack() const noexcept;
  // Leaves one stack and continues where the other was left.
  static void change(Stopped& from, Stopped& to);

  Stopped inside_{};
  Stopped outside_{};
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* mapping_ = nullptr;  // a guard page, then the stack
  // Arguments for a sanitizer; unused without one.
  [[maybe_unused]] void* tsan_inside_ = nullptr;
  [[maybe_unused]] void* tsan_outside_ = nullptr;
  [[maybe_unused]] void* fake_inside_ = nullptr;
  [[maybe_unused]] const void* outside_stack_ = nullptr;
  [[maybe_unused]] size_t outside_bytes_ = 0;
};

}  // namespace kvbm::emulation
