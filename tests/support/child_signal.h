// Signals to children of this process.
#pragma once

#include <sys/wait.h>

#include <cerrno>
#include <csignal>

namespace kvbm::test {

// False: there is no such child. After SIGSTOP every thread of the child stands still when this returns. kill() alone
// may return long before: until the thread that takes the signal gets a processor, the others run on.
inline bool signal_child(pid_t child, int number) {
  if (child <= 0 || ::kill(child, number) != 0) return false;
  int status = 0;
  while (number == SIGSTOP && ::waitpid(child, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
  return true;
}

}  // namespace kvbm::test
