#include "support/redis_server.h"

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

RedisServer::Kind chosen = RedisServer::Kind::redis;

// A port that is free now. Another program may take it before the server does: then another port is tried.
int free_redis_port() {
  int port = 0;
  for (int tries = 0; tries < 100 && (port == 0 || port > 55'000); ++tries) {  // a cluster's own port is 10,000 higher
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
      port = ntohs(address.sin_port);
    }
    ::close(fd);
  }
  return port;
}

std::string resp_request(const std::vector<std::string>& words) {
  std::string out = "*" + std::to_string(words.size()) + "\r\n";
  for (const std::string& word : words) out += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  return out;
}

}  // namespace

void RedisServer::choose(Kind kind) { chosen = kind; }

std::string RedisServer::missing(Kind kind) {
  if (!program(kind).empty()) return {};
  return name_of(kind) + "-server is not here: tools/setup " + (kind == Kind::redis ? "--tests" : "--all-stores") +
         " installs it";
}

// Returns the program: redis-server in PATH, or Valkey of tools/setup.
std::string RedisServer::program(Kind kind) {
  std::istringstream path(::getenv("PATH") != nullptr ? ::getenv("PATH") : "");
  const std::string name = name_of(kind) + "-server";
  for (std::string folder; std::getline(path, folder, ':');) {
    if (::access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  }
  if (kind != Kind::valkey) return {};
  std::error_code error;
  for (const auto& file : std::filesystem::recursive_directory_iterator(KVBM_VALKEY_ENVIRONMENT "/lib", error)) {
    if (file.path().filename() == name && ::access(file.path().c_str(), X_OK) == 0) return file.path().string();
  }
  return {};
}

bool RedisServer::start(std::vector<std::string> options) {
  stop();
  options_ = std::move(options);
  for (int tries = 0; tries < 5; ++tries) {
    port_ = free_redis_port();
    tls_port_ = free_redis_port();
    if (launch({}, true)) return true;
  }
  return false;
}

bool RedisServer::start_again(bool with_data, std::vector<std::string> more, bool waits) {
  kill();
  std::error_code error;
  if (!with_data) std::filesystem::remove(directory() + "/dump.rdb", error);
  return launch(more, waits);
}

bool RedisServer::launch(const std::vector<std::string>& more, bool waits) {
  const std::string file = program(chosen);
  if (file.empty() || port_ == 0) return false;
  std::vector<std::string> arguments = {file,        "--port",    std::to_string(port_), "--bind",
                                        "127.0.0.1", "--dir",     directory(),           "--save",
                                        "",          "--logfile", directory() + "/log",  "--repl-diskless-sync-delay",
                                        "0"};
  arguments.insert(arguments.end(), options_.begin(), options_.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    if (arguments[i] == "--tls-port" && arguments[i + 1].empty()) arguments[i + 1] = std::to_string(tls_port_);
  }
  std::vector<char*> argv;
  for (const std::string& text : arguments) argv.push_back(const_cast<char*>(text.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(5);
    const int out = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(6);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (pid_ > 0 && std::chrono::steady_clock::now() < until) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;  // the port is taken, or an option is wrong
      return false;
    }
    const std::string answer = ask({"PING"});
    if (answer.starts_with("+PONG") || answer.starts_with("-NOAUTH") || (!waits && !answer.empty())) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(waits ? 20 : 1));
  }
  kill();
  return false;
}

std::string RedisServer::ask(const std::vector<std::string>& words) const {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval limit = {10, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port_));
  std::string answer(1 << 16, '\0');
  size_t got = 0;
  const auto exchange = [&](const std::vector<std::string>& asked) {
    const std::string text = resp_request(asked);
    if (::send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) return;
    const ssize_t bytes = ::recv(fd, answer.data(), answer.size(), 0);
    got = bytes > 0 ? static_cast<size_t>(bytes) : 0;
  };
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    if (!password.empty()) exchange({"AUTH", password});
    exchange(words);
  }
  ::close(fd);
  answer.resize(got);
  return answer;
}

void RedisServer::stop() {
  if (pid_ <= 0) return;
  thaw();
  ::kill(pid_, SIGTERM);
  for (int i = 0; i < 250; ++i) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kill();
}

void RedisServer::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void RedisServer::freeze() { signal_child(pid_, SIGSTOP); }
void RedisServer::thaw() { signal_child(pid_, SIGCONT); }

std::string RedisServer::log() const {
  std::ifstream file(directory() + "/log");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace kvbm::test
