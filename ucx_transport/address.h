// "host:port" and "[v6]:port", as the boundary writes addresses. Numbers and "localhost" only: a name could block.
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
// What the system says when a socket of this process asks for the address; 0 where it gives it.
int bind_error(const Address& address);

}  // namespace kvbm::ucx
