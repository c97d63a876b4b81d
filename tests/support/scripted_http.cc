#include "support/scripted_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace kvbm::test {

struct ScriptedHttp::State {
  Handler handler;
  int listener = -1;
  int port = 0;
  std::mutex mutex;
  std::condition_variable ended;
  bool is_ending = false;
  std::vector<int> connections;
  std::vector<std::thread> threads;
  std::vector<HttpRequest> requests;
  std::thread accepting;

  bool is_over() {
    const std::lock_guard<std::mutex> lock(mutex);
    return is_ending;
  }
  // Sleeps. Returns false if the server ends meanwhile.
  bool rest(std::chrono::milliseconds time) {
    std::unique_lock<std::mutex> lock(mutex);
    return !ended.wait_for(lock, time, [this] { return is_ending; });
  }
  void accept_all();
  void serve(int connection);
  bool answer(int connection, const HttpRequest& request);
};

namespace {

bool send_all(int connection, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(connection, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Takes one request out of the received bytes. Returns false if it is not complete yet.
bool take_request(std::string* come, HttpRequest* out) {
  const size_t end = come->find("\r\n\r\n");
  if (end == std::string::npos) return false;
  *out = HttpRequest();
  size_t at = come->find("\r\n");
  const std::string first = come->substr(0, at);
  const size_t blank = first.find(' ');
  out->method = first.substr(0, blank);
  out->target = first.substr(blank + 1, first.rfind(' ') - blank - 1);
  while (at < end) {
    const size_t next = come->find("\r\n", at + 2);
    const std::string line = come->substr(at + 2, next - at - 2);
    const size_t colon = line.find(':');
    if (colon != std::string::npos) {
      const size_t value = line.find_first_not_of(' ', colon + 1);
      out->headers[lower(line.substr(0, colon))] = value == std::string::npos ? "" : line.substr(value);
    }
    at = next;
  }
  const size_t body = static_cast<size_t>(std::strtoull(out->headers["content-length"].c_str(), nullptr, 10));
  if (come->size() < end + 4 + body) return false;
  out->body = come->substr(end + 4, body);
  come->erase(0, end + 4 + body);
  return true;
}

}  // namespace

ScriptedHttp::ScriptedHttp(Handler handler) : state_(std::make_shared<State>()) {
  state_->handler = std::move(handler);
  state_->listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(state_->listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(state_->listener, 128) != 0 ||
      ::getsockname(state_->listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    std::abort();
  }
  state_->port = ntohs(address.sin_port);
  state_->accepting = std::thread([state = state_] { state->accept_all(); });
}

ScriptedHttp::~ScriptedHttp() {
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->is_ending = true;
    for (const int connection : state_->connections) ::shutdown(connection, SHUT_RDWR);
  }
  state_->ended.notify_all();
  ::shutdown(state_->listener, SHUT_RDWR);
  state_->accepting.join();
  ::close(state_->listener);
  for (std::thread& thread : state_->threads) thread.join();
  for (const int connection : state_->connections) ::close(connection);
}

std::string ScriptedHttp::url() const { return "http://127.0.0.1:" + std::to_string(state_->port); }

std::vector<HttpRequest> ScriptedHttp::requests() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->requests;
}

void ScriptedHttp::State::accept_all() {
  while (true) {
    const int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) return;
    const std::lock_guard<std::mutex> lock(mutex);
    connections.push_back(connection);
    if (is_ending) ::shutdown(connection, SHUT_RDWR);
    threads.emplace_back([this, connection] { serve(connection); });
  }
}

void ScriptedHttp::State::serve(int connection) {
  std::string come;
  std::string buffer(1 << 16, '\0');
  HttpRequest request;
  while (true) {
    while (!take_request(&come, &request)) {
      const ssize_t bytes = ::recv(connection, buffer.data(), buffer.size(), 0);
      if (bytes <= 0) return;
      come.append(buffer.data(), static_cast<size_t>(bytes));
    }
    {
      const std::lock_guard<std::mutex> lock(mutex);
      requests.push_back(request);
    }
    if (!answer(connection, request)) break;
  }
  ::shutdown(connection, SHUT_RDWR);
}

bool ScriptedHttp::State::answer(int connection, const HttpRequest& request) {
  const HttpAnswer answer = handler(request);
  const long declared = answer.declared_bytes >= 0 ? answer.declared_bytes : static_cast<long>(answer.body.size());
  std::string head =
      "HTTP/1.1 " + std::to_string(answer.status) + " Scripted\r\nContent-Length: " + std::to_string(declared) + "\r\n";
  for (const auto& [name, value] : answer.headers) head += name + ": " + value + "\r\n";
  if (!send_all(connection, head + "\r\n")) return false;
  if (answer.end == HttpAnswer::End::drips) {
    for (const char c : answer.body) {
      if (!rest(std::chrono::milliseconds(20)) || !send_all(connection, std::string_view(&c, 1))) return false;
    }
    return true;
  }
  if (!send_all(connection, answer.body)) return false;
  while (answer.end == HttpAnswer::End::hangs) {
    if (!rest(std::chrono::hours(1))) return false;
  }
  return answer.end == HttpAnswer::End::keeps;
}

}  // namespace kvbm::test
