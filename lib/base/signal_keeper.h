// Keeps a host's signal handling while a foreign library is loaded or started: UCX, for one, installs handlers of its
// own for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGHUP from a constructor, and an alternate stack (measured, 1.13 and
// 1.22).
//
// What the library changed is put back when this goes; what another thread changes in the meantime to the same signal
// cannot be told apart and is put back too. All signals of this thread are blocked while it lives, so that threads
// which the library starts never run a handler of the host. Header-only: modules outside lib/ use it too.
#pragma once

#include <signal.h>

#include <array>
#include <cstring>

namespace kvbm {

class SignalKeeper {
 public:
  SignalKeeper() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &mask_);
    for (size_t i = 1; i < before_.size(); ++i) known_[i] = ::sigaction(static_cast<int>(i), nullptr, &before_[i]) == 0;
    stack_known_ = ::sigaltstack(nullptr, &stack_) == 0;
  }
  ~SignalKeeper() {
    for (size_t i = 1; i < before_.size(); ++i) {
      struct sigaction now {};
      if (!known_[i] || ::sigaction(static_cast<int>(i), nullptr, &now) != 0 || same(now, before_[i])) continue;
      ::sigaction(static_cast<int>(i), &before_[i], nullptr);
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
  static bool same(const struct sigaction& a, const struct sigaction& b) {
    return a.sa_handler == b.sa_handler && a.sa_flags == b.sa_flags &&
           std::memcmp(&a.sa_mask, &b.sa_mask, sizeof a.sa_mask) == 0;
  }

  std::array<struct sigaction, 65> before_{};
  std::array<bool, 65> known_{};
  stack_t stack_{};
  bool stack_known_ = false;
  sigset_t mask_{};
};

}  // namespace kvbm
