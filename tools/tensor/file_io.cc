#include "tensor/file_io.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/errno_status.h"

namespace kvbm::tensor {

namespace {

// Limit on a pipe's content, which is held in memory. More should be given as a file.
constexpr uint64_t kMaxPipe = 16ULL << 30;
// Names to try for a file before it replaces another.
constexpr unsigned kNames = 100;

Result<std::vector<std::byte>> read_all(int fd) {
  std::vector<std::byte> held;
  constexpr size_t kStep = 1 << 20;
  while (true) {
    const size_t at = held.size();
    held.resize(at + kStep);
    const ssize_t n = ::read(fd, held.data() + at, kStep);
    if (n < 0 && errno != EINTR) return errno_status(errno, "the file cannot be read", "standard input");
    held.resize(at + static_cast<size_t>(n < 0 ? 0 : n));
    if (n == 0) return held;
    if (held.size() > kMaxPipe) return Status(Code::no_room, "standard input is too large; give a file");
  }
}

std::string link_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

}  // namespace

Result<Input> Input::open(const std::string& path) {
  Input input;
  const bool standard = path == "-";
  input.path_ = standard ? "standard input" : path;
  // Opening a pipe without a writer would otherwise wait for one.
  input.fd_ = Fd(standard ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                          : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!input.fd_) return errno_status(errno, "the file cannot be opened", input.path_);
  struct stat facts {};
  if (::fstat(input.fd_.get(), &facts) != 0) return errno_status(errno, "the file cannot be read", input.path_);
  if (S_ISDIR(facts.st_mode)) return Status(Code::invalid_argument, "a folder, not a plain file", input.path_);
  if (S_ISREG(facts.st_mode)) {
    const off_t begin = standard ? ::lseek(input.fd_.get(), 0, SEEK_CUR) : 0;
    if (begin < 0) return errno_status(errno, "the file cannot be read", input.path_);
    input.begin_ = static_cast<uint64_t>(begin);
    const auto end = static_cast<uint64_t>(facts.st_size);
    input.bytes_ = end - std::min(end, input.begin_);
    return input;
  }
  // A device may never end, but a terminal's user ends the input.
  if (standard && (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode) || ::isatty(input.fd_.get()) == 1)) {
    auto held = read_all(input.fd_.get());
    if (!held.ok()) return held.status();
    input.held_ = std::move(held).value();
    input.bytes_ = input.held_.size();
    input.fd_ = Fd();
    return input;
  }
  if (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode)) {
    return Status(Code::invalid_argument, "a pipe, not a plain file; give -, and the pipe as standard input", path);
  }
  return Status(Code::invalid_argument, "a device, not a plain file", input.path_);
}

Status Input::read(uint64_t offset, MutableBytes out) const {
  if (offset > bytes_ || out.size() > bytes_ - offset) return Status(Code::damaged, "the file is cut short", path_);
  if (!fd_) {
    std::memcpy(out.data(), held_.data() + offset, out.size());
    return {};
  }
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(begin_ + offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_status(errno, "the file cannot be read", path_);
    if (n == 0) return Status(Code::damaged, "the file became shorter while it was read", path_);
    out = out.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

bool Input::is(const std::string& path) const {
  struct stat mine {};
  struct stat other {};
  return fd_ && ::fstat(fd_.get(), &mine) == 0 && ::stat(path.c_str(), &other) == 0 && mine.st_dev == other.st_dev &&
         mine.st_ino == other.st_ino;
}

// Makes a file without a name, of which nothing remains after an end by any signal; else one with another name.
Status NewFile::open_new() {
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  fd_ = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  // The file can get a name only through /proc.
  if (fd_ >= 0 && ::access(link_of(fd_).c_str(), F_OK) == 0) return {};
  if (fd_ >= 0) ::close(fd_);
  temporary_ = path_ + ".XXXXXX";
  fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0) {
    temporary_.clear();
    return errno_status(errno, "a file cannot be made there", path_);
  }
  // Permissions like those of a file made by open(2).
  const mode_t mask = ::umask(0);
  ::umask(mask);
  (void)::fchmod(fd_, 0666 & ~mask);
  return {};
}

Result<NewFile> NewFile::create(const std::string& path, bool force) {
  NewFile file;
  file.path_ = path;
  file.force_ = force;
  if (path == "-") {
    file.path_ = "standard output";
    file.fd_ = STDOUT_FILENO;
    return file;
  }
  if (path.empty() || path.back() == '/')
    return Status(Code::invalid_argument, "the output has no name, only a folder", path);
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) == 0) {
    if (!S_ISREG(facts.st_mode)) {
      return Status(Code::exists, "what is there is not a plain file; give another name, or - for standard output",
                    path);
    }
    if (!force) return Status(Code::exists, "the file exists; give another name, or --force", path);
  }
  Status made = file.open_new();
  if (!made.ok()) return made;
  file.ours_ = true;
  return file;
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      ours_(std::exchange(other.ours_, false)),
      force_(other.force_),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_) {}

NewFile::~NewFile() {
  if (!ours_) return;
  ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status NewFile::write(ConstBytes bytes) {
  written_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_status(errno, "the output cannot be written", path_);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

// Returns 0, or -1 and errno. Replaces nothing without force_, and replaces atomically with it.
int NewFile::give_name() {
  if (temporary_.empty()) {
    if (!force_) return ::linkat(AT_FDCWD, link_of(fd_).c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW);
    // A link replaces nothing; a file with a name can.
    int failed = -1;
    std::string name;
    for (unsigned n = 0; failed != 0 && n < kNames && (n == 0 || errno == EEXIST); ++n) {
      name = path_ + "." + std::to_string(::getpid()) + "-" + std::to_string(n);
      failed = ::linkat(AT_FDCWD, link_of(fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW);
    }
    if (failed != 0) return -1;
    temporary_ = name;
  }
  if (force_) return ::rename(temporary_.c_str(), path_.c_str());
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0) return 0;
  // Not every file system has this flag. A link is refused if the name exists.
  if (errno != EINVAL || ::link(temporary_.c_str(), path_.c_str()) != 0) return -1;
  ::unlink(temporary_.c_str());
  return 0;
}

Status NewFile::commit() {
  if (!ours_) return {};
  if (::fsync(fd_) != 0) return errno_status(errno, "the output cannot be written", path_);
  if (give_name() != 0) return errno_status(errno, "the file cannot get its name", path_);
  ::close(fd_);
  ours_ = false;
  temporary_.clear();
  return {};
}

}  // namespace kvbm::tensor
