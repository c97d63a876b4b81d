// POSIX record locks belong to a process: a forked child does not inherit one, which is wanted, but
// any close of any descriptor of the file drops it, and a second request of the same process is
// granted. So one process-wide table names the directories that this process holds, it is asked
// before the file is opened, and os_directory refuses to open the file by name.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/errno_status.h"
#include "base/mutex.h"
#include "base/os_directory.h"

namespace kvbm {

namespace {

struct Held {
  dev_t device;
  ino_t inode;
  pid_t owner;  // entries copied into a forked child are not its own
  bool operator==(const Held&) const = default;
};

struct HeldTable {
  Mutex mutex;
  std::vector<Held> rows KVBM_GUARDED_BY(mutex);

  bool add(const Held& held) {
    MutexLock lock(mutex);
    if (std::find(rows.begin(), rows.end(), held) != rows.end()) return false;
    rows.push_back(held);
    return true;
  }
  void drop(const Held& held) {
    MutexLock lock(mutex);
    rows.erase(std::remove(rows.begin(), rows.end(), held), rows.end());
  }
};

HeldTable& held_table() {
  static HeldTable table;
  return table;
}

struct Claim {
  explicit Claim(const Held& h) : held(h) {}
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  ~Claim() {
    if (taken) held_table().drop(held);
  }
  [[nodiscard]] bool take() { return taken = held_table().add(held); }
  Held held;
  bool taken = false;
};

class RecordLock final : public DirectoryLock {
 public:
  RecordLock(std::unique_ptr<Claim> claim, Fd fd) : claim_(std::move(claim)), fd_(std::move(fd)) {}

 private:
  // Declared first, so ended last: the descriptor, and with it the lock, is closed while the table
  // still refuses others of this process.
  std::unique_ptr<Claim> claim_;
  Fd fd_;
};

Status held_by(int fd, const std::string& path) {
  struct flock query {};
  query.l_type = F_WRLCK;
  query.l_whence = SEEK_SET;
  std::string detail = path;
  if (fcntl(fd, F_GETLK, &query) == 0 && query.l_type != F_UNLCK && query.l_pid > 0) {
    detail += " is owned by process " + std::to_string(query.l_pid);
  } else {
    detail += " is owned by another process";
  }
  return Status(Code::in_use, "the directory is in use", std::move(detail));
}

}  // namespace

Result<std::unique_ptr<DirectoryLock>> lock_directory(int directory_fd, const std::string& path) {
  struct stat st {};
  if (fstat(directory_fd, &st) != 0) return errno_status(errno, "cannot lock the directory", path);
  const Held held{st.st_dev, st.st_ino, getpid()};
  // Before the row is there: a row that nothing drops would refuse the directory for the life of this process.
  auto claim = std::make_unique<Claim>(held);
  if (!claim->take()) {
    return Status(Code::in_use, "the directory is in use",
                  path + " is owned by another part of this process (" + std::to_string(held.owner) + ")");
  }
  Fd fd(openat(directory_fd, kLockName.data(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!fd) return errno_status(errno, "cannot open the lock file", path + "/lock");
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(fd.get(), F_SETLK, &whole) != 0) {
    if (errno == EACCES || errno == EAGAIN) return held_by(fd.get(), path);
    return errno_status(errno, "cannot lock the directory", path);
  }
  // A lock of a file that was removed meanwhile excludes nobody.
  struct stat mine {};
  struct stat named {};
  if (fstat(fd.get(), &mine) != 0 || fstatat(directory_fd, kLockName.data(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
      mine.st_ino != named.st_ino) {
    return Status(Code::in_use, "the directory is in use", path + "/lock was replaced while it was locked; try again");
  }
  const std::string pid = std::to_string(held.owner) + "\n";
  if (ftruncate(fd.get(), 0) != 0 || pwrite(fd.get(), pid.data(), pid.size(), 0) < 0) {
    // The text only tells a person who owns it; on a full disk the lock still holds.
  }
  return std::unique_ptr<DirectoryLock>(std::make_unique<RecordLock>(std::move(claim), std::move(fd)));
}

}  // namespace kvbm
