#include "base/io/owned_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/errno_status.h"
#include "base/io/ownership.h"

namespace kvbm {

struct FileClaim::Row {
  dev_t device;
  ino_t inode;
  pid_t owner;
  bool operator==(const Row&) const = default;
};

namespace {

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

constexpr const char* kFileInUse = "the file is in use";

Status replaced(const std::string& path) {
  return Status(Code::in_use, kFileInUse, path + " was replaced while it was opened; try again");
}

Status held_here(const std::string& path) {
  return Status(Code::in_use, kFileInUse,
                path + " is owned by another part of this process (" + std::to_string(getpid()) + ")");
}

}  // namespace

std::vector<FileClaim::Row>& FileClaim::rows() {
  static std::vector<Row> all;
  return all;
}

std::unique_ptr<FileClaim> FileClaim::take(const struct stat& of) {
  const Row row{of.st_dev, of.st_ino, getpid()};
  if (std::find(rows().begin(), rows().end(), row) != rows().end()) return nullptr;
  // Makes the claim before the row exists. If memory for it were refused afterwards, the row would stay without an
  // owner, and refuse the file for the life of this process.
  std::unique_ptr<FileClaim> claim(new FileClaim);
  rows().push_back(row);
  claim->device_ = row.device;
  claim->inode_ = row.inode;
  claim->owner_ = row.owner;
  return claim;
}

FileClaim::~FileClaim() {
  // A forked child has no claims of its parent's, and must not wait for a lock that a thread of the parent held.
  if (owner_ == 0 || owner_ != getpid()) return;
  MutexLock lock(record_locking);
  std::erase(rows(), Row{device_, inode_, owner_});
}

Status lock_whole_file(int fd, const char* what, const std::string& path) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(fd, F_SETLK, &whole) == 0) return {};
  if (errno != EACCES && errno != EAGAIN) return errno_status(errno, "cannot lock", path);
  struct flock query {};
  query.l_type = F_WRLCK;
  query.l_whence = SEEK_SET;
  std::string detail = path;
  if (fcntl(fd, F_GETLK, &query) == 0 && query.l_type != F_UNLCK && query.l_pid > 0) {
    detail += " is owned by process " + std::to_string(query.l_pid);
  } else {
    detail += " is owned by another process";
  }
  return Status(Code::in_use, what, std::move(detail));
}

Result<std::unique_ptr<OwnedFile>> OwnedFile::open(const std::string& path) {
  // No other thread of this process may open a file between the check and the claim: closing it again would drop the
  // owner's lock. The claim is declared first, because its destructor takes the lock.
  std::unique_ptr<FileClaim> claim;
  MutexLock lock(record_locking);
  struct stat there {};
  if (lstat(path.c_str(), &there) == 0) {
    if (!S_ISREG(there.st_mode)) return Status(Code::not_permitted, "not a regular file", path);
    claim = FileClaim::take(there);
    if (claim == nullptr) return held_here(path);
  }
  // An existing file is not opened with O_CREAT: in a directory that all users may write the system may refuse that,
  // and hide the real error about its owner.
  const int make = there.st_ino != 0 ? 0 : O_CREAT | O_EXCL;
  Fd fd(::open(path.c_str(), O_RDWR | make | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat mine {};
  if (!fd && (errno == EEXIST || (errno == ENOENT && make == 0))) return replaced(path);
  if (!fd || fstat(fd.get(), &mine) != 0) return errno_status(errno, "cannot open the file", path);
  if (!S_ISREG(mine.st_mode)) return Status(Code::not_permitted, "not a regular file", path);
  if (Status own = check_own(fd.get(), path, Others::read); !own.ok()) return own;
  if (Status given = give_owner(fd.get(), path); !given.ok()) return given;
  if (claim == nullptr) claim = FileClaim::take(mine);
  if (claim == nullptr) return held_here(path);
  if (Status locked = lock_whole_file(fd.get(), kFileInUse, path); !locked.ok()) return locked;
  // The lock of a file that was removed or replaced meanwhile excludes no other process.
  struct stat named {};
  if (lstat(path.c_str(), &named) != 0 || !same_file(named, mine) || (there.st_ino != 0 && !same_file(there, mine))) {
    return replaced(path);
  }
  return std::make_unique<OwnedFile>(std::move(claim), std::move(fd));
}

}  // namespace kvbm
