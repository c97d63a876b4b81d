#include "replay/child_replay.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>

namespace kvbm::replay {

void write_report(FILE* out, const StoreProgress& p) {
  std::fprintf(out, "progress %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n",
               p.requests, p.block_refs, p.hits, p.tokens, p.tokens_saved, p.verified_blocks, p.wrong_blocks);
  std::fflush(out);
}

bool read_report(const std::string& line, StoreProgress& p) {
  return std::sscanf(
             line.c_str(), "progress %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
             &p.requests, &p.block_refs, &p.hits, &p.tokens, &p.tokens_saved, &p.verified_blocks, &p.wrong_blocks) == 7;
}

namespace {

struct Pipe {
  int read = -1;
  int write = -1;
  ~Pipe() {
    if (read >= 0) close(read);
    if (write >= 0) close(write);
  }
  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
  void close_write() {
    close(write);
    write = -1;
  }
};

[[noreturn]] void become_child(const std::vector<std::string>& arguments, const Pipe& out, const Pipe& err) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(out.write, STDOUT_FILENO);
  dup2(err.write, STDERR_FILENO);
  std::vector<char*> argv;
  std::string self = "kvbm";
  argv.push_back(self.data());
  std::vector<std::string> copies = arguments;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  _exit(127);
}

// Reads both pipes until they end.
class Listener {
 public:
  Listener(pid_t child, ChildEnd& end, const std::function<bool(const StoreProgress&)>& watch)
      : child_(child), end_(end), watch_(watch) {}

  void listen(int out, int err) {
    pollfd fds[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
      if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
      for (int i = 0; i < 2; ++i) {
        if (fds[i].fd >= 0 && fds[i].revents != 0 && !take(fds[i].fd, i == 1)) fds[i].fd = -1;
      }
    }
  }

 private:
  bool take(int fd, bool reports) {
    char page[4096];
    const ssize_t n = read(fd, page, sizeof page);
    if (n <= 0) return n < 0 && errno == EINTR;
    if (!reports) {
      end_.output.append(page, static_cast<size_t>(n));
      return true;
    }
    line_.append(page, static_cast<size_t>(n));
    for (size_t at = line_.find('\n'); at != std::string::npos; at = line_.find('\n')) {
      heard(line_.substr(0, at));
      line_.erase(0, at + 1);
    }
    return true;
  }

  void heard(const std::string& line) {
    if (!read_report(line, end_.last)) {
      end_.complaints.append(line).append("\n");
    } else if (!end_.killed && !watch_(end_.last)) {
      end_.killed = true;
      kill(child_, SIGKILL);
    }
  }

  const pid_t child_;
  ChildEnd& end_;
  const std::function<bool(const StoreProgress&)>& watch_;
  std::string line_;
};

}  // namespace

Result<ChildEnd> run_child(const std::vector<std::string>& arguments,
                           const std::function<bool(const StoreProgress&)>& watch) {
  Pipe out;
  Pipe err;
  if (!out.open() || !err.open()) return Status(Code::io_error, "no pipe", std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) return Status(Code::io_error, "no process", std::strerror(errno));
  if (child == 0) become_child(arguments, out, err);
  out.close_write();
  err.close_write();
  ChildEnd end;
  Listener(child, end, watch).listen(out.read, err.read);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  end.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return end;
}

}  // namespace kvbm::replay
