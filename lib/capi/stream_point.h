// The caller's stream, for calls on an attached cache.
#pragma once

#include <memory>

#include "base/status.h"
#include "device/transfer/transfers.h"
#include "manager/device/device_caches.h"
#include "manager/operation/cache.h"

namespace kvbm::capi {

// Returns the stream's present point; null if no stream was given.
inline Result<std::shared_ptr<device::StreamPoint>> point_on(const manager::Cache& cache, void* stream,
                                                             uint32_t has_stream) {
  if (has_stream == 0 && stream == nullptr) return std::shared_ptr<device::StreamPoint>();
  if (has_stream != 1) return Status(Code::invalid_argument, "stream is set and has_stream is not 1");
  if (cache.device() == nullptr) return Status(Code::invalid_argument, "a stream was given for a cache in host memory");
  return cache.device()->transfers().point(static_cast<device::CuStream>(stream));
}

}  // namespace kvbm::capi
