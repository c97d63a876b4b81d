#include "support/s3_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
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
#include <vector>

#include "support/child_signal.h"

namespace kvbm::test {
namespace {

// A port that is free now. Another program may take it before the server does: then another port is tried.
int free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  int port = 0;
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
    port = ntohs(address.sin_port);
  }
  ::close(fd);
  return port;
}

}  // namespace

std::string S3Server::program(Kind kind) {
  const std::string name = kind == Kind::versitygw ? "versitygw" : "minio";
  std::vector<std::string> folders;
  std::istringstream path(::getenv("PATH") != nullptr ? ::getenv("PATH") : "");
  for (std::string folder; std::getline(path, folder, ':');) folders.push_back(folder);
  // Looks where `go install` puts programs.
  if (const char* bin = ::getenv("GOBIN")) folders.emplace_back(bin);
  if (const char* own = ::getenv("GOPATH")) folders.push_back(std::string(own) + "/bin");
  if (const char* home = ::getenv("HOME")) folders.push_back(std::string(home) + "/go/bin");
  for (const std::string& folder : folders) {
    const std::string file = folder + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

bool S3Server::start(Kind kind) {
  stop();
  kind_ = kind;
  std::error_code error;
  // Makes the bucket, which is a folder for both kinds of server.
  std::filesystem::create_directories(data() + "/" + bucket(), error);
  for (int tries = 0; tries < 5 && !error; ++tries) {
    port_ = free_port();
    if (launch()) return true;
  }
  return false;
}

bool S3Server::start_tls() {
  stop();
  is_tls_ = true;
  const std::string made =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=kvbm-test "
      "-addext subjectAltName=IP:127.0.0.1 -keyout '" +
      directory_.path() + "/key.pem' -out '" + certificate() + "' 2>/dev/null";
  return std::system(made.c_str()) == 0 && start(Kind::versitygw);
}

bool S3Server::start_again(bool with_data) {
  stop();
  if (!with_data) {
    std::error_code error;
    std::filesystem::remove_all(data(), error);
    std::filesystem::create_directories(data() + "/" + bucket(), error);
  }
  return launch();
}

bool S3Server::launch() {
  const std::string file = program(kind_);
  if (file.empty() || port_ == 0) return false;
  const std::string address = "127.0.0.1:" + std::to_string(port_);
  std::vector<std::string> arguments;
  if (kind_ == Kind::versitygw) {
    arguments = {file,     "--access", access_key(), "--secret", secret(),       "--region", region(),
                 "--port", address,    "--health",   "/health",  "--keep-alive", "--quiet"};
    if (is_tls_) arguments.insert(arguments.end(), {"--cert", certificate(), "--key", directory_.path() + "/key.pem"});
    arguments.insert(arguments.end(), {"posix", data()});
  } else {
    arguments = {file, "server", "--quiet", "--address", address, data()};
  }
  const std::vector<std::string> environment = {"PATH=/usr/bin:/bin",
                                                "HOME=" + directory_.path(),
                                                "MINIO_ROOT_USER=" + access_key(),
                                                "MINIO_ROOT_PASSWORD=" + secret(),
                                                "MINIO_REGION=" + region(),
                                                "MINIO_BROWSER=off",
                                                "MINIO_UPDATE=off"};
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (const std::string& text : arguments) argv.push_back(const_cast<char*>(text.c_str()));
  for (const std::string& text : environment) envp.push_back(const_cast<char*>(text.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  const std::string log = directory_.path() + "/log";
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(5);
    const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(out, STDERR_FILENO);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(6);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (pid_ > 0 && std::chrono::steady_clock::now() < until) {
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
      pid_ = -1;  // the port is taken
      return false;
    }
    if (answers()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kill();
  return false;
}

// Returns whether the server serves requests. minio calls itself ready while it still refuses all of them with 503;
// then it refuses those that are not signed with 403.
bool S3Server::answers() const {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const timeval second = {1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port_));
  std::string answer(512, '\0');
  ssize_t bytes = -1;
  const bool is_connected = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (is_connected && !is_tls_) {
    const std::string asked = std::string("GET ") + (kind_ == Kind::versitygw ? "/health" : "/" + bucket() + "/") +
                              " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    if (::send(fd, asked.data(), asked.size(), MSG_NOSIGNAL) > 0) bytes = ::recv(fd, answer.data(), answer.size(), 0);
  }
  ::close(fd);
  return is_tls_ ? is_connected : bytes > 12 && answer.compare(8, 4, kind_ == Kind::versitygw ? " 200" : " 403") == 0;
}

void S3Server::stop() {
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

void S3Server::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void S3Server::freeze() { signal_child(pid_, SIGSTOP); }
void S3Server::thaw() { signal_child(pid_, SIGCONT); }

std::string S3Server::log() const {
  std::ifstream file(directory_.path() + "/log");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace kvbm::test
