// "host:port" and "[v6]:port", the boundary's form of addresses. Numbers and "localhost" only: a name could block.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>

namespace kvbm::ucx {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

std::optional<Address> parse_address(std::string_view text);
std::string address_text(const sockaddr_storage& address);
bool is_loopback(const sockaddr_storage& address);
// Returns the system's error when a socket of this process binds the address; 0 if it succeeds.
int bind_error(const Address& address);

}  // namespace kvbm::ucx
