#include "terminal/interrupt.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "terminal/screen.h"

namespace kvbm::terminal {

namespace {

std::atomic<bool> end_asked{false};
std::atomic<int> wake_fd{-1};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "a signal handler uses them");

void wake() noexcept {
  const uint64_t one = 1;
  const int fd = wake_fd.load(std::memory_order_relaxed);
  if (fd >= 0) (void)!::write(fd, &one, sizeof one);
}

void on_signal(int signal) {
  const int error = errno;
  const bool first = !end_asked.exchange(true, std::memory_order_relaxed);
  if (first) wake();
  errno = error;
  if (first) return;
  constexpr std::string_view kLeave = Screen::leave_text();
  if (::isatty(STDOUT_FILENO) == 1) (void)!::write(STDOUT_FILENO, kLeave.data(), kLeave.size());
  struct sigaction before {};
  before.sa_handler = SIG_DFL;
  ::sigaction(signal, &before, nullptr);
  ::raise(signal);
}

}  // namespace

Interrupt::Interrupt() {
  end_asked.store(false, std::memory_order_relaxed);
  wake_fd.store(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), std::memory_order_relaxed);
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &int_);
  ::sigaction(SIGTERM, &action, &term_);
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &pipe_);
  ::sigaction(SIGXFSZ, &action, &file_size_);
}

Interrupt::~Interrupt() {
  ::sigaction(SIGINT, &int_, nullptr);
  ::sigaction(SIGTERM, &term_, nullptr);
  ::sigaction(SIGPIPE, &pipe_, nullptr);
  ::sigaction(SIGXFSZ, &file_size_, nullptr);
  const int fd = wake_fd.exchange(-1, std::memory_order_relaxed);
  if (fd >= 0) ::close(fd);
}

const std::atomic<bool>& Interrupt::asked() noexcept { return end_asked; }

void Interrupt::ask() noexcept {
  end_asked.store(true, std::memory_order_relaxed);
  wake();
}

int Interrupt::fd() noexcept { return wake_fd.load(std::memory_order_relaxed); }

}  // namespace kvbm::terminal
