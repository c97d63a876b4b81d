#include "benchmark/slow_loopback.h"

#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

extern char** environ;

namespace kvbm::benchmark {

namespace {

bool loopback_up() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", sizeof request.ifr_name - 1);
  bool up = ::ioctl(fd, SIOCGIFFLAGS, &request) == 0;
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  up = up && ::ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  ::close(fd);
  return up;
}

bool run_tc(const std::vector<std::string>& arguments) {
  std::vector<char*> words;
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  int status = -1;
  const bool began = ::posix_spawnp(&pid, "tc", &quiet, nullptr, words.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&quiet);
  return began && ::waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

Result<std::unique_ptr<SlowLoopback>> SlowLoopback::make() {
  const int before = ::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (before < 0 || ::unshare(CLONE_NEWNET) != 0) {
    if (before >= 0) ::close(before);
    return Status(Code::not_permitted, "a network namespace cannot be made here");
  }
  std::unique_ptr<SlowLoopback> made(new SlowLoopback(before));
  if (!loopback_up())
    return Status(Code::not_permitted, "the loopback of a new network namespace cannot be brought up");
  if (Status s = made->limit(1000); !s.ok()) return s;
  if (Status s = made->limit(0); !s.ok()) return s;
  return made;
}

SlowLoopback::~SlowLoopback() {
  (void)::setns(before_, CLONE_NEWNET);
  ::close(before_);
}

// Sets a token bucket; its burst holds several of the 64 KiB packets of loopback.
Status SlowLoopback::limit(uint32_t megabits_per_s) {
  const bool done = megabits_per_s == 0
                        ? run_tc({"tc", "qdisc", "del", "dev", "lo", "root"})
                        : run_tc({"tc", "qdisc", "replace", "dev", "lo", "root", "tbf", "rate",
                                  std::to_string(megabits_per_s) + "mbit", "burst", "512kb", "latency", "50ms"});
  if (!done) return {Code::unsupported, "tc cannot limit the loopback here"};
  return {};
}

}  // namespace kvbm::benchmark
