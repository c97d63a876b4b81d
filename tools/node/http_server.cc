#include "node/http_server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <event2/util.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

namespace kvbm::node {

namespace {

constexpr int kSilentSeconds = 5;
constexpr int kBacklog = 128;

// A numeric address, parsed.
struct Place {
  std::string host;
  uint16_t port = 0;
  bool this_machine = false;
};

Place place_of(const sockaddr_storage& address) {
  Place out;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(address);
    out.port = ntohs(six.sin6_port);
    out.this_machine = IN6_IS_ADDR_LOOPBACK(&six.sin6_addr);
    (void)::evutil_inet_ntop(AF_INET6, &six.sin6_addr, text.data(), text.size());
  } else {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    out.port = ntohs(four.sin_port);
    out.this_machine = (ntohl(four.sin_addr.s_addr) >> 24) == 127;
    (void)::evutil_inet_ntop(AF_INET, &four.sin_addr, text.data(), text.size());
  }
  out.host = text.data();
  return out;
}

Result<Place> parse(const std::string& text, sockaddr_storage& address, int& length) {
  const size_t colon = std::min(text.rfind(':'), text.size());
  const std::string host = text.substr(0, colon);
  uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + std::min(colon + 1, text.size()), end, port);
  const bool numbered = error == std::errc() && at == end;
  // The library rejects a port of 0.
  if (!numbered || ::evutil_parse_sockaddr_port(host.c_str(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Status(Code::bad_config, "--http wants a numeric address and a port, such as 127.0.0.1:9400", text);
  }
  if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  }
  return place_of(address);
}

const char* name_of(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}


}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(EventLoop& loop, const std::string& address, Reach reach) {
  sockaddr_storage wanted{};
  int length = sizeof wanted;
  const auto parsed = parse(address, wanted, length);
  if (!parsed.ok()) return parsed.status();
  if (reach == Reach::this_machine && !parsed.value().this_machine) {
    return Status(Code::bad_config, "--http is open to other machines and asks for no password",
                  address + ": listen on 127.0.0.1, or add --http-anywhere");
  }
  std::unique_ptr<HttpServer> made(new HttpServer(loop.base()));
  made->timer_ = ::event_new(loop.base(), -1, 0, &HttpServer::time, made.get());
  if (made->timer_ == nullptr) return Status(Code::no_memory, "no HTTP server could be made");
  made->listener_ =
      ::evconnlistener_new_bind(loop.base(), &HttpServer::accepted, made.get(),
                                LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE, kBacklog,
                                reinterpret_cast<sockaddr*>(&wanted), length);
  if (made->listener_ == nullptr) {
    const int error = errno;
    return Status(error == EADDRINUSE ? Code::in_use : Code::io_error, "--http cannot listen there",
                  address + ": " + std::strerror(error));
  }
  sockaddr_storage got{};
  socklen_t size = sizeof got;
  (void)::getsockname(::evconnlistener_get_fd(made->listener_), reinterpret_cast<sockaddr*>(&got), &size);
  const Place here = place_of(got);
  made->address_ = (got.ss_family == AF_INET6 ? "[" + here.host + "]" : here.host) + ":" + std::to_string(here.port);
  return made;
}

HttpServer::~HttpServer() {
  if (listener_ != nullptr) ::evconnlistener_free(listener_);
  for (const auto& [stream, guest] : guests_) ::bufferevent_free(stream);
  if (timer_ != nullptr) ::event_free(timer_);
}

// ---- One connection ----

void HttpServer::accepted(evconnlistener*, int fd, sockaddr*, int, void* self) {
  auto& server = *static_cast<HttpServer*>(self);
  bufferevent* const stream = ::bufferevent_socket_new(server.base_, fd, BEV_OPT_CLOSE_ON_FREE);
  if (stream == nullptr) {
    (void)::evutil_closesocket(fd);
    return;
  }
  server.guests_[stream].since_ns = server.clock_.now_ns();
  const timeval silence{kSilentSeconds, 0};
  (void)::bufferevent_set_timeouts(stream, &silence, &silence);
  ::bufferevent_setwatermark(stream, EV_READ, 0, kMaxHead);
  ::bufferevent_setcb(stream, &HttpServer::readable, &HttpServer::written, &HttpServer::happened, self);
  (void)::bufferevent_enable(stream, EV_READ);
  server.look_again();
}

