// Reads the pages of `kvbm node --http` (http_server.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace kvbm::node {

inline constexpr size_t kMostPageBytes = size_t{16} << 20;

// Returns the body of the page at `path`, which has fewer than kMostPageBytes. Errors: invalid_argument: no numeric
// address; owner_gone: nothing answers there; deadline; damaged: the answer is malformed or too long; unsupported: an
// answer that is not 200, with its code. Blocks.
Result<std::string> http_get(const std::string& address, const std::string& path, uint64_t timeout_ns);

}  // namespace kvbm::node
