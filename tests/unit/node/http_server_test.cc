// Connections of the HTTP server: their number, their time limit, and that a page is answered at the limits too.
#include "node/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace kvbm::node::http_server_test {
namespace {

size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

class Guest {
 public:
  explicit Guest(const std::string& address, bool blocks = false) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | (blocks ? 0 : SOCK_NONBLOCK), 0);
    (void)::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to);
  }
  ~Guest() { ::close(fd_); }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  void say(const std::string& text) const { (void)!::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  void end_sending() const { (void)::shutdown(fd_, SHUT_WR); }
  [[nodiscard]] std::string hear() const {
    std::string out;
    std::array<char, 4096> some{};
    for (ssize_t n = 0; (n = ::recv(fd_, some.data(), some.size(), 0)) > 0;)
      out.append(some.data(), static_cast<size_t>(n));
    return out;
  }
  [[nodiscard]] bool ended() const {
    pollfd state{fd_, POLLIN, 0};
    char byte = 0;
    if (::poll(&state, 1, 0) != 1) return false;
    return (state.revents & (POLLHUP | POLLERR)) != 0 || ::recv(fd_, &byte, 1, MSG_PEEK) == 0;
  }

 private:
  int fd_ = -1;
};

class HttpServerTest : public testing::Test {
 protected:
  void SetUp() override {
    loop_ = EventLoop::create().value();
    server_ = HttpServer::listen(*loop_, "127.0.0.1:0", HttpServer::Reach::this_machine).value();
    server_->add("/page", [] { return HttpServer::Reply{200, "text/plain", "here it is\n"}; });
    server_->add("/large", [] { return HttpServer::Reply{200, "text/plain", std::string(kLarge, 'x')}; });
    stop_ = ::eventfd(0, EFD_CLOEXEC);
    thread_ = std::thread([this] { EXPECT_TRUE(loop_->run_until(stop_).ok()); });
    before_ = open_descriptors();
  }
  void TearDown() override {
    const uint64_t one = 1;
    ASSERT_EQ(::write(stop_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    thread_.join();
    server_.reset();  // with its open connections
    loop_.reset();    // which closes them
    ::close(stop_);
  }
  [[nodiscard]] std::string get() const {
    const Guest guest(server_->address(), true);
    guest.say("GET /page HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    return guest.hear();
  }

  static constexpr size_t kLarge = size_t{8} << 20;  // more than a socket holds

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HttpServer> server_;
  int stop_ = -1;
  std::thread thread_;
  size_t before_ = 0;
};

TEST_F(HttpServerTest, hundreds_who_ask_for_nothing_take_their_places_in_turn) {
  std::vector<std::unique_ptr<Guest>> guests;
  for (int i = 0; i < 300; ++i) guests.push_back(std::make_unique<Guest>(server_->address()));
  EXPECT_NE(get().find("here it is"), std::string::npos);
  EXPECT_LE(open_descriptors(), before_ + 300 + HttpServer::kMost);
  guests.clear();
  while (open_descriptors() > before_) std::this_thread::yield();  // the test's own limit ends it otherwise
  EXPECT_NE(get().find("here it is"), std::string::npos);
}

TEST_F(HttpServerTest, ends_while_all_places_are_taken) {
  std::vector<std::unique_ptr<Guest>> guests;
  for (size_t i = 0; i < 2 * HttpServer::kMost; ++i) guests.push_back(std::make_unique<Guest>(server_->address()));
  while (open_descriptors() < before_ + 3 * HttpServer::kMost) std::this_thread::yield();
  TearDown();
  for (const auto& guest : guests) {
    while (!guest->ended()) std::this_thread::yield();
  }
  SetUp();
}

TEST_F(HttpServerTest, a_connection_is_for_one_page) {
  const Guest guest(server_->address(), true);
  for (int i = 0; i < 3; ++i) guest.say("GET /page?x=y HTTP/1.1\r\nHost: x\r\n\r\n");
  const std::string all = guest.hear();
  EXPECT_EQ(all.find("HTTP/1.1 200 OK\r\n"), 0U) << all;
  EXPECT_EQ(all.find("here it is"), all.size() - 11) << all;
}

TEST_F(HttpServerTest, a_client_that_has_ended_its_sending_side_gets_the_whole_page) {
  const Guest guest(server_->address(), true);
  guest.say("GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
  guest.end_sending();
  const std::string all = guest.hear();
  EXPECT_EQ(all.size() - all.find("\r\n\r\n") - 4, kLarge);
}

TEST_F(HttpServerTest, a_request_with_a_body_is_refused) {
  const Guest guest(server_->address(), true);
  guest.say("GET /page HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\nonly this");
  EXPECT_EQ(guest.hear().find("HTTP/1.1 413 "), 0U);
}

TEST_F(HttpServerTest, what_is_no_request_is_told_so) {
  const std::pair<const char*, const char*> cases[] = {{"\r\n\r\n", " 400 "},
                                                       {"GET\r\n\r\n", " 400 "},
                                                       {"GET /page\r\n\r\n", " 400 "},
                                                       {"GET /page FTP\r\n\r\n", " 400 "},
                                                       {" \r\n\r\n", " 400 "},
                                                       {"PUT /page HTTP/1.1\r\n\r\n", " 405 "},
                                                       {"GET /other HTTP/1.1\r\n\r\n", " 404 "}};
  for (const auto& [says, code] : cases) {
    const Guest guest(server_->address(), true);
    guest.say(says);
    EXPECT_NE(guest.hear().find(code), std::string::npos) << says;
  }
  const Guest large(server_->address(), true);
  large.say("GET /page HTTP/1.1\r\nX: " + std::string(HttpServer::kMaxHead, 'x'));
  (void)large.hear();  // the answer, or a reset: not all was read
  const Guest nothing(server_->address(), true);
  nothing.say(std::string(2000, '\0') + "\r\n\r\n");
  EXPECT_NE(nothing.hear().find(" 400 "), std::string::npos);
}

// A client that sends a byte now and then is never idle, and its connection is closed all the same.
TEST_F(HttpServerTest, a_head_that_comes_byte_by_byte_is_not_waited_for) {
  const Guest slow(server_->address());
  slow.say("GET /page HTTP/1.1\r\nHost: x\r\nX-Slow: ");
  while (!slow.ended()) {
    slow.say("x");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  EXPECT_NE(get().find("here it is"), std::string::npos);
}

}  // namespace
}  // namespace kvbm::node::http_server_test
