// Identity of the process at the other end of a Unix socket, as reported by the kernel.
//
// The peer must belong to this user: an admitted peer may read all of a pool, and a process of the same user could read
// this one's memory anyway. Both sides check, so root is no exception: a process of root does not trust another user's
// data. A peer of another user namespace has the number that this one maps it to (base/io/ownership.h).
//
// The credentials are those of connect(2) and listen(2). The pidfd comes from the socket if the kernel supports it
// (SO_PEERPIDFD, Linux 6.5). Earlier kernels open it by number. That number can name another process only if the peer
// died and the number was reused while a child of it holds the socket. Then this socket lives until that other process
// ends, which is harmless.
#pragma once

#include <sys/types.h>

#include "base/io/fd.h"
#include "base/status.h"

namespace kvbm::copy::local {

struct PeerProcess {
  pid_t pid = 0;  // 0 if it is in a pid namespace that is not visible from here
  uid_t uid = 0;
  Fd pidfd;  // readable once the process has ended
};

// Errors: not_permitted (another user's process); owner_gone (the process has ended); unsupported (no pidfd is
// available).
Result<PeerProcess> peer_process(int socket_fd);

// Costs one system call.
[[nodiscard]] bool has_ended(int pidfd) noexcept;

// Returns another descriptor of the same object; empty when there are none left.
[[nodiscard]] Fd duplicate(int fd) noexcept;

}  // namespace kvbm::copy::local
