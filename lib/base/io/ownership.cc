#include "base/io/ownership.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/bytes.h"
#include "base/errno_status.h"
#include "base/io/fd.h"

namespace kvbm {

namespace {

constexpr uid_t kRoot = 0;
constexpr uint64_t kAllUsers = UINT32_MAX;  // the number that says "no user" is none

// Reads the next number of a text that ends with a zero byte, and returns the rest; null: there is none.
const char* next_number(const char* text, uint64_t& out) noexcept {
  char* end = nullptr;
  out = std::strtoull(text, &end, 10);
  return end != text ? end : nullptr;
}

// Reads a kernel file, as much of it as fits. Empty if it cannot be read.
template <size_t kBytes>
std::array<char, kBytes> read_text(const char* path) noexcept {
  std::array<char, kBytes> text{};
  const Fd file(open(path, O_RDONLY | O_CLOEXEC));
  for (size_t size = 0; file && size < kBytes - 1;) {
    const ssize_t n = read(file.get(), text.data() + size, kBytes - 1 - size);
    if (n <= 0) break;
    size += static_cast<size_t>(n);
  }
  return text;
}

uid_t user_of_unmapped() noexcept {
  const auto text = read_text<32>("/proc/sys/kernel/overflowuid");
  uint64_t user = 0;
  return next_number(text.data(), user) != nullptr ? static_cast<uid_t>(user) : 65534;
}

// Lines hold: first id here, first id outside, count. A map with more lines than fit here does not cover all users.
bool all_are_mapped() noexcept {
  const auto text = read_text<4096>("/proc/self/uid_map");
  uint64_t mapped = 0;
  uint64_t first = 0;
  uint64_t n = 0;
  for (const char* at = text.data(); (at = next_number(at, first)) != nullptr &&
                                     (at = next_number(at, first)) != nullptr &&
                                     (at = next_number(at, n)) != nullptr;) {
    mapped += n;
  }
  return mapped == kAllUsers;
}

std::string in_octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

Status of_another(uid_t owner, std::string_view path) {
  return {Code::not_permitted, "kvbm was given a file or directory of another user's",
          std::string(path) + " is user " + std::to_string(owner) + "'s, this process runs as user " +
              std::to_string(geteuid()) + ": name one of this user's, or, if what is in it is to be trusted, chown " +
              std::to_string(geteuid()) + " " + std::string(path)};
}

Status open_to_others(const struct stat& st, std::string_view path, Others others) {
  const std::string mode =
      std::string(path) + " has mode " + in_octal(st.st_mode) + ", by which others than its owner may ";
  if (others == Others::read) {
    return {Code::not_permitted, "kvbm was given a file or directory that others may write",
            mode + "write it: if what is in it is to be trusted, chmod go-w " + std::string(path)};
  }
  return {Code::not_permitted, "kvbm was given a file or directory that others may read or write",
          mode + "read or write it: make it chmod " + (S_ISDIR(st.st_mode) ? "700 " : "600 ") + std::string(path)};
}

// Layout of an access control list in the kernel, version 2: a word, then entries of tag, permissions and id.
constexpr size_t kAclHead = 4, kAclEntry = 8, kMostEntries = 32;
constexpr uint32_t kAclVersion = 2;
constexpr uint16_t kAclOwner = 0x01, kAclUser = 0x02, kAclMask = 0x10;

// True if a file's list admits only its owner and this user.
bool lets_in_this_user_alone(int fd) noexcept {
  std::array<std::byte, kAclHead + kMostEntries * kAclEntry> list;
  const ssize_t got = fgetxattr(fd, "system.posix_acl_access", list.data(), list.size());
  if (got < static_cast<ssize_t>(kAclHead + kAclEntry) || load_le<uint32_t>(list.data()) != kAclVersion) return false;
  for (size_t at = kAclHead; at + kAclEntry <= static_cast<size_t>(got); at += kAclEntry) {
    const auto tag = load_le<uint16_t>(list.data() + at);
    const auto may = load_le<uint16_t>(list.data() + at + 2);
    const bool of_this_user = tag == kAclOwner || tag == kAclMask ||
                              (tag == kAclUser && is_this_user(load_le<uint32_t>(list.data() + at + 4)));
    if (may != 0 && !of_this_user) return false;
  }
  return true;
}

}  // namespace

bool is_this_user(uid_t theirs) noexcept {
  const uid_t mine = geteuid();
  if (theirs != mine) return false;
  const uid_t unmapped = user_of_unmapped();
  return is_same_user(mine, theirs, unmapped, theirs != unmapped || all_are_mapped());
}

Status check_own(int fd, std::string_view path, Others others) {
  struct stat st {};
  if (fstat(fd, &st) != 0) return errno_status(errno, "its owner cannot be read", path);
  if (!is_this_user(st.st_uid)) return of_another(st.st_uid, path);
  const mode_t refused = others == Others::read ? 022 : 077;
  return (st.st_mode & refused) != 0 ? open_to_others(st, path, others) : Status();
}

Status check_own_key(int fd, std::string_view path) {
  Status own = check_own(fd, path, Others::nothing);
  struct stat st {};
  if (own.ok() || fstat(fd, &st) != 0 || st.st_uid != kRoot || (st.st_mode & 027) != 0) return own;
  return lets_in_this_user_alone(fd) ? Status() : own;
}

Status give_owner(int fd, std::string_view path) {
  struct stat st {};
  if (fstat(fd, &st) != 0) return errno_status(errno, "its owner cannot be read", path);
  if ((st.st_mode & 0600) == 0600) return {};
  if (fchmod(fd, (st.st_mode & 07777) | 0600) != 0) return errno_status(errno, "its mode cannot be set", path);
  return {};
}

Status make_own_directory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0) {
    return errno == EEXIST ? Status() : errno_status(errno, "cannot create the directory", path);
  }
  // The path may lead elsewhere by now, but the descriptor does not.
  const Fd fd(open(path.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0) return errno_status(errno, "cannot create the directory", path);
  if (!is_this_user(st.st_uid) || (st.st_mode & 0700) == 0700) return {};
  const std::string itself = "/proc/self/fd/" + std::to_string(fd.get());
  return chmod(itself.c_str(), 0700) == 0 ? Status() : errno_status(errno, "cannot create the directory", path);
}

}  // namespace kvbm
