// Loads libcuda and fills the table, once a process. The library is never unloaded: the driver keeps threads.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "device/driver.h"
#include "device/loaded_library.h"

namespace kvbm::device {

struct DriverLibrary {
  Driver driver;
  std::string path;     // what was loaded
  int version = 0;      // cuDriverGetVersion
};

// The oldest driver that is used: CUDA 12.0 (stream memory operations without opt-in), as cuDriverGetVersion tells it.
inline constexpr int kOldestDriver = 12000;

// `path` empty: libcuda.so.1 as the loader finds it. Errors: unsupported, with a text that says what is missing: no
// library, a driver older than CUDA 12.0, an entry point that such a driver has, cuInit's refusal (no device, a driver
// that does not fit its kernel module). The signal handlers of the process are as they were before. Thread: any. Blocks:
// the first call does, the driver wakes its devices. The same path gives the same object every time, also after a
// refusal: a driver that could not begin does not begin later in the same process. It lives as long as the process.
Result<const DriverLibrary*> driver_library(const std::string& path);

// "12.0" of 12000.
std::string cuda_version_text(int version);

// Whether this process has a driver loaded: libcuda, by anybody, or one that driver_library loaded by its path. Where it
// has none no pointer can be device memory. Cheap enough for set-up, not for the path of a block. Thread: any.
bool driver_is_loaded();

// All entries of the table.
std::span<const TableEntry> driver_symbols() noexcept;

}  // namespace kvbm::device
