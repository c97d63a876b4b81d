#include "support/network_mount.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace kvbm::test {
namespace {

std::string network_program(const std::string& name) {
  std::istringstream path(std::string(::getenv("PATH") != nullptr ? ::getenv("PATH") : "") +
                          ":/usr/lib/openssh:/usr/lib/ssh");
  for (std::string folder; std::getline(path, folder, ':');) {
    if (::access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  }
  return {};
}

bool is_mounted(const std::string& path) {
  struct stat here = {}, above = {};
  return ::stat(path.c_str(), &here) == 0 && ::stat((path + "/..").c_str(), &above) == 0 && here.st_dev != above.st_dev;
}

}  // namespace

std::string NetworkMount::missing() {
  if (network_program("sshfs").empty() || network_program("sftp-server").empty()) {
    return "sshfs is not here: tools/setup --all-stores installs it";
  }
  return ::access("/dev/fuse", R_OK | W_OK) == 0 ? "" : "/dev/fuse cannot be used here";
}

bool NetworkMount::start(const std::string& folder) {
  stop();
  std::error_code error;
  std::filesystem::create_directories(path(), error);
  const std::string server = directory_.path() + "/server";
  const std::string number = directory_.path() + "/pid";
  std::ofstream(server) << "#!/bin/sh\necho $$ > '" << number << "'\nexec '" << network_program("sftp-server") << "'\n";
  ::chmod(server.c_str(), 0700);
  const std::string file = network_program("sshfs");
  const std::string from = "host:" + folder, to = path(), how = "ssh_command=" + server + ",dcache_timeout=1";
  const std::string out = directory_.path() + "/log";
  const pid_t parent = ::getpid();
  client_ = ::fork();
  if (client_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // sshfs unmounts on this signal
    if (::getppid() != parent) ::_exit(5);
    const int fd = ::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    ::execl(file.c_str(), file.c_str(), "-f", from.c_str(), to.c_str(), "-o", how.c_str(), nullptr);
    ::_exit(6);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (client_ > 0 && std::chrono::steady_clock::now() < until) {
    if (is_mounted(path())) {
      std::ifstream(number) >> server_;  // the server is no child of this process
      return server_ > 0;
    }
    if (::waitpid(client_, nullptr, WNOHANG) == client_) client_ = -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  stop();
  return false;
}

void NetworkMount::stop() {
  if (client_ <= 0) return;
  thaw();
  ::kill(client_, SIGTERM);
  ::waitpid(client_, nullptr, 0);
  client_ = server_ = -1;
}

void NetworkMount::freeze() {
  if (server_ > 0) ::kill(server_, SIGSTOP);
}

void NetworkMount::thaw() {
  if (server_ > 0) ::kill(server_, SIGCONT);
}

std::string NetworkMount::log() const {
  std::ifstream file(directory_.path() + "/log");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace kvbm::test
