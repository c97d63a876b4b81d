#include "copy/local/peer_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/errno_status.h"
#include "base/io/ownership.h"

namespace kvbm::copy::local {

namespace {

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, Linux 6.5

Status gone(pid_t pid) {
  return Status(Code::owner_gone, "the process that opened the socket has ended", "process " + std::to_string(pid));
}

Result<Fd> pidfd_of(int socket_fd, pid_t pid) {
  int fd = -1;
  socklen_t size = sizeof fd;
  if (getsockopt(socket_fd, SOL_SOCKET, kPeerPidfd, &fd, &size) == 0) return Fd(fd);
  // ESRCH: the kernel knows that it has ended. EINVAL: it was reaped (before Linux 6.16); it does not mean an unknown
  // option.
  if (errno == ESRCH || errno == EINVAL) return gone(pid);
  if (errno != ENOPROTOOPT) return errno_status(errno, "cannot watch a peer's process", std::to_string(pid));
  if (pid == 0) {
    return Status(Code::unsupported, "the peer is in another pid namespace: watching it needs Linux 6.5");
  }
  fd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0U));
  if (fd >= 0) return Fd(fd);
  if (errno == ESRCH) return gone(pid);
  if (errno == ENOSYS) return Status(Code::unsupported, "watching a peer's process needs Linux 5.3");
  return errno_status(errno, "cannot watch a peer's process", std::to_string(pid));
}

}  // namespace

Result<PeerProcess> peer_process(int socket_fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return errno_status(errno, "cannot ask for the peer's process", "SO_PEERCRED");
  }
  if (!is_this_user(credentials.uid)) {
    return Status(Code::not_permitted, "the peer is another user's process; run both as one user",
                  "process " + std::to_string(credentials.pid) + " of user " + std::to_string(credentials.uid));
  }
  auto pidfd = pidfd_of(socket_fd, credentials.pid);
  if (!pidfd.ok()) return pidfd.status();
  if (has_ended(pidfd.value().get())) return gone(credentials.pid);
  return PeerProcess{credentials.pid, credentials.uid, std::move(pidfd).value()};
}

bool has_ended(int pidfd) noexcept {
  pollfd watched{pidfd, POLLIN, 0};
  return poll(&watched, 1, 0) > 0;
}

Fd duplicate(int fd) noexcept { return Fd(fcntl(fd, F_DUPFD_CLOEXEC, 3)); }

}  // namespace kvbm::copy::local
