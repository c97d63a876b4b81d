// A Unix socket at a path: where it may be, who may take it over, how long its name may be.
//
// The directory is the owner's alone (mode 0700), which who listens and who connects both see to: who cannot enter it
// cannot connect, and who cannot write there cannot listen in another's place. A name in the abstract namespace
// has no such door. A path longer than the 107 bytes of sun_path is reached through /proc/self/fd.
// A socket file outlives its process. It is replaced by whoever finds that nobody listens there any more, under a lock
// beside it (<path>.lock, a POSIX record lock: a forked child does not keep it), held only meanwhile: of two that start
// at once, one must not remove what the other has just made.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/fd.h"
#include "base/status.h"

namespace kvbm::copy::local {

// A socket that listens, and removes its file in the end if that is still its own. Set-up: blocks on nothing but files.
class ListeningSocket {
 public:
  // address: an absolute path, or "unix:" and any path. not_permitted: others may enter the directory; in_use: a living
  // process listens there, detail says which.
  static Result<ListeningSocket> open(const std::string& address);
  ListeningSocket() = default;
  ListeningSocket(ListeningSocket&&) noexcept = default;
  ListeningSocket& operator=(ListeningSocket&& other) noexcept;
  ~ListeningSocket();

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  Fd fd_;
  Fd directory_;
  std::string path_;
  std::string name_;
  ino_t inode_ = 0;
};

// A socket that does not block, and where it is to lead.
struct ConnectingSocket {
  Fd fd;
  std::string path;
};
Result<ConnectingSocket> make_connecting_socket(const std::string& address);
// ok; again: too many wait there, try again; closed: nobody listens; not_permitted: others may enter the directory; else
// what connect(2) says.
Status try_connect(int fd, const std::string& path);

}  // namespace kvbm::copy::local
