#include "base/io/os_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/errno_status.h"
#include "base/io/io_patience.h"
#include "base/io/ownership.h"

namespace kvbm {

namespace {

Status check_name(std::string_view name) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.size() <= NAME_MAX &&
                     name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
  if (!plain) return Status(Code::invalid_argument, "not a plain file name", std::string(name));
  if (name == kLockName) return Status(Code::invalid_argument, "the name `lock` belongs to the directory's lock");
  return {};
}

class OsDirectory final : public Directory {
 public:
  OsDirectory(std::shared_ptr<IoEngine> engine, Fd fd, std::string path, Whose whose)
      : engine_(std::move(engine)), fd_(std::move(fd)), path_(std::move(path)), whose_(whose) {}

  Result<std::unique_ptr<File>> open(std::string_view name, OpenMode mode, bool direct) override;
  Result<std::vector<std::string>> list() override;

  Status remove(std::string_view name) override {
    if (Status s = check_name(name); !s.ok()) return s;
    if (unlinkat(fd_.get(), std::string(name).c_str(), 0) != 0) return failed("cannot remove", name);
    return {};
  }
  Status rename(std::string_view from, std::string_view to) override {
    if (Status s = check_name(from); !s.ok()) return s;
    if (Status s = check_name(to); !s.ok()) return s;
    if (renameat(fd_.get(), std::string(from).c_str(), fd_.get(), std::string(to).c_str()) != 0) {
      return failed("cannot rename", from);
    }
    return {};
  }
  Status sync() override {
    if (uninterrupted([this] { return fsync(fd_.get()); }) != 0)
      return errno_status(errno, "cannot make durable", path_);
    return {};
  }
  Result<DirectoryLock> lock() override { return lock_directory(fd_.get(), path_, whose_); }
  Result<uint64_t> free_bytes() override {
    struct statvfs st {};
    if (fstatvfs(fd_.get(), &st) != 0) return errno_status(errno, "cannot ask for free space", path_);
    return static_cast<uint64_t>(st.f_bavail) * st.f_frsize;
  }

 private:
  [[nodiscard]] std::string full(std::string_view name) const { return path_ + "/" + std::string(name); }
  [[nodiscard]] Status failed(const char* what, std::string_view name) const {
    const int error = errno;
    return errno_status(error, what, full(name));
  }

  std::shared_ptr<IoEngine> engine_;
  Fd fd_;
  std::string path_;
  const Whose whose_;
};

int open_flags(OpenMode mode) noexcept {
  // Not blocking, so that a fifo under this name cannot stall the open.
  constexpr int kAlways = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  switch (mode) {
    case OpenMode::read_only:
      return kAlways | O_RDONLY;
    case OpenMode::read_write:
      return kAlways | O_RDWR;
    default:
      return kAlways | O_RDWR | O_CREAT;
  }
}

Result<std::unique_ptr<File>> OsDirectory::open(std::string_view name, OpenMode mode, bool direct) {
  if (Status s = check_name(name); !s.ok()) return s;
  const std::string terminated(name);
  const int flags = open_flags(mode);
  const auto open_with = [&](int more) {
    return uninterrupted([&] { return openat(fd_.get(), terminated.c_str(), flags | more, 0600); });
  };
  Fd fd(open_with(direct ? O_DIRECT : 0));
  if (!fd && direct && errno == EINVAL) {
    direct = false;  // the file system has no O_DIRECT
    fd = Fd(open_with(0));
  }
  if (!fd) return failed("cannot open", name);
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) return failed("cannot open", name);
  if (!S_ISREG(st.st_mode)) return Status(Code::not_permitted, "not a regular file", full(name));
  if (whose_ == Whose::own) {
    if (Status own = check_own(fd.get(), full(name), Others::read); !own.ok()) return own;
  }
  if (mode == OpenMode::create) {
    if (Status given = give_owner(fd.get(), full(name)); !given.ok()) return given;
  }
  // io_uring would take O_NONBLOCK as a request to fail rather than wait.
  if (fcntl(fd.get(), F_SETFL, direct ? O_DIRECT : 0) != 0) return failed("cannot open", name);
  return make_os_file(engine_, std::move(fd), full(name), direct);
}

Result<std::vector<std::string>> OsDirectory::list() {
  // A descriptor of its own: two concurrent lists must not share a position.
  const int copy = uninterrupted([this] { return openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(copy >= 0 ? fdopendir(copy) : nullptr, closedir);
  if (dir == nullptr) {
    const int error = errno;
    const Fd closing(copy);
    return errno_status(error, "cannot list", path_);
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(dir.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int error = errno;
  if (error != 0) return errno_status(error, "cannot list", path_);
  std::sort(names.begin(), names.end());
  return names;
}

// Makes every missing directory of the path, accessible by this user only.
Status make_directories(const std::string& path) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    struct stat st {};
    // A directory that cannot be made may exist all the same, as on a read-only file system.
    if (Status made = make_own_directory(part); !made.ok() && stat(part.c_str(), &st) != 0) return made;
    if (at == std::string::npos) return {};
  }
}

std::string without_slashes(const std::string& path) {
  std::string clean = path;
  while (clean.size() > 1 && clean.back() == '/') clean.pop_back();  // a trailing slash follows a link
  return clean;
}

Result<Fd> open_at(const std::string& path) {
  if (path.empty()) return Status(Code::invalid_argument, "the directory's path is empty");
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd) return fd;
  const int error = errno;
  struct stat link {};
  if (lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    return Status(Code::not_permitted, "the directory is a symbolic link; name its target", path);
  }
  if (error == ENOTDIR) return Status(Code::invalid_argument, "not a directory", path);
  return errno_status(error, "cannot open the directory", path);
}

}  // namespace

Result<std::unique_ptr<Directory>> open_os_directory(std::shared_ptr<IoEngine> engine, const std::string& path,
                                                     bool create) {
  std::string clean = without_slashes(path);
  if (create && !clean.empty()) {
    if (Status s = make_directories(clean); !s.ok()) return s;
  }
  auto fd = open_at(clean);
  if (!fd.ok()) return fd.status();
  if (Status own = check_own(fd.value().get(), clean, Others::read); !own.ok()) return own;
  return std::unique_ptr<Directory>(
      std::make_unique<OsDirectory>(std::move(engine), std::move(fd).value(), std::move(clean), Whose::own));
}

Result<std::unique_ptr<Directory>> visit_os_directory(std::shared_ptr<IoEngine> engine, const std::string& path) {
  std::string clean = without_slashes(path);
  auto fd = open_at(clean);
  if (!fd.ok()) return fd.status();
  struct stat st {};
  if (fstat(fd.value().get(), &st) != 0) return errno_status(errno, "cannot open the directory", clean);
  if ((st.st_mode & S_IWOTH) != 0 && !is_this_user(st.st_uid)) {
    return Status(Code::not_permitted, "everyone may write the directory, and it is another user's",
                  clean + " is user " + std::to_string(st.st_uid) + "'s");
  }
  return std::unique_ptr<Directory>(
      std::make_unique<OsDirectory>(std::move(engine), std::move(fd).value(), std::move(clean), Whose::anyones));
}

}  // namespace kvbm
