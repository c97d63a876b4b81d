// A file system of a few MiB in memory, for tests of what happens when it is full. Mounted by the super-user, or in a
// name space of this process's own, which it then stays in; where the system allows neither, ok() is false and why()
// says so.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "support/temp_dir.h"

namespace kvbm::test {

class SmallFileSystem {
 public:
  explicit SmallFileSystem(uint64_t bytes) {
    if (mount(bytes)) return;
    const auto uid = getuid();
    const auto gid = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) {
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/uid_map") << uid << " " << uid << " 1";
      std::ofstream("/proc/self/gid_map") << gid << " " << gid << " 1";
      if (mount(bytes)) return;
    }
    why_ = std::string("no file system can be mounted: ") + std::strerror(errno);
  }
  ~SmallFileSystem() {
    if (ok()) (void)umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;

  [[nodiscard]] bool ok() const { return why_.empty(); }
  [[nodiscard]] const std::string& why() const { return why_; }
  [[nodiscard]] const std::string& path() const { return folder_.path(); }

 private:
  bool mount(uint64_t bytes) {
    const std::string size = "size=" + std::to_string(bytes) + ",mode=700";
    return ::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, size.c_str()) == 0;
  }

  TempDir folder_;
  std::string why_;
};

}  // namespace kvbm::test
