// Addresses as people write them: "10.0.0.7:7000", "[::1]:7000", "localhost:7000". Names of other hosts are refused:
// resolving them may block.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace kvbm::copy::tcp {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  // Returns invalid_argument with a remedy for a bad one. Port 0 is allowed.
  static Result<Address> parse(std::string_view text);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] int family() const noexcept { return storage.ss_family; }
  [[nodiscard]] uint16_t port() const noexcept;
};

// Addresses of the two ends of a socket; empty if the system does not know them.
Address local_address(int fd) noexcept;
Address remote_address(int fd) noexcept;

}  // namespace kvbm::copy::tcp
