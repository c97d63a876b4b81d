// Who is at the other end of a Unix socket, as the kernel says it.
//
// The peer must be of this user: who is admitted to a pool may read all of it, and a process of the same user could
// read this one's memory anyway. Both sides ask, so root is no exception: a process of root takes another user's word for
// nothing. A peer of another user namespace has the number that this one maps it to (base/ownership.h).
// The credentials are those of connect(2) and listen(2). The pidfd comes from the socket where the kernel has it
// (SO_PEERPIDFD, Linux 6.5); before, it is opened by number, and a number can name another process only if the peer
// died and its number came round while a child of it holds the socket: then this socket outlives that other process, no
// worse.
#pragma once

#include <sys/types.h>

#include "base/fd.h"
#include "base/status.h"

namespace kvbm::copy::local {

struct PeerProcess {
  pid_t pid = 0;  // 0 where it lives in a pid namespace that is not seen from here
  uid_t uid = 0;
  Fd pidfd;  // readable once the process has ended
};

// not_permitted: another user; owner_gone: it has ended already; unsupported: no pidfd to be had.
Result<PeerProcess> peer_process(int socket_fd);

// One system call.
[[nodiscard]] bool has_ended(int pidfd) noexcept;

// Another descriptor of the same; empty when there are none left.
[[nodiscard]] Fd duplicate(int fd) noexcept;

}  // namespace kvbm::copy::local
