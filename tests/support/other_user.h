// Another user of this machine, for tests: a child process that is one, and files that are this user's alone.
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace kvbm::test {

inline constexpr uid_t kOtherUser = 65534;

// Only root can become another user; a test that needs it is skipped by name otherwise.
inline bool can_be_another_user() { return geteuid() == 0; }

// Called in a forked child. Returns false if the child could not become the other user.
inline bool become_another_user(uid_t user = kOtherUser) {
  return setgroups(0, nullptr) == 0 && setgid(user) == 0 && setuid(user) == 0;
}

// Runs `body` in a child of another user, and returns the exit code of `body`. -1: it did not get that far. In a
// program with threads `body` may use only system calls.
template <class Body>
int as_another_user(Body&& body, uid_t user = kOtherUser) {
  const pid_t child = fork();
  if (child == 0) _exit(become_another_user(user) ? body() : 255);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status) == 255 ? -1 : WEXITSTATUS(status);
}

// Writes a file of mode 0600 with that text, whatever the umask.
inline bool write_own_file(const std::string& path, std::string_view text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written =
      fd >= 0 && fchmod(fd, 0600) == 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) close(fd);
  return written;
}

inline mode_t mode_of(const std::string& path) {
  struct stat st {};
  return lstat(path.c_str(), &st) == 0 ? st.st_mode & 07777 : 0;
}

}  // namespace kvbm::test
