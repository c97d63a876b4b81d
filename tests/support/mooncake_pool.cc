#include "support/mooncake_pool.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "support/child_signal.h"

namespace kvbm::test {
namespace {

namespace fs = std::filesystem;

sockaddr_in on_loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  return address;
}

// A port that is free now. Another program may take it before the server does: then another port is tried.
int free_pool_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = on_loopback(0);
  socklen_t length = sizeof address;
  int port = 0;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    port = ntohs(address.sin_port);
  }
  ::close(fd);
  return port;
}

std::string environment() {
  if (const char* named = ::getenv("KVBMTEST_MOONCAKE")) return named;
  return KVBM_MOONCAKE_ENVIRONMENT;
}

// Returns the path of a program of the Mooncake package.
std::string pool_program(const std::string& name) {
  std::error_code error;
  for (const auto& version : fs::directory_iterator(environment() + "/lib", error)) {
    const std::string file = version.path().string() + "/site-packages/mooncake/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

bool ends_within_a_minute(const auto& done) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!done()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

void end(pid_t& pid) {
  if (pid <= 0) return;
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  pid = -1;
}

bool has_ended(pid_t& pid) {
  if (pid > 0 && ::waitpid(pid, nullptr, WNOHANG) == pid) pid = -1;
  return pid < 0;
}

}  // namespace

std::string MooncakePool::python() {
  const std::string file = environment() + "/bin/python";
  return ::access(file.c_str(), X_OK) == 0 && !pool_program("mooncake_master").empty() ? file : "";
}

bool MooncakePool::start(const std::string& lent) {
  stop();
  lent_ = lent;
  return start_master() && start_lender();
}

void MooncakePool::stop() {
  end(lender_);
  end(master_);
}

void MooncakePool::kill_master() { end(master_); }
void MooncakePool::freeze_master() { (void)signal_child(master_, SIGSTOP); }
void MooncakePool::thaw_master() { (void)signal_child(master_, SIGCONT); }
void MooncakePool::kill_lender() { end(lender_); }

// Restarts the master behind a proxy with a constant port, because the port of a killed process cannot be reused for a
// minute.
bool MooncakePool::start_master() {
  for (int tries = 0; tries < 5; ++tries) {
    const int port = free_pool_port();
    admin_port_ = free_pool_port();
    master_ = launch("mooncake_master",
                     {"--rpc_address=127.0.0.1", "--rpc_port=" + std::to_string(port), "--metrics_host=127.0.0.1",
                      "--metrics_port=" + std::to_string(admin_port_), "--default_kv_lease_ttl=1s"});
    const bool answers =
        ends_within_a_minute([&] { return has_ended(master_) || ask("/health").find("ok") != std::string::npos; });
    if (!answers || master_ < 0) {
      end(master_);
      continue;
    }
    const std::string target = "127.0.0.1:" + std::to_string(port);
    if (proxy_ == nullptr) {
      proxy_ = std::make_unique<FaultyProxy>(target, 1);
    } else {
      proxy_->retarget(target);
    }
    return !address().empty();
  }
  return false;
}

bool MooncakePool::start_lender() {
  for (int tries = 0; tries < 5; ++tries) {
    lender_ = launch("mooncake_client",
                     {"--host=127.0.0.1", "--global_segment_size=" + lent_, "--master_server_address=" + address(),
                      "--metadata_server=P2PHANDSHAKE", "--port=" + std::to_string(free_pool_port())});
    const bool answers = ends_within_a_minute(
        [&] { return has_ended(lender_) || ask("/get_all_segments").find("127.0.0.1:") != std::string::npos; });
    if (answers && lender_ > 0) return true;
    end(lender_);
  }
  return false;
}

pid_t MooncakePool::launch(const std::string& program, const std::vector<std::string>& options) const {
  std::vector<std::string> words = {pool_program(program)};
  words.insert(words.end(), options.begin(), options.end());
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const std::string log = directory_.path() + "/log";
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(5);
    const int out = ::open(log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(6);
  }
  return pid;
}

// Returns the body of the master's answer over HTTP; "" if it does not answer.
std::string MooncakePool::ask(const std::string& path) const {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit = {10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const sockaddr_in address = on_loopback(admin_port_);
  std::string answer;
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) > 0) {
    char some[4096];
    for (ssize_t n = 0; (n = ::recv(fd, some, sizeof some, 0)) > 0;) answer.append(some, static_cast<size_t>(n));
  }
  ::close(fd);
  const size_t body = answer.find("\r\n\r\n");
  return body == std::string::npos ? "" : answer.substr(body + 4);
}

std::vector<std::string> MooncakePool::keys() const {
  std::istringstream all(ask("/get_all_keys"));
  std::vector<std::string> out;
  for (std::string key; std::getline(all, key);) out.push_back(key);
  return out;
}

std::string MooncakePool::log() const {
  std::ifstream in(directory_.path() + "/log");
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace kvbm::test
