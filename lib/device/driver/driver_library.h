// Loads libcuda and fills the table, once a process. The library is never unloaded: the driver keeps threads.
#pragma once

#include <span>
#include <string>

#include "base/status.h"
#include "device/driver/driver.h"
#include "device/driver/loaded_library.h"

namespace kvbm::device {

struct DriverLibrary {
  Driver driver;
  std::string path;  // of the loaded library
  int version = 0;   // cuDriverGetVersion
};

// The oldest driver that is supported: CUDA 12.0 (stream memory operations without opt-in), as cuDriverGetVersion
// returns it.
inline constexpr int kOldestDriver = 12000;

// Loads the driver at `path`; empty: libcuda.so.1 as the loader finds it. Errors: unsupported, with a text that names
// the cause: no library, a driver older than CUDA 12.0 or without an entry point that it should have, or cuInit's
// refusal. cuInit refuses if there is no device, or if the driver does not fit its kernel module. The signal handlers
// of the process are restored afterwards.
// Thread: any. Blocks: the first call does, because the driver wakes its devices. A path gives one object for ever,
// also after a refusal: a driver that could not begin does not begin later in this process. The object lives as long as
// the process.
Result<const DriverLibrary*> driver_library(const std::string& path);

// Returns "12.0" for 12000.
std::string cuda_version_text(int version);

// Returns whether this process has a driver loaded: libcuda, by any library, or one that driver_library loaded by its
// path. Without a driver no pointer can be device memory. Cheap enough for set-up, not for the path of a block. Thread:
// any.
bool driver_is_loaded();

// Returns all entries of the table.
std::span<const TableEntry> driver_symbols() noexcept;

}  // namespace kvbm::device
