// Functions on directories beneath a descriptor. Nothing here follows a symbolic link, and a name is never more than
// one part of a path. Functions return 0 or an errno value.
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
  // Returns the descriptor to a caller that closes it and checks the result.
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Returns whether a name, or a listing's prefix, has the form that kvbm_plugin.h defines. The text comes from another
// library.
bool is_object_name(std::string_view name);
bool is_prefix(std::string_view prefix);
// Returns whether an object's name may have this part. Other entries of a directory do not belong to the store.
bool is_part(std::string_view part);
// "a/b/c" has the folders {"a", "b"} and the last part "c".
std::vector<std::string> folders_of(std::string_view name);
std::string last_part(std::string_view name);

// Permissions of new directories and files.
struct Modes {
  mode_t directory = 0700;
  mode_t file = 0600;
  bool whatever_the_umask = false;
};

// Opens the folder at the end of `folders` beneath `root`.
int open_folder(int root, const std::vector<std::string>& folders, Fd& out);
// Opens the folder at the end of `folders` beneath `root`, and creates the missing ones.
int make_folder(int root, const std::vector<std::string>& folders, const Modes& modes, Fd& out);
// Makes durable what was made, renamed or removed in the innermost of the folders, and the folders around it up to
// `root`. A file system without such a call needs none.
int sync_folders(int root, std::vector<std::string> folders);
// Removes the innermost of the folders, then those around it, as long as they are empty.
void remove_empty_folders(int root, std::vector<std::string> folders);

}  // namespace kvbm_file
