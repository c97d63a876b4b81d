// Directories beneath a descriptor. Nothing here follows a symbolic link, and a name is never more than one part of a
// path. Functions return 0 or an errno value.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvbm_file {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  // For a caller that closes it and looks at the answer.
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Whether a name, or what a listing's names begin with, is as kvbm_plugin.h says. It comes from another library.
bool is_object_name(std::string_view name);
bool is_prefix(std::string_view prefix);
// Whether an object could have this for a part of its name. Others in a directory are not ours.
bool is_part(std::string_view part);
// "a/b/c" as {"a", "b"} and "c".
std::vector<std::string> folders_of(std::string_view name);
std::string last_part(std::string_view name);

// What directories and files are made with.
struct Modes {
  mode_t directory = 0700;
  mode_t file = 0600;
  bool whatever_the_umask = false;
};

// The folder at the end of `folders` beneath `root`.
int open_folder(int root, const std::vector<std::string>& folders, Fd& out);
// The same; what is not there is made.
int make_folder(int root, const std::vector<std::string>& folders, const Modes& modes, Fd& out);
// Removes the innermost of the folders and those around it, as long as they are empty.
void remove_empty_folders(int root, std::vector<std::string> folders);

}  // namespace kvbm_file
