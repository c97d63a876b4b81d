#include "copy/tcp/peer_user.h"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "base/io/ownership.h"
#include "copy/tcp/address.h"

namespace kvbm::copy::tcp {

namespace {

constexpr int kNamespaceCookie = 71;  // SO_NETNS_COOKIE, Linux 5.14
constexpr const char* kNobodys = "no process has the socket at the other end";

// Returns true if the system knows the addresses of both ends of a socket.
bool known(const Address& near, const Address& far) noexcept {
  return near.size != 0 && far.size != 0 && near.family() == far.family();
}

// Writes an address in the format of the kernel's tables: network order, an IPv4 address in the first word.
void put(const Address& address, uint32_t (&host)[4], uint16_t& port) noexcept {
  std::memset(host, 0, sizeof host);
  if (address.family() == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    std::memcpy(host, &v4->sin_addr, sizeof v4->sin_addr);
    port = v4->sin_port;
  } else {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    std::memcpy(host, &v6->sin6_addr, sizeof v6->sin6_addr);
    port = v6->sin6_port;
  }
}

// Returns the form of an address in /proc/net/tcp: words of the machine's order, in hexadecimal.
std::string in_table(const Address& address) {
  uint32_t host[4];
  uint16_t port = 0;
  put(address, host, port);
  char text[48];
  if (address.family() == AF_INET) {
    std::snprintf(text, sizeof text, "%08" PRIX32 ":%04X", host[0], ntohs(port));
  } else {
    std::snprintf(text, sizeof text, "%08" PRIX32 "%08" PRIX32 "%08" PRIX32 "%08" PRIX32 ":%04X", host[0], host[1],
                  host[2], host[3], ntohs(port));
  }
  return text;
}

// Parses "sl: local remote state tx:rx timer:when retransmits uid timeout inode ..."; false: not a connection's line.
bool read_line(const char* line, char (&local)[48], char (&remote)[48], uid_t& user, uint64_t& inode) {
  return std::sscanf(line, " %*[^:]: %47s %47s %*s %*s %*s %*s %u %*s %" SCNu64, local, remote, &user, &inode) == 4;
}

// Calls `take` with each line until it returns false. No line is longer than the buffer.
template <class Take>
void for_each_line(int fd, size_t most, Take&& take) {
  std::vector<char> text(65536);
  size_t have = 0;
  for (size_t all = 0; all < most && have < text.size() - 1;) {
    const ssize_t n = read(fd, text.data() + have, text.size() - have - 1);
    if (n <= 0) return;
    all += static_cast<size_t>(n);
    have += static_cast<size_t>(n);
    text[have] = '\0';
    char* line = text.data();
    for (char* end = nullptr; (end = std::strchr(line, '\n')) != nullptr; line = end + 1) {
      *end = '\0';
      if (!take(line)) return;
    }
    have -= static_cast<size_t>(line - text.data());
    std::memmove(text.data(), line, have);
  }
}

// The remedy comes first: rows of nodes have room for 127 characters.
PeerUsers::Verdict judge(const Address& far, std::optional<uid_t> user, const std::string& why) {
  if (user.has_value() && is_this_user(*user)) return {PeerUser::own, {}};
  if (user.has_value()) {
    return {PeerUser::stranger,
            {Code::not_permitted, "another user's process: run both as one, or set a key (node.key_file)",
             "user " + std::to_string(*user) + " there, user " + std::to_string(geteuid()) + " here, " + far.text()}};
  }
  return {
      PeerUser::unknown,
      {Code::not_permitted, "the user of its process is unknown: set a key (node.key_file)", why + ", " + far.text()}};
}

}  // namespace

// Request for the socket at the far end: its own address first. `near` null: for one that listens there.
struct PeerUsers::Question {
  nlmsghdr head{};
  inet_diag_req_v2 body{};

  Question(const Address& far, const Address* near) noexcept {
    head.nlmsg_len = sizeof *this;
    head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    head.nlmsg_flags = NLM_F_REQUEST;
    body.sdiag_family = static_cast<uint8_t>(far.family());
    body.sdiag_protocol = IPPROTO_TCP;
    body.idiag_states = ~0U;
    put(far, body.id.idiag_src, body.id.idiag_sport);
    if (near != nullptr) put(*near, body.id.idiag_dst, body.id.idiag_dport);
    body.id.idiag_cookie[0] = body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  }
};

PeerUsers::PeerUsers() : netlink_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG)) {}

