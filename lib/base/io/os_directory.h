// Opening and locking directories, and opening files beneath them. Private to base.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/io/fd.h"
#include "base/io/file.h"
#include "base/io/io_engine.h"

namespace kvbm {

// Like FileSystem::open_directory and visit_directory.
Result<std::unique_ptr<Directory>> open_os_directory(std::shared_ptr<IoEngine> engine, const std::string& path,
                                                     bool create);
Result<std::unique_ptr<Directory>> visit_os_directory(std::shared_ptr<IoEngine> engine, const std::string& path);
std::unique_ptr<File> make_os_file(std::shared_ptr<IoEngine> engine, Fd fd, std::string path, bool direct);

// Owner of a directory's files: this user only (base/io/ownership.h), or any user for inspection.
enum class Whose : uint8_t { own, anyones };

// The lock file's content is the owner's process id. Also refuses a second lock of the directory in this process, which
// a POSIX record lock alone would grant. With `anyones` the lock file is not created: miss.
Result<DirectoryLock> lock_directory(int directory_fd, const std::string& path, Whose whose);
inline constexpr std::string_view kLockName = "lock";

}  // namespace kvbm
