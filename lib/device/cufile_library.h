// Loads libcufile and opens its driver, once a process. Neither is ever undone.
#pragma once

#include <string>

#include "base/status.h"
#include "device/cufile.h"

namespace kvbm::device {

struct CuFileLibrary {
  CuFile table;
  std::string path;           // what was loaded
  unsigned major = 0, minor = 0;  // of the nvidia-fs module
  // Reads go through host memory inside of cuFile: there is no module.
  [[nodiscard]] bool compatible_only() const noexcept { return major == 0 && minor == 0; }
};

// Whether the kernel has GPUDirect Storage's module: seen without loading anything. Where it has not, cuFile can only copy
// through host memory, and its opening has crashed on machines that it did not know (virtual ones).
bool has_nvidia_fs();

// `path` empty: libcufile.so.0 as the loader finds it. unsupported, with a text that says what is missing: no library, an
// entry, cuFileDriverOpen's refusal. The signal handlers of the process are as they were before. The same path gives the
// same answer every time. cuFile writes cufile.log where CUFILE_LOGFILE_PATH says, or into the working directory.
// Thread: any. Blocks: the first call does.
Result<const CuFileLibrary*> cufile_library(const std::string& path);

// "CU_FILE_PLATFORM_NOT_SUPPORTED (5007)".
std::string cufile_error_text(CuFileError error);

}  // namespace kvbm::device
