// The FileSystem of a Linux host.
//
// Directories are opened without following a link in their last component, and made with mode 0700 (missing parents
// too). Files have mode 0600 and are opened beneath the directory's descriptor by one checked path component with
// O_NOFOLLOW, so that no name can leave the directory. Both are refused if another user owns them or others may write
// them (ownership.h), except in visited directories. The name `lock` belongs to Directory::lock.
//
// Data plane: io_uring, or pread/pwrite on threads if io_uring is missing or forbidden, from the start or from a later
// call on.
#pragma once

#include <memory>
#include <string>

#include "base/io/file.h"
#include "base/telemetry/log.h"
#include "base/thread/executor.h"

namespace kvbm {

enum class IoEngineChoice { automatic, uring, pread };

struct OsFileOptions {
  IoEngineChoice engine = IoEngineChoice::automatic;
  uint32_t pread_threads = 4;
  uint32_t ring_entries = 256;
  bool register_staging = true;  // false: as if a memlock limit forbade it
  const Log* log = nullptr;      // gets one message if io_uring was allowed but is not used
};

// Completions are posted to `executor`, which outlives the file system and its files. With the
// engine `uring` fails with Code::unsupported where io_uring is not available.
Result<std::unique_ptr<FileSystem>> make_os_file_system(Executor& executor, const OsFileOptions& options = {});

}  // namespace kvbm
