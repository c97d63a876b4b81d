#include "tensor/file_io.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/errno_status.h"

namespace kvbm::tensor {

namespace {

// A pipe's content is held in memory; more than this is better given as a file.
constexpr uint64_t kMaxPipe = 16ULL << 30;

Result<std::vector<std::byte>> read_all(int fd) {
  std::vector<std::byte> held;
  constexpr size_t kStep = 1 << 20;
  while (true) {
    const size_t at = held.size();
    held.resize(at + kStep);
    const ssize_t n = ::read(fd, held.data() + at, kStep);
    if (n < 0 && errno != EINTR) return errno_status(errno, "standard input cannot be read", "-");
    held.resize(at + static_cast<size_t>(n < 0 ? 0 : n));
    if (n == 0) return held;
    if (held.size() > kMaxPipe) return Status(Code::no_room, "standard input is too large; give a file");
  }
}

}  // namespace

Result<Input> Input::open(const std::string& path) {
  Input input;
  input.path_ = path;
  if (path == "-") {
    auto held = read_all(STDIN_FILENO);
    if (!held.ok()) return held.status();
    input.held_ = std::move(held).value();
    input.bytes_ = input.held_.size();
    return input;
  }
  input.fd_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!input.fd_) return errno_status(errno, "the file cannot be opened", path);
  struct stat facts {};
  if (::fstat(input.fd_.get(), &facts) != 0) return errno_status(errno, "the file cannot be read", path);
  if (!S_ISREG(facts.st_mode)) return Status(Code::invalid_argument, "not a plain file; give - to read a pipe", path);
  input.bytes_ = static_cast<uint64_t>(facts.st_size);
  return input;
}

Status Input::read(uint64_t offset, MutableBytes out) const {
  if (offset > bytes_ || out.size() > bytes_ - offset) return Status(Code::damaged, "the file is cut short", path_);
  if (!fd_) {
    std::memcpy(out.data(), held_.data() + offset, out.size());
    return {};
  }
  while (!out.empty()) {
    const ssize_t n = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
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

Result<NewFile> NewFile::create(const std::string& path, bool force) {
  NewFile file;
  file.path_ = path;
  file.force_ = force;
  if (path == "-") {
    file.fd_ = STDOUT_FILENO;
    return file;
  }
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) == 0) {
    if (!force) return Status(Code::exists, "the file exists; give another name, or --force", path);
    if (!S_ISREG(facts.st_mode)) return Status(Code::exists, "what is there is not a plain file", path);
  }
  file.temporary_ = path + ".XXXXXX";
  file.fd_ = ::mkostemp(file.temporary_.data(), O_CLOEXEC);
  if (file.fd_ < 0) {
    file.temporary_.clear();
    return errno_status(errno, "a file cannot be made there", path);
  }
  // What a file made by open(2) would have.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  if (::fchmod(file.fd_, 0666 & ~mask) != 0) return errno_status(errno, "a file cannot be made there", path);
  return file;
}

NewFile::NewFile(NewFile&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::exchange(other.temporary_, {})), force_(other.force_),
      fd_(std::exchange(other.fd_, -1)), written_(other.written_) {}

NewFile::~NewFile() {
  if (temporary_.empty()) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

Status NewFile::write(ConstBytes bytes) {
  written_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_status(errno, "the file cannot be written", path_);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status NewFile::commit() {
  if (temporary_.empty()) return {};
  if (::fsync(fd_) != 0) return errno_status(errno, "the file cannot be written", path_);
  int failed = 0;
  if (force_) {
    failed = ::rename(temporary_.c_str(), path_.c_str());
  } else {
    failed = ::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE);
    // Not every file system has it; a link is refused where something is.
    if (failed != 0 && errno == EINVAL) {
      failed = ::link(temporary_.c_str(), path_.c_str());
      if (failed == 0) ::unlink(temporary_.c_str());
    }
  }
  if (failed != 0) return errno_status(errno, "the file cannot get its name", path_);
  ::close(fd_);
  temporary_.clear();
  return {};
}

}  // namespace kvbm::tensor
