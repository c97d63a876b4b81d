// Ctrl-C as a flag: the first SIGINT or SIGTERM asks for an end, the second ends the process as if nobody listened,
// after the terminal was given back.
//
// One object at a time; the signals are as before when it goes. While it lives a closed output, and a file
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

  // True once somebody asked for an end.
  [[nodiscard]] static const std::atomic<bool>& asked() noexcept;
  // The same from inside the process.
  static void ask() noexcept;
  // Readable from then on, for whoever sleeps in poll(2); -1 where the system gave none.
  [[nodiscard]] static int fd() noexcept;

 private:
  struct sigaction int_;
  struct sigaction term_;
  struct sigaction pipe_;
  struct sigaction file_size_;
};

}  // namespace kvbm::terminal
