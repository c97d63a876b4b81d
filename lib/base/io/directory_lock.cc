// A directory is claimed by its own inode, and os_directory refuses to open the lock file by name: closing any
// descriptor of it would drop the lock (owned_file.h).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/errno_status.h"
#include "base/io/io_patience.h"
#include "base/io/os_directory.h"
#include "base/io/owned_file.h"
#include "base/io/ownership.h"

namespace kvbm {

namespace {

constexpr const char* kDirectoryInUse = "the directory is in use";

}  // namespace

Result<DirectoryLock> lock_directory(int directory_fd, const std::string& path, Whose whose) {
  struct stat st {};
  if (fstat(directory_fd, &st) != 0) return errno_status(errno, "cannot lock the directory", path);
  const std::string pid = std::to_string(getpid());
  std::unique_ptr<FileClaim> claim;
  {
    const MutexLock lock(record_locking);
    claim = FileClaim::take(st);
  }
  if (claim == nullptr) {
    return Status(Code::in_use, kDirectoryInUse, path + " is owned by another part of this process (" + pid + ")");
  }
  const int make = whose == Whose::own ? O_CREAT : 0;
  Fd fd(uninterrupted([&] {
    return openat(directory_fd, kLockName.data(), O_RDWR | make | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  }));
  if (!fd) return errno_status(errno, "cannot open the lock file", path + "/lock");
  if (whose == Whose::own) {
    if (Status own = check_own(fd.get(), path + "/lock", Others::read); !own.ok()) return own;
    if (Status given = give_owner(fd.get(), path + "/lock"); !given.ok()) return given;
  }
  if (Status locked = lock_whole_file(fd.get(), kDirectoryInUse, path); !locked.ok()) return locked;
  // The lock of a file that was removed meanwhile excludes no other process.
  struct stat mine {};
  struct stat named {};
  if (fstat(fd.get(), &mine) != 0 || fstatat(directory_fd, kLockName.data(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
      mine.st_ino != named.st_ino) {
    return Status(Code::in_use, kDirectoryInUse, path + "/lock was replaced while it was locked; try again");
  }
  if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), (pid + "\n").data(), pid.size() + 1, 0) < 0) {
    // The text is only for people; on a full disk the lock still holds.
  }
  return DirectoryLock(std::make_shared<OwnedFile>(std::move(claim), std::move(fd)));
}

}  // namespace kvbm
