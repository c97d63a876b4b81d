// A second stack on a thread of the system, entered and left by hand: what one thread of a block is.
//
// On x86-64 a change of stacks is a few instructions of our own: swapcontext asks the kernel for the signal mask each time,
// which was more than half of all that emulated kernels took. The sanitizers are told of every change of stacks. Thread: all calls on one fiber come from one thread of the system.
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

  // The next resume() begins entry(argument) on an empty stack; what was left there is forgotten, not unwound.
  // `entry` ends with finish() and never returns.
  void start(void (*entry)(void*), void* argument);
  // From outside: runs the fiber until it calls suspend() or finish().
  void resume();
  // From inside.
  void suspend();
  [[noreturn]] void finish();

 private:
#if defined(__x86_64__)
  using Stopped = void*;  // where a stack was left
  static void enter(Fiber* self);
#else
  using Stopped = ucontext_t;
  static void enter(unsigned high, unsigned low);
#endif
  void begin();  // what every fiber does first
  [[nodiscard]] char* stack() const noexcept;
  // Leaves one stack and goes on where the other was left.
  static void change(Stopped& from, Stopped& to);

  Stopped inside_{};
  Stopped outside_{};
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* mapping_ = nullptr;  // a page that nobody may touch, then the stack
  // What a sanitizer is told; unused without one.
  [[maybe_unused]] void* tsan_inside_ = nullptr;
  [[maybe_unused]] void* tsan_outside_ = nullptr;
  [[maybe_unused]] void* fake_inside_ = nullptr;
  [[maybe_unused]] const void* outside_stack_ = nullptr;
  [[maybe_unused]] size_t outside_bytes_ = 0;
};

}  // namespace kvbm::emulation
