#include "listing.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "directory.h"
#include "kvbm_plugin.h"

namespace kvbm_file {

namespace {

constexpr time_t kLeftOverSeconds = 3600;
// Limit on entries of one directory held at a time. A larger directory is read again for the rest.
constexpr size_t kMostEntries = 65536;

struct CloseDirectory {
  void operator()(DIR* open) const noexcept { ::closedir(open); }
};

bool is_left_over(const struct stat& st) { return ::time(nullptr) - st.st_mtime > kLeftOverSeconds; }

class Walk {
 public:
  Walk(int root, ListTask& task) : root_(root), task_(task) {}

  int run() {
    // Only names in the prefix's folder can begin with the prefix.
    const size_t slash = task_.prefix.rfind('/');
    const std::string place(slash == std::string_view::npos ? "" : task_.prefix.substr(0, slash + 1));
    Fd folder;
    const int error = open_folder(root_, folders_of(place), folder);
    if (error != 0) return is_gone(error) ? 0 : error;
    return walk(folder.get(), place);
  }

 private:
  // Entries in the order of the names: a folder's entry ends with its slash.
  using Entries = std::set<std::string>;

  // ESTALE is not among them: the folder may be there, under another handle. A listing without its names would be
  // believed, and a host that does not see an epoch finds what was invalidated.
  static bool is_gone(int error) { return error == ENOENT || error == ENOTDIR || error == ELOOP; }

  // Returns whether a name that begins with `folder` (which ends with a slash) may be wanted.
  [[nodiscard]] bool may_have(std::string_view folder) const {
    return (folder.starts_with(task_.prefix) || task_.prefix.starts_with(folder)) &&
           (folder > task_.after || task_.after.starts_with(folder)) && folder.size() < KVBM_STORE_NAME_BYTES;
  }
  [[nodiscard]] bool is_wanted(std::string_view name) const {
    return name.starts_with(task_.prefix) && name > task_.after && name.size() <= KVBM_STORE_NAME_BYTES;
  }

  // Reads the first entries after `floor` that may be wanted. `cut` is set if there are more.
  int read_entries(int folder, const std::string& place, const std::string& floor, Entries& out, bool& cut,
                   bool& empty) {
    const int own = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own < 0) return errno;
    const std::unique_ptr<DIR, CloseDirectory> open(::fdopendir(own));
    if (open == nullptr) {
      const int error = errno;
      ::close(own);
      return error;
    }
    empty = true;
    for (uint64_t n = 0;; ++n) {
      if (n % 1024 == 0 && monotonic_ns() > task_.deadline_ns) return ETIMEDOUT;
      errno = 0;
      const dirent* entry = ::readdir(open.get());
      if (entry == nullptr) return errno;
      std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (name.starts_with(kTemporary) && remove_left_over(folder, name)) continue;
      empty = false;
      if (!is_part(name)) continue;
      const bool is_folder = entry->d_type == DT_DIR || (entry->d_type == DT_UNKNOWN && is_directory(folder, name));
      if (!is_folder && entry->d_type != DT_REG && entry->d_type != DT_UNKNOWN) continue;
      if (is_folder) name += '/';
      const std::string whole = place + name;
      if (name <= floor || !(is_folder ? may_have(whole) : is_wanted(whole))) continue;
      out.insert(std::move(name));
      if (out.size() > kMostEntries) {
        out.erase(std::prev(out.end()));
        cut = true;
      }
    }
  }

  int walk(int folder, const std::string& place) {
    std::string floor;
    for (bool cut = true; cut && !task_.more;) {
      Entries entries;
      cut = false;
      bool empty = false;
      if (int error = read_entries(folder, place, floor, entries, cut, empty); error != 0)
        return is_gone(error) ? 0 : error;
      if (empty) remove_if_left_over(folder, place);
      if (!entries.empty()) floor = *entries.rbegin();
      for (const std::string& entry : entries) {
        if (int error = entry.back() == '/' ? enter(folder, place, entry) : put(place + entry); error != 0)
          return error;
        if (task_.more) break;
      }
    }
    return 0;
  }

  int enter(int folder, const std::string& place, const std::string& entry) {
    Fd inner;
    const int error = open_folder(folder, {entry.substr(0, entry.size() - 1)}, inner);
    if (error != 0) return is_gone(error) ? 0 : error;
    return walk(inner.get(), place + entry);
  }

  int put(const std::string& name) {
    if (monotonic_ns() > task_.deadline_ns) return ETIMEDOUT;
    if (name.size() + 1 > task_.bytes - task_.done) {
      task_.more = true;
      return 0;
    }
    std::memcpy(task_.data + task_.done, name.c_str(), name.size() + 1);
    task_.done += name.size() + 1;
    return 0;
  }

  static bool is_directory(int folder, const std::string& name) {
    struct stat st {};
    return ::fstatat(folder, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
  }

  static bool remove_left_over(int folder, const std::string& name) {
    struct stat st {};
    return ::fstatat(folder, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && is_left_over(st) &&
           ::unlinkat(folder, name.c_str(), 0) == 0;
  }

  // Removes an empty folder after one hour. A put may have made it a moment ago, and a put that finds it removed
  // makes it again.
  void remove_if_left_over(int folder, const std::string& place) const {
    struct stat st {};
    if (!place.empty() && ::fstat(folder, &st) == 0 && is_left_over(st)) remove_empty_folders(root_, folders_of(place));
  }

  const int root_;
  ListTask& task_;
};

}  // namespace

uint64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000U + static_cast<uint64_t>(now.tv_nsec);
}

int list_objects(int root, ListTask& task) { return Walk(root, task).run(); }

}  // namespace kvbm_file
