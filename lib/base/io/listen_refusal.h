// Why the system does not let a node listen on an address, with the remedy: one text for all transports.
#pragma once

#include <cerrno>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace kvbm {

// Returns nullopt for an errno that needs no more than its own text.
inline std::optional<Status> listen_refusal(int error, std::string_view address) {
  switch (error) {
    case EADDRINUSE:
      return Status(Code::in_use,
                    "the address to listen on is in use; stop its owner, or choose another port, or 0 for any",
                    std::string(address));
    case EADDRNOTAVAIL:
      return Status(Code::invalid_argument,
                    "the address to listen on is none of this machine's; `ip address` shows those",
                    std::string(address));
    case EACCES:
      return Status(Code::not_permitted,
                    "the system does not permit listening there; ports below 1024 need a capability",
                    std::string(address));
    default:
      return std::nullopt;
  }
}

}  // namespace kvbm
