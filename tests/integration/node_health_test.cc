// Ways to observe `kvbm node` from outside: pages over HTTP, the supervisor's socket, and the end by a signal.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/run_command.h"
#include "support/temp_dir.h"

namespace node_health_test {
namespace {

using nlohmann::json;

using kvbm::test::contains;
using kvbm::test::Ran;
using kvbm::test::run;

// `kvbm node --json` with its output read line by line.
class Daemon {
 public:
  explicit Daemon(std::vector<std::string> arguments, const std::string& notify = "") {
    int ends[2];
    if (::pipe(ends) != 0) return;
    arguments.insert(arguments.begin(), {"kvbm", "node", "--listen", "127.0.0.1:0", "--host", "8MiB", "--json"});
    pid_ = ::fork();
    if (pid_ == 0) {
      std::vector<char*> argv;
      for (std::string& argument : arguments) argv.push_back(argument.data());
      argv.push_back(nullptr);
      if (!notify.empty()) ::setenv("NOTIFY_SOCKET", notify.c_str(), 1);
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      ::execv(KVBM_COMMAND, argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    out_ = ::fdopen(ends[0], "r");
    first_ = json::parse(line(), nullptr, false);
  }
  ~Daemon() {
    if (pid_ > 0) (void)end(SIGKILL);
    if (out_ != nullptr) (void)std::fclose(out_);
  }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  std::string line() {
    std::array<char, 512> text{};
    return out_ != nullptr && std::fgets(text.data(), text.size(), out_) != nullptr ? text.data() : "";
  }
  [[nodiscard]] std::string value(const char* name) const {
    return first_.is_object() ? first_.value(name, std::string()) : "";
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  int end(int signal) {
    int status = 0;
    ::kill(pid_, signal);
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  FILE* out_ = nullptr;
  json first_;
};

// Returns the response to one request, head and body; "" if no server listens there.
std::string request(const std::string& address, const std::string& text) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return {};
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string out;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 &&
      ::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) {
    std::array<char, 4096> buffer{};
    for (ssize_t n = 0; (n = ::recv(fd, buffer.data(), buffer.size(), 0)) > 0;)
      out.append(buffer.data(), static_cast<size_t>(n));
  }
  ::close(fd);
  return out;
}

std::string get(const std::string& address, const std::string& path, const char* method = "GET") {
  return request(address, std::string(method) + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
}

TEST(NodeHealth, says_that_it_lives_and_serves_and_what_it_counts) {
  Daemon first({"--http", "127.0.0.1:0"});
  const std::string http = first.value("http");
  ASSERT_FALSE(http.empty());
  EXPECT_TRUE(contains(get(http, "/healthz"), "200"));
  EXPECT_TRUE(contains(get(http, "/readyz"), "nodes connected: 0 of 0"));
  const std::string metrics = get(http, "/metrics");
  EXPECT_TRUE(contains(metrics, "Content-Type: text/plain; version=0.0.4")) << metrics;
  EXPECT_TRUE(contains(metrics, "\nkvbm_tier_capacity_bytes{tier=\"0\"}")) << metrics;
  EXPECT_TRUE(contains(metrics, "kvbm_node_peers{state=\"ready\"} 0")) << metrics;
  const std::string pages[] = {get(http, "/peers"), get(http, "/tiers")};
  for (const std::string& page : pages) EXPECT_TRUE(contains(page, "Content-Type: application/json")) << page;
  const json tiers = json::parse(pages[1].substr(pages[1].find("\r\n\r\n")), nullptr, false);
  ASSERT_TRUE(tiers.is_array() && !tiers.empty()) << pages[1];
  EXPECT_EQ(tiers[0]["coding"]["setting"], "off");
  EXPECT_EQ(tiers[0]["coding"]["sealed"], false);
  // A put must show in the metrics.
  ASSERT_EQ(run("put --peer " + first.value("address") + " name /proc/version").exit_code, 0);
  EXPECT_FALSE(contains(get(http, "/metrics"), "kvbm_tier_blocks{tier=\"0\"} 0\n"));
}

TEST(NodeHealth, stats_shows_tiers_and_nodes_with_their_coding) {
  const kvbm::test::TempDir folder;
  Daemon first(
      {"--http", "127.0.0.1:0", "--disk", "64MiB", "--disk-path", folder.path() + "/disk", "--disk-codec", "auto"});
  ASSERT_FALSE(first.value("http").empty());
  Daemon second({"--peers", first.value("address"), "--http", "127.0.0.1:0", "--codec", "fast"});
  const std::string http = second.value("http");
  ASSERT_FALSE(http.empty());
  const Ran disk = run("stats --node " + first.value("http"));
  EXPECT_EQ(disk.exit_code, 0) << disk.text;
  EXPECT_TRUE(contains(disk.text, "auto: plain")) << disk.text;
  const auto stats = json::parse(run("stats --json --node " + first.value("http"), "").text, nullptr, false);
  ASSERT_TRUE(stats.is_object());
  EXPECT_EQ(stats["tiers"][1]["coding"]["setting"], "auto");
  EXPECT_EQ(stats["tiers"][1]["coding"]["mode"], "off");
  // Waits until the nodes are connected.
  Ran links;
  for (int tries = 0; tries < 2000 && !contains(links.text, "ready"); ++tries) links = run("stats --node " + http);
  EXPECT_TRUE(contains(links.text, first.value("address"))) << links.text;
  EXPECT_TRUE(contains(links.text, "fast")) << links.text;
  EXPECT_EQ(run("stats --node 127.0.0.1:9400.5").exit_code, 2);
  const Ran nobody = run("stats --timeout 5 --node 127.0.0.1:1");
  EXPECT_EQ(nobody.exit_code, 1) << nobody.text;
  EXPECT_TRUE(contains(nobody.text, "127.0.0.1:1") && contains(nobody.text, "--http")) << nobody.text;
}

TEST(NodeHealth, gives_no_other_page_and_takes_nothing) {
  Daemon node({"--http", "127.0.0.1:0"});
  const std::string http = node.value("http");
  EXPECT_TRUE(contains(get(http, "/"), "404"));
  EXPECT_TRUE(contains(get(http, "/metrics/../etc"), "404"));
  const std::string nope = get(http, "/nope");
  for (const char* page : {"/healthz", "/readyz", "/metrics", "/peers", "/tiers"}) {
    EXPECT_TRUE(contains(nope, page)) << page << ": " << nope;
  }
  EXPECT_FALSE(contains(get(http, "/healthz", "POST"), "200"));
  EXPECT_FALSE(contains(get(http, "/healthz", "DELETE"), "200"));
  const std::string head = get(http, "/healthz", "HEAD");
  EXPECT_TRUE(contains(head, "200") && contains(head, "Content-Length: 3") && !contains(head, "ok\n")) << head;
  EXPECT_FALSE(contains(request(http, "GET /healthz HTTP/1.1\r\nx: " + std::string(100'000, 'y') + "\r\n\r\n"), "200"));
  (void)request(http, std::string(2000, '\0') + "\r\n\r\n");
  EXPECT_TRUE(contains(get(http, "/healthz"), "200 OK")) << "what came before has hurt it";
}

size_t descriptors_of(pid_t pid) {
  const std::filesystem::directory_iterator all("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// A connection that sends some bytes, and reads nothing.
class Guest {
 public:
  Guest(const std::string& address, const std::string& says) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to);
    said_ = says;
    go_on();
  }
  ~Guest() { ::close(fd_); }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;
  // Sends the bytes that are still unsent: a guest that waits to be accepted could not send them.
  void go_on(const std::string& more = "") {
    said_ += more;
    const ssize_t n = said_.empty() ? 0 : ::send(fd_, said_.data(), said_.size(), MSG_NOSIGNAL);
    if (n > 0) said_.erase(0, static_cast<size_t>(n));
  }
  // Returns whether the server has closed the connection.
  [[nodiscard]] bool ended() const {
    pollfd state{fd_, POLLIN, 0};
    char byte = 0;
    if (::poll(&state, 1, 0) != 1) return false;
    if ((state.revents & (POLLHUP | POLLERR)) != 0) return true;
    return ::recv(fd_, &byte, 1, MSG_PEEK) == 0;
  }

 private:
  int fd_ = -1;
  std::string said_;
};

// Hundreds of idle guests. Each kind in turn takes all places, while a page and a file that another node puts still
// come through. When they are gone the node has as many descriptors as before.
TEST(NodeHealth, hundreds_who_ask_for_nothing_keep_neither_a_page_nor_a_node_out) {
  Daemon node({"--http", "127.0.0.1:0"});
  const std::string http = node.value("http");
  ASSERT_FALSE(http.empty());
  const size_t before = descriptors_of(node.pid());
  const std::pair<const char*, std::string> kinds[] = {
      {"nothing", ""},
      {"half a head", "GET /metrics HTTP/1.1\r\nHost: x\r\nX-Half: "},
      {"a body that does not come", "GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nonly this"},
      {"pages that it does not read", "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"}};
  for (const auto& [kind, says] : kinds) {
    SCOPED_TRACE(kind);
    std::vector<std::unique_ptr<Guest>> guests;
    for (int i = 0; i < 300; ++i) guests.push_back(std::make_unique<Guest>(http, says));
    EXPECT_TRUE(contains(get(http, "/healthz"), "200 OK"));
    EXPECT_LT(descriptors_of(node.pid()), before + 80) << "it takes more of them than it says";
    EXPECT_EQ(run("put --peer " + node.value("address") + " name /proc/version").exit_code, 0);
    EXPECT_TRUE(contains(get(http, "/metrics"), "kvbm_node_peers"));
  }
  while (descriptors_of(node.pid()) > before) ::usleep(10'000);  // the test's own limit ends it otherwise
}

// A guest that sends a byte now and then is never silent, and is closed all the same.
TEST(NodeHealth, a_head_that_comes_byte_by_byte_is_not_waited_for) {
  Daemon node({"--http", "127.0.0.1:0"});
  const std::string http = node.value("http");
  ASSERT_FALSE(http.empty());
  Guest slow(http, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ");
  while (!slow.ended()) {
    slow.go_on("x");
    ::usleep(200'000);
  }
  EXPECT_TRUE(contains(get(http, "/healthz"), "200 OK"));
}

TEST(NodeHealth, listens_on_this_machine_alone_unless_told_otherwise) {
  for (const char* address : {"0.0.0.0:0", "[::]:0", "10.1.2.3:9400"}) {
    const Ran refused = run(std::string("node --listen 127.0.0.1:0 --http ") + address);
    EXPECT_EQ(refused.exit_code, 2) << address;
    EXPECT_TRUE(contains(refused.text, "--http-anywhere")) << refused.text;
  }
  for (const char* address : {"nonsense", "127.0.0.1", "localhost:1", "127.0.0.1:", "127.0.0.1:99999", ":9400"}) {
    const Ran refused = run(std::string("node --listen 127.0.0.1:0 --http ") + address);
    EXPECT_EQ(refused.exit_code, 2) << address << refused.text;
    EXPECT_TRUE(contains(refused.text, "127.0.0.1:9400")) << refused.text;
  }
  Daemon everybody({"--http", "0.0.0.0:0", "--http-anywhere"});
  EXPECT_TRUE(contains(everybody.value("http"), "0.0.0.0:"));
  Daemon first({"--http", "127.0.0.1:0"});
  const Ran second = run("node --listen 127.0.0.1:0 --http " + first.value("http"));
  EXPECT_NE(second.exit_code, 0);
  EXPECT_TRUE(contains(second.text, first.value("http"))) << second.text;
}

TEST(NodeHealth, ends_clean_and_at_once_when_it_is_asked_to) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Daemon node({"--http", "127.0.0.1:0"});
    ASSERT_FALSE(node.value("http").empty());
    const int status = node.end(signal);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << signal;
    EXPECT_TRUE(json::parse(node.line(), nullptr, false).value("ended", false));
  }
}

TEST(NodeHealth, tells_its_supervisor_when_it_is_ready_and_when_it_stops) {
  const kvbm::test::TempDir folder;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::string path = folder.path() + "/notify";
  ASSERT_LT(path.size(), sizeof name.sun_path);
  path.copy(name.sun_path, path.size());
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  const auto next = [fd] {
    pollfd ready{fd, POLLIN, 0};
    std::array<char, 256> text{};
    const ssize_t n = ::poll(&ready, 1, 60'000) == 1 ? ::recv(fd, text.data(), text.size(), 0) : 0;
    return std::string(text.data(), n > 0 ? static_cast<size_t>(n) : 0);
  };
  Daemon node({}, path);
  const std::string ready = next();
  EXPECT_TRUE(contains(ready, "READY=1\n")) << ready;
  EXPECT_TRUE(contains(ready, node.value("address"))) << ready;
  const int status = node.end(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(next(), "STOPPING=1");
  ::close(fd);
}

}  // namespace
}  // namespace node_health_test
