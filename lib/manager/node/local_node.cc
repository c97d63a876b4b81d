#include "manager/node/local_node.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "base/errno_status.h"
#include "base/io/fd.h"
#include "base/io/ownership.h"
#include "cluster/same_host/mapped_pools.h"

namespace kvbm::manager {

namespace {

constexpr std::string_view kPrefix = "node-";
constexpr std::string_view kSuffix = ".sock";
// Minimum age of a stale socket: the owner of a younger one may be about to listen.
constexpr time_t kStaleSeconds = 60;
// Sockets checked in one start; more are swept in later starts.
constexpr size_t kSwept = 256;

std::string default_directory() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && runtime[0] == '/') return std::string(runtime) + "/kvbm";
  const char* const temporary = std::getenv("TMPDIR");
  return std::string(temporary != nullptr && temporary[0] == '/' ? temporary : "/tmp") + "/kvbm-" +
         std::to_string(geteuid());
}

// Returns true if no process listens there: a connection is refused, and the file is not new.
bool is_stale(int directory, const char* name) {
  struct stat st {};
  if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(st.st_mode)) return false;
  if (st.st_uid != geteuid() || st.st_mtime > time(nullptr) - kStaleSeconds) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory, name);
  const Fd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe || length < 0 || static_cast<size_t>(length) >= sizeof address.sun_path) return false;
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
         errno == ECONNREFUSED;
}

// Removes sockets of killed processes: a killed process leaves its socket's file behind, under a name that is not
// reused.
void sweep(int directory) {
  const int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = copy >= 0 ? fdopendir(copy) : nullptr;
  if (entries == nullptr) {
    const Fd closing(copy);
    return;
  }
  std::vector<std::string> names;
  for (const dirent* entry = readdir(entries); entry != nullptr && names.size() < kSwept; entry = readdir(entries)) {
    const std::string_view name = entry->d_name;
    if (name.starts_with(kPrefix) && name.ends_with(kSuffix)) names.emplace_back(name);
  }
  for (const std::string& name : names) {
    if (!is_stale(dirfd(entries), name.c_str())) continue;
    unlinkat(dirfd(entries), name.c_str(), 0);
    unlinkat(dirfd(entries), (name + ".lock").c_str(), 0);
  }
  closedir(entries);
}

std::string socket_name(const cluster::NodeFacts& self) {
  char text[32];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(self.incarnation));
  return std::string(kPrefix) + text + std::string(kSuffix);
}

}  // namespace

bool shares_host_memory(const Options& options) noexcept {
  return (options.share.on || (options.node.local && !options.node.listen.empty())) && options.host.file.empty();
}

Result<std::string> local_directory(const std::string& wanted) {
  const std::string path = wanted.empty() ? default_directory() : wanted;
  if (path[0] != '/') return Status(Code::bad_config, "node.local_directory is no absolute path", path);
  if (const Status made = make_own_directory(path); !made.ok()) {
    return Status(made.code(), "the directory for sockets of this machine's nodes cannot be made", made.message());
  }
  // In a directory that all users may write, another user could have made it first, or a link to any place.
  const Fd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return errno_status(errno, "cannot open the directory for sockets; set node.local_directory", path);
  if (const Status own = check_own(directory.get(), path, Others::nothing); !own.ok()) {
    return Status(own.code(), "the directory for sockets is not this user's alone; set node.local_directory",
                  own.message());
  }
  sweep(directory.get());
  return path;
}

std::unique_ptr<cluster::SameHost> meet_same_host(const Environment& environment, const NodeOptions& options,
                                                  const cluster::NodeFacts& self, const tier::HostArena& arena,
                                                  cluster::MappedPools& pools, cluster::SameHost::OnDeath on_death) {
  if (!options.local) return nullptr;
  cluster::SameHostOptions same;
  same.self = self;
  same.boot = cluster::boot_id();
  same.user = geteuid();
  same.memory = arena.fd();
  same.shape = arena.shape();
  same.why_no_socket = "node.listen is not set here";
  if (!options.listen.empty()) {
    auto directory = local_directory(options.local_directory);
    if (directory.ok()) {
      same.socket = directory.value() + "/" + socket_name(self);
    } else {
      same.why_no_socket = directory.status().message();
    }
  }
  auto made = cluster::SameHost::create(same, pools, *environment.random, environment.log, on_death);
  if (!made.ok() && !same.socket.empty()) {
    same.why_no_socket = made.status().message();
    same.socket.clear();
    made = cluster::SameHost::create(same, pools, *environment.random, environment.log, on_death);
  }
  if (same.socket.empty() && !options.listen.empty()) {
    environment.log->write(LogLevel::warning, "node",
                           "other nodes of this machine cannot read this one's memory in place: " + same.why_no_socket);
  }
  if (made.ok()) return std::move(made).value();
  environment.log->write(LogLevel::warning, "node",
                         "the memory of this machine's nodes is not read in place: " + made.status().message());
  return nullptr;
}

}  // namespace kvbm::manager
