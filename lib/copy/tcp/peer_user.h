// Whose process is at the other end of a TCP connection inside this machine, as the kernel says it.
//
// TCP has no SO_PEERCRED. But both ends of a loopback connection are sockets of this machine, and the kernel tells of
// each socket who made it: by a question on NETLINK_SOCK_DIAG for the one whose two addresses are ours the other way
// round, or, where that is not to be had (a sandbox without AF_NETLINK), by /proc/net/tcp and tcp6, line by line. A
// socket is its maker's as long as it has a file: one that its process has closed, or not accepted yet, is nobody's,
// which must not be taken for root (the kernel says user 0 of it).
//
// What is not found is a stranger: a peer in another network namespace, of another machine, or gone. So is whoever the
// kernel shows under the number of all users that a user namespace does not map (base/ownership.h). Who forwards
// connections (a proxy, a tunnel) is whose process it is, whoever is behind it.
//
// Thread: one at a time; calls do not block. Cost: 10 us a question; where /proc is read, its length, kMostTable at most.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/status.h"

namespace kvbm::copy::tcp {

enum class PeerUser : uint8_t { own, stranger, unknown };

class PeerUsers {
 public:
  // How many bytes of /proc/net/tcp are read for one connection.
  static constexpr size_t kMostTable = size_t{16} << 20;

  // Of the network namespace that the calling thread is in: that of the sockets which are asked about.
  PeerUsers();

  struct Ends;  // the two addresses of a socket
  struct Verdict {
    PeerUser user = PeerUser::unknown;
    Status why;  // not_permitted with the remedy, but for `own`
  };
  // Of the process at the other end of a connection. Unknown also while nobody there has accepted it.
  [[nodiscard]] Verdict of_peer(int fd);
  // Of the process that listens where this side has connected to.
  [[nodiscard]] Verdict of_listener(int fd);

  // Who made the socket at the other end; none: not found. `why` says what was asked, for people.
  [[nodiscard]] std::optional<uid_t> ask_kernel(int fd, bool listener, std::string& why);
  // The same from a table as /proc/net/tcp is one, with connections alone.
  [[nodiscard]] static std::optional<uid_t> look_up(int fd, const char* table, std::string& why);

 private:
  struct Question;
  static Verdict judge(const Ends& ends, std::optional<uid_t> user, const std::string& why);
  [[nodiscard]] bool sees(int fd) const;
  ssize_t ask(Question& question, std::span<char> answer);

  Fd netlink_;
  uint32_t asked_ = 0;
};

}  // namespace kvbm::copy::tcp
