#include "copy/tcp/address.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace kvbm::copy::tcp {

namespace {

constexpr const char* kRemedy = "an address is HOST:PORT, as in 10.0.0.7:7000, [::1]:7000 or localhost:7000";

Status refused(std::string_view text, const char* why) {
  return {Code::invalid_argument, kRemedy, "\"" + std::string(text) + "\" " + why};
}

Status refused_host(std::string_view text) {
  return {Code::invalid_argument, "the host of an address has to be a number or localhost",
          "\"" + std::string(text) + "\"; look the name up and give its address"};
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refused(text, "has no port");
  const std::string_view port_text = text.substr(colon + 1);
  std::string_view host = text.substr(0, colon);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (error != std::errc() || end != port_text.data() + port_text.size()) {
    return refused(text, "has no port between 0 and 65535");
  }
  const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  if (host.empty()) return refused(text, "has no host");
  if (!bracketed && host.find(':') != std::string_view::npos) return refused(text, "lacks brackets around its host");
  Address out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  const std::string name(host == "localhost" ? "127.0.0.1" : host);
  if (!bracketed && inet_pton(AF_INET, name.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    out.size = sizeof *v4;
    return out;
  }
  const size_t percent = name.find('%');
  if (!bracketed || inet_pton(AF_INET6, name.substr(0, percent).c_str(), &v6->sin6_addr) != 1)
    return refused_host(text);
  if (percent != std::string::npos) {
    v6->sin6_scope_id = if_nametoindex(name.substr(percent + 1).c_str());
    if (v6->sin6_scope_id == 0) return refused(text, "names a network interface that is not here");
  }
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(port);
  out.size = sizeof *v6;
  return out;
}

uint16_t Address::port() const noexcept {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return 0;
}

std::string Address::text() const {
  char host[INET6_ADDRSTRLEN] = "";
  const std::string port_text = ":" + std::to_string(port());
  if (family() == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr, host, sizeof host);
    return host + port_text;
  }
  if (family() != AF_INET6) return "an unknown address";
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
  std::string out = std::string("[") + host;
  char interface[IF_NAMESIZE];
  if (v6->sin6_scope_id != 0 && if_indextoname(v6->sin6_scope_id, interface) != nullptr) {
    out.append("%").append(interface);
  }
  return out + "]" + port_text;
}

Address local_address(int fd) noexcept {
  Address out;
  out.size = sizeof out.storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&out.storage), &out.size) != 0) out = Address{};
  return out;
}

Address remote_address(int fd) noexcept {
  Address out;
  out.size = sizeof out.storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&out.storage), &out.size) != 0) out = Address{};
  return out;
}

}  // namespace kvbm::copy::tcp