void HttpServer::readable(bufferevent* stream, void* self) {
  auto& server = *static_cast<HttpServer*>(self);
  Guest& guest = server.guests_[stream];
  evbuffer* const input = ::bufferevent_get_input(stream);
  if (guest.answered) {
    (void)::evbuffer_drain(input, ::evbuffer_get_length(input));
    return;
  }
  std::string head(std::min(::evbuffer_get_length(input), kMaxHead), '\0');
  (void)::evbuffer_copyout(input, head.data(), head.size());
  const std::string answer = server.answer_to(head);
  if (answer.empty()) return;
  guest.answered = true;
  (void)::evbuffer_drain(input, ::evbuffer_get_length(input));
  if (::bufferevent_write(stream, answer.data(), answer.size()) != 0) server.drop(stream);
}

std::string HttpServer::answer_to(const std::string& head) const {
  const size_t end = head.find("\r\n\r\n");
  if (end == std::string::npos && head.size() < kMaxHead) return {};
  const size_t method_end = head.find(' ');
  const size_t path_end = head.find(' ', std::min(method_end, head.size() - 1) + 1);
  const std::string method = head.substr(0, method_end);
  Reply reply;
  if (end == std::string::npos) {
    reply = {431, "text/plain; charset=utf-8", "more than 8 KiB of head\n"};
  } else if (method_end > end || path_end > end || head.compare(path_end + 1, 7, "HTTP/1.") != 0) {
    reply = {400, "text/plain; charset=utf-8", "this is no request of HTTP/1\n"};
  } else if (method != "GET" && method != "HEAD") {
    reply = {405, "text/plain; charset=utf-8", "pages are read here, by GET and HEAD\n"};
  } else {
    const std::string target = head.substr(method_end + 1, path_end - method_end - 1);
    const auto page = pages_.find(target.substr(0, target.find('?')));
    reply = page != pages_.end()
                ? page->second()
                : Reply{404, "text/plain; charset=utf-8", listing()};
  }
  return "HTTP/1.1 " + std::to_string(reply.code) + " " + name_of(reply.code) + "\r\nContent-Type: " + reply.type +
         "\r\nContent-Length: " + std::to_string(reply.body.size()) +
         "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n" + (method == "HEAD" ? "" : reply.body);
}

std::string HttpServer::listing() const {
  std::string text = "there are";
  for (const auto& [path, page] : pages_) text.append(text.ends_with("are") ? " " : ", ").append(path);
  return text + "\n";
}

void HttpServer::written(bufferevent* stream, void* self) {
  auto& server = *static_cast<HttpServer*>(self);
  if (server.guests_[stream].answered) server.drop(stream);
}

// Handles the end of input, an error, or silence. A client that has asked and closed its sending side still gets the
// answer.
void HttpServer::happened(bufferevent* stream, short what, void* self) {
  auto& server = *static_cast<HttpServer*>(self);
  const bool waits = server.guests_[stream].answered && ::evbuffer_get_length(::bufferevent_get_output(stream)) != 0;
  if ((what & BEV_EVENT_EOF) != 0 && (what & BEV_EVENT_ERROR) == 0 && waits) return;
  server.drop(stream);
}

void HttpServer::drop(bufferevent* stream) {
  guests_.erase(stream);
  ::bufferevent_free(stream);
  look_again();
}

// ---- Limits of connections ----

// Accepts again if there is space, and sets the timer for the next check.
void HttpServer::look_again() {
  accept(guests_.size() < kMost);
  if (guests_.empty()) {
    (void)::event_del(timer_);
    return;
  }
  uint64_t oldest = UINT64_MAX;
  for (const auto& [stream, guest] : guests_) oldest = std::min(oldest, guest.since_ns);
  const uint64_t due = oldest + (accepting_ ? kMostNs : kTurnNs);
  const uint64_t now = clock_.now_ns();
  const uint64_t wait_us = due > now ? (due - now) / 1000 + 1 : 0;
  const timeval wait{static_cast<time_t>(wait_us / 1'000'000), static_cast<suseconds_t>(wait_us % 1'000'000)};
  (void)::event_add(timer_, &wait);
}

void HttpServer::accept(bool on) {
  if (on == accepting_) return;
  accepting_ = on;
  (void)(on ? ::evconnlistener_enable(listener_) : ::evconnlistener_disable(listener_));
}

void HttpServer::time(int, short, void* self) {
  auto& server = *static_cast<HttpServer*>(self);
  const uint64_t allowed = server.accepting_ ? kMostNs : kTurnNs;
  const uint64_t now = server.clock_.now_ns();
  for (auto at = server.guests_.begin(); at != server.guests_.end();) {
    const auto guest = at++;
    if (now < guest->second.since_ns + allowed) continue;
    ::bufferevent_free(guest->first);
    server.guests_.erase(guest);
  }
  server.look_again();
}

}  // namespace kvbm::node
