#include "copy/local/socket_path.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/errno_status.h"
#include "base/io/ownership.h"
#include "base/io/record_locking.h"
#include "copy/local/peer_process.h"

namespace kvbm::copy::local {

namespace {

constexpr std::string_view kScheme = "unix:";
constexpr int kBacklog = 128;

// Refuses "host:port" and similar, so that an address for another transport is not taken for a file's name.
Result<std::string> path_of(const std::string& address) {
  const bool named = address.compare(0, kScheme.size(), kScheme) == 0;
  std::string path = named ? address.substr(kScheme.size()) : address;
  if (path.empty() || path.back() == '/' || path.find('\0') != std::string::npos || (!named && path[0] != '/')) {
    return Status(Code::invalid_argument, "not an address on this host: give an absolute path, or unix:<path>",
                  address);
  }
  return path;
}

struct Place {
  Fd directory;
  std::string name;
  std::string short_path;  // fits in sun_path; valid while the directory is open
};

Result<Place> place_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  Place place;
  place.name = slash == std::string::npos ? path : path.substr(slash + 1);
  const std::string parent = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  if (place.name == "." || place.name == "..") return Status(Code::invalid_argument, "not the path of a socket", path);
  place.directory = Fd(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!place.directory) return errno_status(errno, "cannot open the socket's directory", parent);
  place.short_path = path;
  if (path.size() < sizeof(sockaddr_un::sun_path)) return place;
  place.short_path = "/proc/self/fd/" + std::to_string(place.directory.get()) + "/" + place.name;
  if (place.short_path.size() >= sizeof(sockaddr_un::sun_path)) {
    return Status(Code::invalid_argument, "the socket's name is too long", place.name);
  }
  if (access("/proc/self/fd", X_OK) != 0) {
    return Status(Code::unsupported, "a path this long needs /proc; mount it, or use a shorter path", path);
  }
  return place;
}

sockaddr_un address_of(const std::string& short_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, short_path.data(), short_path.size());
  return address;
}

int bind_to(int fd, const Place& place) {
  const sockaddr_un address = address_of(place.short_path);
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
}

Status check_directory(const Place& place, const std::string& path) {
  const Status own = check_own(place.directory.get(), path.substr(0, path.rfind('/')), Others::nothing);
  return own.ok() ? own : Status(own.code(), "the socket's directory is not this user's alone", own.message());
}

// Checks whether a living process listens at that name. A child that it forked keeps the socket open after its death.
Status check_stale(const Place& place, const std::string& path) {
  struct stat st {};
  if (fstatat(place.directory.get(), place.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (!S_ISSOCK(st.st_mode)) return Status(Code::exists, "there is a file that is not a socket", path);
  Fd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return errno_status(errno, "cannot make a socket", path);
  const sockaddr_un address = address_of(place.short_path);
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    if (errno == ECONNREFUSED || errno == ENOENT) return {};
    return Status(Code::in_use, "another process listens there already", path + ": " + std::strerror(errno));
  }
  const auto owner = peer_process(probe.get());
  if (!owner.ok() && owner.status().code() == Code::owner_gone) return {};
  std::string who = path;
  if (owner.ok()) who += " is the socket of process " + std::to_string(owner.value().pid);
  return Status(Code::in_use, "another process listens there already", std::move(who));
}

// Binds, also in place of a dead process's socket. A record lock does not exclude other threads: record_locking does.
Status bind_alone(int fd, const Place& place, const std::string& path) {
  const std::string lock_name = place.name + ".lock";
  MutexLock one(record_locking);
  const Fd lock(openat(place.directory.get(), lock_name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return errno_status(errno, "cannot open the socket's lock file", path + ".lock");
  if (Status own = check_own(lock.get(), path + ".lock", Others::read); !own.ok()) return own;
  if (Status given = give_owner(lock.get(), path + ".lock"); !given.ok()) return given;
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  if (fcntl(lock.get(), F_SETLK, &whole) != 0) {
    return Status(Code::in_use, "another process is about to listen there", path);
  }
  if (Status s = check_stale(place, path); !s.ok()) return s;
  unlinkat(place.directory.get(), place.name.c_str(), 0);
  if (const int error = bind_to(fd, place); error != 0) return errno_status(error, "cannot bind the socket", path);
  if (fchmodat(place.directory.get(), place.name.c_str(), 0600, 0) != 0 || listen(fd, kBacklog) != 0) {
    return errno_status(errno, "cannot listen", path);
  }
  return {};
}

}  // namespace

Result<ListeningSocket> ListeningSocket::open(const std::string& address) {
  const auto named = path_of(address);
  if (!named.ok()) return named.status();
  const std::string& path = named.value();
  auto place = place_of(path);
  if (!place.ok()) return place.status();
  if (Status s = check_directory(place.value(), path); !s.ok()) return s;
  ListeningSocket made;
  made.fd_ = Fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made.fd_) return errno_status(errno, "cannot make a socket", path);
  if (Status s = bind_alone(made.fd_.get(), place.value(), path); !s.ok()) return s;
  struct stat st {};
  if (fstatat(place.value().directory.get(), place.value().name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) {
    made.inode_ = st.st_ino;
  }
  made.path_ = path;
  made.name_ = std::move(place.value().name);
  made.directory_ = std::move(place.value().directory);
  return made;
}

ListeningSocket& ListeningSocket::operator=(ListeningSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(directory_, other.directory_);
  std::swap(path_, other.path_);
  std::swap(name_, other.name_);
  std::swap(inode_, other.inode_);
  return *this;
}

ListeningSocket::~ListeningSocket() {
  if (!directory_) return;
  struct stat st {};
  if (fstatat(directory_.get(), name_.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == inode_) {
    unlinkat(directory_.get(), name_.c_str(), 0);
  }
}

Result<Fd> make_connecting_socket(const std::string& address, std::string& path) {
  auto named = path_of(address);
  if (!named.ok()) return named.status();
  path = std::move(named).value();
  Fd made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return errno_status(errno, "cannot make a socket", path);
  return made;
}

Status try_connect(int fd, const std::string& path) {
  auto place = place_of(path);
  if (!place.ok()) {
    if (place.status().code() == Code::miss) return Status(Code::closed, "no process listens there", path);
    return place.status();
  }
  // The directory may have been opened to others since its owner checked: another user could place a socket there.
  if (Status s = check_directory(place.value(), path); !s.ok()) return s;
  const sockaddr_un address = address_of(place.value().short_path);
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return {};
  if (errno == EAGAIN) return Status(Code::again, "too many wait to be accepted there", path);
  if (errno == ECONNREFUSED || errno == ENOENT) return Status(Code::closed, "no process listens there", path);
  if (errno == EPROTOTYPE) return Status(Code::mismatch, "another kind of socket is there", path);
  return errno_status(errno, "cannot connect", path);
}

}  // namespace kvbm::copy::local
