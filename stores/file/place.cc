#include "place.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace kvbm_file {

namespace {

struct FileSystem {
  uint32_t magic;
  const char* name;
  bool local;
};
// Types that statfs(2) reports. A file system that is not listed may be shared.
constexpr FileSystem kFileSystems[] = {
    {0x6969, "nfs", false},        {0x0BD00BD0, "lustre", false}, {0x00C36400, "ceph", false},
    {0xFF534D42, "cifs", false},   {0xFE534D42, "smb", false},    {0x47504653, "gpfs", false},
    {0x19830326, "beegfs", false}, {0x01021997, "9p", false},     {0x01161970, "gfs2", false},
    {0x7461636F, "ocfs2", false},  {0x65735546, "fuse", false},   {0xAAD7AAEA, "panfs", false},
    {0xEF53, "ext4", true},        {0x58465342, "xfs", true},     {0x9123683E, "btrfs", true},
    {0x01021994, "tmpfs", true},   {0x794C7630, "overlay", true}, {0x2FC12FC1, "zfs", true},
    {0xF2F52010, "f2fs", true},    {0x858458F6, "ramfs", true},   {0xCA451A4E, "bcachefs", true},
    {0x4D44, "msdos", true},
};

const FileSystem* find_file_system(int fd, uint32_t& magic) {
  struct statfs facts {};
  if (::fstatfs(fd, &facts) != 0) return nullptr;
  magic = static_cast<uint32_t>(facts.f_type);
  for (const FileSystem& one : kFileSystems) {
    if (one.magic == magic) return &one;
  }
  return nullptr;
}

}  // namespace

Place::Refusal Place::check(int fd) const {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return {errno, path_ + " cannot be looked at: " + std::generic_category().message(errno)};
  const uid_t user = ::geteuid();
  char mode[16];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(st.st_mode & 07777));
  if ((st.st_mode & S_IWOTH) != 0) {
    return {EPERM, "everyone may write " + path_ + " (mode " + mode + "); chmod o-w it, or name another directory"};
  }
  if (!shared_ && (st.st_mode & S_IWGRP) != 0) {
    return {EPERM, "a group may write " + path_ + " (mode " + mode +
                       "); chmod g-w it, or say shared=on if the group is to share it"};
  }
  if (!shared_ && st.st_uid != user) {
    return {EPERM, path_ + " is user " + std::to_string(st.st_uid) + "'s and this is user " + std::to_string(user) +
                       "; name a directory of this user's, or say shared=on if it is to be shared"};
  }
  return {};
}

Place::Refusal Place::open() {
  const auto try_open = [this] { return Fd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)); };
  Fd fd = try_open();
  if (!fd && errno == ENOENT) {
    // Only the last part is made. A directory that is missing further out means a file system that is not mounted.
    if (::mkdir(path_.c_str(), 0700) == 0) {
      if (shared_ && ::chmod(path_.c_str(), modes().directory) != 0) {
        return {errno, path_ + " cannot be made writable for its group: " + std::generic_category().message(errno)};
      }
    } else if (errno == ENOENT) {
      return {ENOENT,
              "the directory around " + path_ + " does not exist; mount the file system, or make the directory"};
    } else if (errno != EEXIST) {
      return {errno, path_ + " cannot be made: " + std::generic_category().message(errno)};
    }
    fd = try_open();
  }
  if (!fd) {
    const int error = errno;
    struct stat st {};
    if (::lstat(path_.c_str(), &st) == 0 && S_ISLNK(st.st_mode)) {
      return {ELOOP, path_ + " is a symbolic link; name what it points to"};
    }
    if (error == ENOTDIR) return {error, path_ + " is not a directory; name one"};
    return {error, path_ + " cannot be opened: " + std::generic_category().message(error)};
  }
  if (Refusal refusal = check(fd.get()); refusal.error != 0) return refusal;
  auto opened = std::make_shared<const Fd>(std::move(fd));
  const std::lock_guard<std::mutex> lock(mutex_);
  root_ = std::move(opened);
  return {};
}

std::shared_ptr<const Fd> Place::root() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return root_;
}

bool Place::opened_anew(int error) {
  if (error != ENOENT && error != ESTALE && error != EBADF) return false;
  const auto had = root();
  struct stat st {};
  const bool is_there = ::fstat(had->get(), &st) == 0 && st.st_nlink != 0;
  return !is_there && open().error == 0;
}

std::string Place::file_system() {
  uint32_t magic = 0;
  const auto* known = find_file_system(root()->get(), magic);
  if (known != nullptr) return known->name;
  char text[32];
  std::snprintf(text, sizeof text, "file system 0x%x", magic);
  return text;
}

bool Place::is_local() {
  uint32_t magic = 0;
  const auto* known = find_file_system(root()->get(), magic);
  return known != nullptr && known->local;
}

}  // namespace kvbm_file
