// Handles Ctrl-C as a flag: the first SIGINT or SIGTERM requests the end, the second ends the process by the default
// action, after the terminal was restored.
//
// There may be one object at a time; its destructor restores the signals. While it lives, a closed output, and a file
// beyond `ulimit -f`, is an error of the write and no signal.
#pragma once

#include <signal.h>

#include <atomic>

namespace kvbm::terminal {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  // Returns true once a signal or ask() has asked the program to end.
  [[nodiscard]] static const std::atomic<bool>& asked() noexcept;
  // Asks the program to end, as a signal would; called by the program itself.
  static void ask() noexcept;
  // Returns a descriptor that becomes readable at the request, for use in poll(2); -1 if the system gave none.
  [[nodiscard]] static int fd() noexcept;

 private:
  struct sigaction int_;
  struct sigaction term_;
  struct sigaction pipe_;
  struct sigaction file_size_;
};

}  // namespace kvbm::terminal
