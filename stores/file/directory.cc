#include "directory.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "kvbm_plugin.h"

namespace kvbm_file {

namespace {

bool is_plain(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'; }

// Opens `folder` in the folder `at`. O_PATH asks a server for nothing but the lookup.
int step(int at, const std::string& folder, Fd& out) {
  out = Fd(::openat(at, folder.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return out ? 0 : errno;
}

int make_one(int at, const std::string& folder, const Modes& modes) {
  if (::mkdirat(at, folder.c_str(), modes.directory) != 0) return errno == EEXIST ? 0 : errno;
  if (!modes.whatever_the_umask) return 0;
  const Fd made(::openat(at, folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return !made || ::fchmod(made.get(), modes.directory) != 0 ? errno : 0;
}

}  // namespace

bool is_part(std::string_view part) {
  return !part.empty() && part.front() != '.' && part.size() <= KVBM_STORE_NAME_BYTES &&
         std::all_of(part.begin(), part.end(), is_plain);
}

bool is_object_name(std::string_view name) {
  if (name.size() > KVBM_STORE_NAME_BYTES) return false;
  for (size_t begin = 0;;) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (!is_part(name.substr(begin, end - begin))) return false;
    if (end == name.size()) return true;
    begin = end + 1;
  }
}

bool is_prefix(std::string_view prefix) {
  // A prefix of a name is some whole parts, and then the beginning of a part.
  const size_t slash = prefix.rfind('/');
  const std::string_view rest = slash == std::string_view::npos ? prefix : prefix.substr(slash + 1);
  return prefix.size() <= KVBM_STORE_NAME_BYTES && (rest.empty() || is_part(rest)) &&
         (slash == std::string_view::npos || is_object_name(prefix.substr(0, slash)));
}

std::vector<std::string> folders_of(std::string_view name) {
  std::vector<std::string> out;
  for (size_t begin = 0, end = 0; (end = name.find('/', begin)) != std::string_view::npos; begin = end + 1) {
    out.emplace_back(name.substr(begin, end - begin));
  }
  return out;
}

std::string last_part(std::string_view name) { return std::string(name.substr(name.rfind('/') + 1)); }

int open_folder(int root, const std::vector<std::string>& folders, Fd& out) {
  if (int error = step(root, ".", out); error != 0) return error;
  for (const std::string& folder : folders) {
    Fd next;
    if (int error = step(out.get(), folder, next); error != 0) return error;
    out = std::move(next);
  }
  return 0;
}

int make_folder(int root, const std::vector<std::string>& folders, const Modes& modes, Fd& out) {
  if (int error = step(root, ".", out); error != 0) return error;
  for (const std::string& folder : folders) {
    Fd next;
    int error = step(out.get(), folder, next);
    if (error == ENOENT) {
      error = make_one(out.get(), folder, modes);
      if (error == 0) error = step(out.get(), folder, next);
    }
    if (error != 0) return error;
    out = std::move(next);
  }
  return 0;
}

int sync_folders(int root, std::vector<std::string> folders) {
  for (;;) {
    Fd folder;
    if (int error = open_folder(root, folders, folder); error != 0) return error;
    const Fd readable(::openat(folder.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!readable) return errno;
    if (::fsync(readable.get()) != 0 && errno != EINVAL && errno != EOPNOTSUPP && errno != EBADF) return errno;
    if (folders.empty()) return 0;
    folders.pop_back();
  }
}

void remove_empty_folders(int root, std::vector<std::string> folders) {
  while (!folders.empty()) {
    const std::string last = std::move(folders.back());
    folders.pop_back();
    Fd around;
    if (open_folder(root, folders, around) != 0 || ::unlinkat(around.get(), last.c_str(), AT_REMOVEDIR) != 0) return;
  }
}

}  // namespace kvbm_file
