// Reads pages from servers that are no nodes, send too much, or send nothing.
#include "node/http_client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/io/fd.h"
#include "node/node_stats.h"

namespace kvbm::node::http_client_test {
namespace {

constexpr uint64_t kLong = 60'000'000'000;

// Binds the socket to a port of the system's choice on loopback; the address.
std::string bind_to_loopback(const Fd& fd) {
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof here;
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&here), sizeof here), 0);
  EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&here), &size), 0);
  return "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
}

// Sends each client the answer `says`, one client after the other. If it is empty, sends none and keeps the connection.
class Server {
 public:
  explicit Server(std::string says) : says_(std::move(says)) {
    address_ = bind_to_loopback(listener_);
    EXPECT_EQ(::listen(listener_.get(), 8), 0);
    if (!says_.empty()) thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    (void)::shutdown(listener_.get(), SHUT_RDWR);  // ends accept()
    if (thread_.joinable()) thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  void serve() const {
    for (;;) {
      const Fd guest(::accept(listener_.get(), nullptr, nullptr));
      if (!guest) return;
      std::array<char, 1024> request{};
      (void)!::recv(guest.get(), request.data(), request.size(), 0);
      for (size_t said = 0; said < says_.size();) {
        const ssize_t n = ::send(guest.get(), says_.data() + said, says_.size() - said, MSG_NOSIGNAL);
        if (n <= 0) break;
        said += static_cast<size_t>(n);
      }
    }
  }

  const std::string says_;
  const Fd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::string address_;
  std::thread thread_;
};

std::string answer(const std::string& body) { return "HTTP/1.1 200 OK\r\nContent-Type: x\r\n\r\n" + body; }

TEST(HttpClient, gets_the_body_of_a_page) {
  const Server server(answer("one\r\n\r\ntwo"));
  const auto body = http_get(server.address(), "/page", kLong);
  ASSERT_TRUE(body.ok()) << body.status().message();
  EXPECT_EQ(body.value(), "one\r\n\r\ntwo");
}

TEST(HttpClient, says_what_is_wrong_with_whoever_answers) {
  const std::pair<std::string, Code> cases[] = {
      {"HTTP/1.1 404 Not Found\r\n\r\n", Code::unsupported}, {"HTTP/1.1 2000 OK\r\n\r\n", Code::unsupported},
      {"HTTP/1.1\r\n\r\nan empty line", Code::damaged},      {"HTTP/1.1 200 OK\r\nhalf a head", Code::damaged},
      {"220 mail.example.org ESMTP\r\n", Code::damaged},     {answer(std::string(kMostPageBytes, 'x')), Code::damaged},
  };
  for (const auto& [says, code] : cases) {
    const Server server(says);
    const auto body = http_get(server.address(), "/tiers", kLong);
    EXPECT_EQ(body.status().code(), code) << says.substr(0, 40);
    EXPECT_NE(body.status().message().find(server.address()), std::string::npos);
  }
}

TEST(HttpClient, waits_no_longer_than_it_was_told) {
  const Server silent("");
  EXPECT_EQ(http_get(silent.address(), "/tiers", 1'000'000).status().code(), Code::deadline);
}

TEST(HttpClient, refuses_what_is_no_address_and_says_that_nobody_listens) {
  EXPECT_EQ(http_get("somewhere", "/", kLong).status().code(), Code::invalid_argument);
  // The port is bound, so that no other process gets it, but does not listen.
  const Fd nobody(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(http_get(bind_to_loopback(nobody), "/", kLong).status().code(), Code::owner_gone);
}

TEST(NodeStats, shows_rows_of_another_version_as_far_as_they_go) {
  for (const char* page : {"", "[", "{}", "[1]", "[[]]", "[null]"}) {
    const Server server(answer(page));
    EXPECT_EQ(read_node_stats(server.address(), kLong).status().code(), Code::damaged) << page;
  }
  const Server server(answer(R"([{"tier": 1, "blocks": "many", "used_bytes": -1, "state": 3, "later": {}}, {}])"));
  const auto stats = read_node_stats(server.address(), kLong);
  ASSERT_TRUE(stats.ok()) << stats.status().message();
  EXPECT_EQ(stats.value()["tiers"].size(), 2U);
  EXPECT_NE(node_stats_text(stats.value()).find("0 B"), std::string::npos);
}

}  // namespace
}  // namespace kvbm::node::http_client_test
