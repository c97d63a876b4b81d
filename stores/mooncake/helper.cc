#include "helper.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "client_script.h"

extern "C" char** environ;

namespace kvbm_mooncake {
namespace {

constexpr int kSocket = 3;  // descriptors, as in client.py
constexpr int kMemory = 4;
constexpr int kAbove = 10;
constexpr auto kEnds = std::chrono::seconds(4);

class SpawnPlan {
 public:
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    sigset_t set;
    ::sigemptyset(&set);
    ::posix_spawnattr_setsigmask(&attributes_, &set);
    ::sigfillset(&set);
    ::posix_spawnattr_setsigdefault(&attributes_, &set);
    // The helper has a process group of its own. Ctrl-C on a terminal is for the program, which ends the helper after
    // its own end.
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  void open(int as, const char* path, int flags) {
    ::posix_spawn_file_actions_addopen(&actions_, as, path, flags, 0600);
  }
  void pass(int fd, int as) { ::posix_spawn_file_actions_adddup2(&actions_, fd, as); }
  int run(pid_t* pid, char* const* words) const {
    return ::posix_spawnp(pid, words[0], &actions_, &attributes_, words, environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Duplicates a descriptor above the helper's descriptor numbers, so that dup2() to these numbers overwrites none.
Fd moved_up(int fd) { return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, kAbove)); }

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) ::close(fd_);
}

std::string Helper::start(const std::string& python, const std::vector<std::string>& arguments, const std::string& log,
                          int memory) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    return std::string("no socket for Mooncake's client: ") + std::strerror(errno);
  }
  Fd ours(pair[0]);
  const Fd theirs(pair[1]);
  const Fd socket_above = moved_up(theirs.get());
  const Fd memory_above = moved_up(memory);
  if (!socket_above || !memory_above) return "there are too many open files for Mooncake's client: raise ulimit -n";
  SpawnPlan plan;
  plan.open(0, "/dev/null", O_RDONLY);
  plan.open(1, "/dev/null", O_WRONLY);
  plan.open(2, log.empty() ? "/dev/null" : log.c_str(), O_WRONLY | O_APPEND | O_CREAT);
  plan.pass(socket_above.get(), kSocket);
  plan.pass(memory_above.get(), kMemory);
  std::vector<std::string> words = {python, "-c", kClientScript};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t pid = -1;
  if (const int error = plan.run(&pid, pointers.data()); error != 0) {
    return python + " does not start (" + std::strerror(error) +
           "): name a Python that has the package mooncake-transfer-engine with python=" +
           (log.empty() ? "" : ", and a file that can be written with log=");
  }
  pid_ = pid;
  socket_ = std::move(ours);
  return {};
}

// Returns true also if the program around this library reaps every child itself.
bool Helper::is_reaped(int flags) {
  pid_t got = 0;
  do {
    got = ::waitpid(pid_, nullptr, flags);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return false;
  pid_ = -1;
  return true;
}

void Helper::end() {
  if (!runs()) return;
  ::shutdown(socket_.get(), SHUT_WR);
  const auto until = std::chrono::steady_clock::now() + kEnds;
  while (!is_reaped(WNOHANG)) {
    if (std::chrono::steady_clock::now() > until) return kill();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  socket_ = Fd();
}

void Helper::kill() {
  if (!runs()) return;
  if (!is_reaped(WNOHANG)) {
    ::kill(pid_, SIGKILL);
    is_reaped(0);
  }
  socket_ = Fd();
}

}  // namespace kvbm_mooncake
