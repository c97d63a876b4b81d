// Files that one part of one process owns, by a POSIX record lock: the system releases it however the process dies, and
// a forked child does not inherit it. Private to base.
//
// Such a lock belongs to the process: a second request of the same process would be granted, and closing any descriptor
// of the file drops it. So one process-wide table lists the files that this process owns. It is checked before a file
// is opened. Lock: record_locking.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/io/fd.h"
#include "base/io/record_locking.h"
#include "base/status.h"

namespace kvbm {

// One row of the table; removed with the object, which is not destroyed under the lock.
class FileClaim {
 public:
  // Returns null if another part of this process has the file.
  static std::unique_ptr<FileClaim> take(const struct stat& of) KVBM_REQUIRES(record_locking);
  ~FileClaim();
  FileClaim(const FileClaim&) = delete;
  FileClaim& operator=(const FileClaim&) = delete;

 private:
  struct Row;
  FileClaim() = default;
  static std::vector<Row>& rows() KVBM_REQUIRES(record_locking);
  dev_t device_ = 0;
  ino_t inode_ = 0;
  pid_t owner_ = 0;  // 0: has no row; rows copied into a forked child are not its own
};

// Locks the whole of an open file. in_use if another process has it: `what`, and "PATH is owned by process N".
Status lock_whole_file(int fd, const char* what, const std::string& path);

class OwnedFile {
 public:
  // Takes a file that is locked, and its claim.
  OwnedFile(std::unique_ptr<FileClaim> claim, Fd fd) : claim_(std::move(claim)), fd_(std::move(fd)) {}
  // Opens or makes a regular file (mode 0600; no link) and locks it. in_use, not_permitted (a link, another user's
  // file, or one that others may write: ownership.h), or the system's error.
  static Result<std::unique_ptr<OwnedFile>> open(const std::string& path);
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  // Declared first, so destroyed last: the descriptor, and with it the lock, is closed while the table still refuses
  // other parts of this process.
  std::unique_ptr<FileClaim> claim_;
  Fd fd_;
};

}  // namespace kvbm
