// User of the process at the other end of a TCP connection inside this machine, as reported by the kernel.
//
// TCP has no SO_PEERCRED. But both ends of a loopback connection are sockets of this machine, and the kernel knows the
// user that made each. NETLINK_SOCK_DIAG is asked for the socket with our two addresses swapped. If that is not
// available (a sandbox without AF_NETLINK), /proc/net/tcp and tcp6 are read line by line. A socket belongs to its maker
// as long as it has a file. A socket that its process has closed, or not accepted yet, belongs to no user. It must not
// be taken for root's, although the kernel reports user 0 for it.
//
// A peer that is not found is a stranger: it is in another network namespace, on another machine, or gone. So is a peer
// that the kernel reports under the number of all users that a user namespace does not map (base/io/ownership.h). A
// process that forwards connections (a proxy, a tunnel) counts as the peer, with any process behind it.
//
// Thread: one at a time; calls do not block. Cost: 10 us a request; if /proc is read, its length, kMostTable at most.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/io/fd.h"
#include "base/status.h"

namespace kvbm::copy::tcp {

enum class PeerUser : uint8_t { own, stranger, unknown };

class PeerUsers {
 public:
  // Most bytes of /proc/net/tcp that are read for one connection.
  static constexpr size_t kMostTable = size_t{16} << 20;

  // Works in the network namespace of the calling thread, which must be that of the sockets in question.
  PeerUsers();

  struct Verdict {
    PeerUser user = PeerUser::unknown;
    Status why;  // not_permitted with the remedy, but for `own`
  };
  // Finds the user of the process at the other end of a connection. Also unknown while no process there has accepted
  // it.
  [[nodiscard]] Verdict of_peer(int fd);
  // Finds the user of the process that listens at the address that this side has connected to.
  [[nodiscard]] Verdict of_listener(int fd);

  // Returns the user that made the socket at the other end; nullopt: not found. `why` describes the request, for
  // people.
  [[nodiscard]] std::optional<uid_t> ask_kernel(int fd, bool listener, std::string& why);
  // Like ask_kernel(), from a table in the format of /proc/net/tcp, with connections only.
  [[nodiscard]] static std::optional<uid_t> look_up(int fd, const char* table, std::string& why);

 private:
  struct Question;
  [[nodiscard]] bool sees(int fd) const;
  ssize_t ask(Question& question, std::span<char> answer);

  Fd netlink_;
  uint32_t asked_ = 0;
};

}  // namespace kvbm::copy::tcp
