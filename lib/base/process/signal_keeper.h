// Keeps a host's signal handling while a foreign library is loaded or started. UCX, for one, installs its own handlers
// for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGHUP from a constructor, and an alternate stack (measured, 1.13 and 1.22).
//
// The destructor restores what the library changed. A change that another thread makes to a signal in the meantime
// cannot be told apart and is undone too. The system is called directly: the C library adds a flag of its own when it
// restores, and its copy of a mask has more bits than were ever set. All signals of this thread are blocked while the
// object exists, so that threads started by the library never run a handler of the host. Header-only: modules outside
// lib/ use it too.
#pragma once

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace kvbm {

// Action of one signal, as the kernel stores it.
class SignalAction {
 public:
  static constexpr int kSignals = 64;

  bool read(int number) { return ::syscall(SYS_rt_sigaction, number, nullptr, words_.data(), kSetBytes) == 0; }
  bool restore(int number) const { return ::syscall(SYS_rt_sigaction, number, words_.data(), nullptr, kSetBytes) == 0; }
  friend bool operator==(const SignalAction& a, const SignalAction& b) { return a.words_ == b.words_; }

 private:
  static constexpr size_t kSetBytes = 8;  // size of the kernel's signal set
  std::array<unsigned long, 8> words_{};  // handler, flags, restorer, mask; an architecture may have fewer
};

class SignalKeeper {
 public:
  SignalKeeper() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &mask_);
    for (int i = 1; i <= SignalAction::kSignals; ++i) known_[at(i)] = before_[at(i)].read(i);
    stack_known_ = ::sigaltstack(nullptr, &stack_) == 0;
  }
  ~SignalKeeper() {
    for (int i = 1; i <= SignalAction::kSignals; ++i) {
      SignalAction now;
      if (known_[at(i)] && now.read(i) && !(now == before_[at(i)])) before_[at(i)].restore(i);
    }
    stack_t now{};
    if (stack_known_ && ::sigaltstack(nullptr, &now) == 0 &&
        (now.ss_sp != stack_.ss_sp || now.ss_flags != stack_.ss_flags)) {
      ::sigaltstack(&stack_, nullptr);
    }
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  SignalKeeper(const SignalKeeper&) = delete;
  SignalKeeper& operator=(const SignalKeeper&) = delete;

 private:
  static size_t at(int number) { return static_cast<size_t>(number); }

  std::array<SignalAction, SignalAction::kSignals + 1> before_{};
  std::array<bool, SignalAction::kSignals + 1> known_{};
  stack_t stack_{};
  bool stack_known_ = false;
  sigset_t mask_{};
};

}  // namespace kvbm
