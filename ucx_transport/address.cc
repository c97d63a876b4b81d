#include "address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace kvbm::ucx {

std::optional<Address> parse_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == text.size()) return std::nullopt;
  uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data() + colon + 1, end, port);
  if (bad != std::errc{} || stop != end) return std::nullopt;
  std::string host(text.substr(0, colon));
  if (host == "localhost") host = "127.0.0.1";
  Address out;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    if (::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) != 1) return std::nullopt;
    std::memcpy(&out.storage, &v6, sizeof v6);
    out.size = sizeof v6;
    return out;
  }
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) != 1) return std::nullopt;
  std::memcpy(&out.storage, &v4, sizeof v4);
  out.size = sizeof v4;
  return out;
}

std::string address_text(const sockaddr_storage& address) {
  char host[INET6_ADDRSTRLEN] = "?";
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof v6);
    ::inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
    return "[" + std::string(host) + "]:" + std::to_string(ntohs(v6.sin6_port));
  }
  sockaddr_in v4{};
  std::memcpy(&v4, &address, sizeof v4);
  if (address.ss_family == AF_INET) ::inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
  return std::string(host) + ":" + std::to_string(ntohs(v4.sin_port));
}

bool is_loopback(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address, sizeof v6);
    return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
  }
  sockaddr_in v4{};
  std::memcpy(&v4, &address, sizeof v4);
  return address.ss_family == AF_INET && (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
}

int bind_error(const Address& address) {
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  const int on = 1;  // as UCX does (CM_REUSEADDR): ended connections must not block the address
  (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int error = ::bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

}  // namespace kvbm::ucx
