// Loads libcufile and opens its driver, once a process. Both stay loaded and open.
#pragma once

#include <string>

#include "base/status.h"
#include "device/storage/cufile.h"

namespace kvbm::device {

struct CuFileLibrary {
  CuFile table;
  std::string path;               // of the loaded library
  unsigned major = 0, minor = 0;  // of the nvidia-fs module
  // Returns true if there is no module: reads go through host memory inside cuFile.
  [[nodiscard]] bool compatible_only() const noexcept { return major == 0 && minor == 0; }
};

// Returns whether the kernel has GPUDirect Storage's module, without loading anything. Without it, cuFile can only copy
// through host memory, and its opening has crashed on machines that it did not know (virtual ones).
bool has_nvidia_fs();

// Loads and opens cuFile at `path`; empty: libcufile.so.0 as the loader finds it. unsupported, with a text that names
// the cause: no library, a missing entry, cuFileDriverOpen's refusal. The signal handlers of the process are restored
// afterwards. A path gives one answer for ever.
// cuFile writes cufile.log where CUFILE_LOGFILE_PATH says, or into the working directory. Thread: any. Blocks: the
// first call does.
Result<const CuFileLibrary*> cufile_library(const std::string& path);

// Returns "CU_FILE_PLATFORM_NOT_SUPPORTED (5007)".
std::string cufile_error_text(CuFileError error);

}  // namespace kvbm::device
