// Loads libcuda and fills the table, once a process. The library is never unloaded: the driver keeps threads.
#pragma once

#include <string>

#include "base/status.h"
#include "device/driver.h"

namespace kvbm::device {

struct DriverLibrary {
  Driver driver;
  std::string path;     // what was loaded
  int version = 0;      // cuDriverGetVersion
};

// `path` empty: libcuda.so.1 as the loader finds it. Errors: unsupported, with a text that says what is missing: no
// library, an entry point that a driver of CUDA 12.0 has, cuInit's refusal (no device, a driver that does not fit its
// kernel module). The signal handlers of the process are as they were before. Thread: any. The same path gives the
// same object every time; it lives as long as the process.
Result<const DriverLibrary*> driver_library(const std::string& path);

}  // namespace kvbm::device
