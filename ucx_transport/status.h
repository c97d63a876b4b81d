// Statuses of the boundary (the values of kvbm.h), and the mapping of UCX's own.
#pragma once

#include <ucs/type/status.h>

#include <cstdint>

#include "base/status.h"

namespace kvbm::ucx {

constexpr int32_t value(Code code) { return static_cast<int32_t>(code); }

// UCX 1.13 reports a killed peer as ENDPOINT_TIMEOUT, 1.22 as CONNECTION_RESET: every broken connection is `closed`.
inline int32_t from_ucs(ucs_status_t status) {
  switch (status) {
    case UCS_OK:
      return 0;
    case UCS_ERR_NO_MEMORY:
      return value(Code::no_memory);
    case UCS_ERR_CANCELED:
      return value(Code::cancelled);
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
      return value(Code::unsupported);
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return value(Code::invalid_argument);
    case UCS_ERR_BUSY:
      return value(Code::in_use);
    case UCS_ERR_NO_DEVICE:
    case UCS_ERR_IO_ERROR:
      return value(Code::io_error);
    default:
      return value(Code::closed);
  }
}

}  // namespace kvbm::ucx
