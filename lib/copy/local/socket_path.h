// A Unix socket at a path: rules for its place, for taking it over, and for the length of its name.
//
// The directory belongs to the owner only (mode 0700). Both listener and connector check that: a process that cannot
// enter it cannot connect, and one that cannot write there cannot listen in another's place. A name in the abstract
// namespace has no such protection. A path longer than the 107 bytes of sun_path is reached through /proc/self/fd.
//
// A socket file outlives its process. A process that finds no listener there replaces it, under a lock beside it
// (<path>.lock, a POSIX record lock: a forked child does not keep it), held only meanwhile. Without it, of two that
// start at once one could remove the socket that the other has just made.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/io/fd.h"
#include "base/status.h"

namespace kvbm::copy::local {

// A listening socket. It removes its file in the end if that is still its own. Set-up: blocks on files only.
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

// Returns a non-blocking socket, and in `path` what to connect it to.
Result<Fd> make_connecting_socket(const std::string& address, std::string& path);
// ok; again: its queue is full, retry; closed: no process listens; not_permitted: others may enter the directory; else
// the error of connect(2).
Status try_connect(int fd, const std::string& path);

}  // namespace kvbm::copy::local