// True if the namespaces of both sockets have one cookie, or the kernel gives none.
bool PeerUsers::sees(int fd) const {
  uint64_t here = 0;
  uint64_t there = 0;
  socklen_t size = sizeof here;
  return getsockopt(netlink_.get(), SOL_SOCKET, kNamespaceCookie, &here, &size) != 0 ||
         getsockopt(fd, SOL_SOCKET, kNamespaceCookie, &there, &size) != 0 || here == there;
}

// The kernel answers within send(), perhaps behind earlier answers that were not read.
ssize_t PeerUsers::ask(Question& question, std::span<char> answer) {
  const auto* head = reinterpret_cast<const nlmsghdr*>(answer.data());
  question.head.nlmsg_seq = ++asked_;
  if (send(netlink_.get(), &question, sizeof question, 0) < 0) return -1;
  for (;;) {
    sockaddr_nl from{};
    socklen_t size = sizeof from;
    const ssize_t got =
        recvfrom(netlink_.get(), answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
    const bool answers = from.nl_pid == 0 && got >= static_cast<ssize_t>(sizeof *head) && head->nlmsg_seq == asked_;
    if (got < 0 || answers) return got;
  }
}

std::optional<uid_t> PeerUsers::ask_kernel(int fd, bool listener, std::string& why) {
  const Address near = local_address(fd);
  const Address far = remote_address(fd);
  if (!netlink_ || !known(near, far) || !sees(fd)) {
    why = !netlink_           ? "the kernel cannot be asked: no NETLINK_SOCK_DIAG here"
          : !known(near, far) ? "the connection has ended"
                              : "the connection is in another network namespace";
    return {};
  }
  Question question(far, listener ? nullptr : &near);
  alignas(nlmsghdr) std::array<char, 4096> answer;
  const ssize_t got = ask(question, answer);
  if (got < 0) {
    why = std::string("the kernel does not answer: ") + std::strerror(errno);
    return {};
  }
  const auto* head = reinterpret_cast<const nlmsghdr*>(answer.data());
  const auto* diag = static_cast<const inet_diag_msg*>(NLMSG_DATA(head));
  const bool found = NLMSG_OK(head, static_cast<uint32_t>(got)) && head->nlmsg_type == SOCK_DIAG_BY_FAMILY &&
                     head->nlmsg_len >= NLMSG_LENGTH(sizeof *diag);
  // If there is no such connection the kernel returns a listener at its address.
  if (!found || (diag->idiag_state == TCP_LISTEN) != listener || diag->id.idiag_sport != question.body.id.idiag_sport ||
      diag->id.idiag_dport != question.body.id.idiag_dport) {
    why = "no socket of this machine and network namespace is at the other end";
    return {};
  }
  if (diag->idiag_inode == 0) {
    why = kNobodys;
    return {};
  }
  return diag->idiag_uid;
}

std::optional<uid_t> PeerUsers::look_up(int fd, const char* table, std::string& why) {
  const Address near_end = local_address(fd);
  const Address far_end = remote_address(fd);
  const Fd file(open(table, O_RDONLY | O_CLOEXEC));
  if (!known(near_end, far_end) || !file) {
    why = known(near_end, far_end) ? std::string(table) + ": " + std::strerror(errno) : "the connection has ended";
    return {};
  }
  const std::string far = in_table(far_end);
  const std::string near = in_table(near_end);
  std::optional<uid_t> user;
  why = std::string("no socket in ") + table + " is the other end";
  for_each_line(file.get(), kMostTable, [&](const char* line) {
    char local[48];
    char remote[48];
    uid_t maker = 0;
    uint64_t inode = 0;
    if (!read_line(line, local, remote, maker, inode) || far != local || near != remote) return true;
    if (inode != 0) user = maker;
    why = kNobodys;
    return false;
  });
  return user;
}

PeerUsers::Verdict PeerUsers::of_peer(int fd) {
  std::string why;
  const Address near = local_address(fd);
  const Address far = remote_address(fd);
  std::optional<uid_t> user = ask_kernel(fd, false, why);
  if (!user.has_value() && known(near, far) && (!netlink_ || sees(fd))) {
    std::string from_table;
    const bool v6 = near.family() == AF_INET6;
    user = look_up(fd, v6 ? "/proc/thread-self/net/tcp6" : "/proc/thread-self/net/tcp", from_table);
    why += "; " + from_table;
  }
  return judge(far, user, why);
}

PeerUsers::Verdict PeerUsers::of_listener(int fd) {
  std::string why;
  const std::optional<uid_t> user = ask_kernel(fd, true, why);
  return judge(remote_address(fd), user, why);
}

}  // namespace kvbm::copy::tcp
