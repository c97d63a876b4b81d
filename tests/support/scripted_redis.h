// A server in Redis' place that sends the answers of a test.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kvbm::test {

// Sends the answers that a test prescribes.
class ScriptedRedis {
 public:
  // Returns the answer to the received text that was not answered yet. "": waits for more; "hang up": closes.
  using Handler = std::function<std::string(std::string& text)>;

  explicit ScriptedRedis(Handler handler)
      : handler_(std::move(handler)), fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    ::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(fd_, 16);
    ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~ScriptedRedis() {
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] int port() const { return port_; }
  // Takes the words of one request off `text`; empty if the request is not complete.
  static std::vector<std::string> take(std::string& text) {
    std::vector<std::string> words;
    size_t at = text.find("\r\n");
    if (at == std::string::npos || text[0] != '*') return {};
    const int n = std::atoi(text.c_str() + 1);
    at += 2;
    for (int i = 0; i < n; ++i) {
      const size_t end = text.find("\r\n", at);
      if (end == std::string::npos) return {};
      const size_t bytes = static_cast<size_t>(std::atoi(text.c_str() + at + 1));
      if (text.size() < end + 4 + bytes) return {};
      words.push_back(text.substr(end + 2, bytes));
      at = end + 4 + bytes;
    }
    text.erase(0, at);
    return words;
  }

 private:
  void run() {
    std::vector<std::pair<int, std::string>> guests;
    for (bool listens = true; listens || !guests.empty();) {
      std::vector<pollfd> polled;
      for (const auto& guest : guests) polled.push_back({guest.first, POLLIN, 0});
      polled.push_back({fd_, POLLIN, 0});
      ::poll(polled.data(), polled.size(), -1);
      if (polled.back().revents != 0) {
        const int guest = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
        if (guest < 0) break;
        guests.emplace_back(guest, "");
      }
      for (size_t i = polled.size() - 1; i-- > 0;) {
        if (polled[i].revents == 0) continue;
        auto& [guest, text] = guests[i];
        char piece[4096];
        const ssize_t got = ::recv(guest, piece, sizeof piece, 0);
        bool goes = got <= 0;
        if (!goes) text.append(piece, static_cast<size_t>(got));
        while (!goes && !text.empty()) {
          const std::string answer = handler_(text);
          if (answer.empty()) break;
          goes = answer == "hang up" || ::send(guest, answer.data(), answer.size(), MSG_NOSIGNAL) < 0;
        }
        if (!goes) continue;
        ::close(guest);
        guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    for (const auto& guest : guests) ::close(guest.first);
  }

  Handler handler_;
  const int fd_;
  int port_ = 0;
  std::thread thread_;
};

// Replies of a server that stores nothing.
inline std::string usual(const std::vector<std::string>& words) {
  if (words[0] == "PING") return "+PONG\r\n";
  if (words[0] == "GETRANGE") return "$4\r\nkvbm\r\n";
  if (words[0] == "CLUSTER") return "-ERR This instance has cluster support disabled\r\n";
  if (words[0] == "ZREM" || words[0] == "UNLINK") return ":0\r\n";
  return "+OK\r\n";
}

}  // namespace kvbm::test
