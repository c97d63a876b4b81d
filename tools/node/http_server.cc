#include "node/http_server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
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
constexpr timeval kTick{0, 25'000};
// All methods that evhttp knows: the answer to those that are not served is this server's.
constexpr ev_uint16_t kMethods = EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT |
                                 EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE | EVHTTP_REQ_CONNECT |
                                 EVHTTP_REQ_PATCH;

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
  std::unique_ptr<HttpServer> made(new HttpServer());
  made->timer_ = ::event_new(loop.base(), -1, EV_PERSIST, &HttpServer::tick, made.get());
  made->http_ = ::evhttp_new(loop.base());
  if (made->timer_ == nullptr || made->http_ == nullptr) return Status(Code::no_memory, "no HTTP server could be made");
  // evhttp sets the callback of the listener, which accepts nothing before.
  evconnlistener* const listener = ::evconnlistener_new_bind(
      loop.base(), nullptr, nullptr, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE, kBacklog,
      reinterpret_cast<sockaddr*>(&wanted), length);
  if (listener == nullptr) {
    const int error = errno;
    return Status(error == EADDRINUSE ? Code::in_use : Code::io_error, "--http cannot listen there",
                  address + ": " + std::strerror(error));
  }
  ::evhttp_set_bevcb(made->http_, &HttpServer::connected, made.get());
  ::evhttp_set_gencb(made->http_, &HttpServer::asked, made.get());
  ::evhttp_set_allowed_methods(made->http_, kMethods);
  ::evhttp_set_max_headers_size(made->http_, kMaxHead);
  ::evhttp_set_max_body_size(made->http_, 0);
  ::evhttp_set_timeout(made->http_, kSilentSeconds);
  if (::evhttp_bind_listener(made->http_, listener) == nullptr) {
    ::evconnlistener_free(listener);
    return Status(Code::no_memory, "no HTTP server could be made");
  }
  made->listener_ = listener;
  sockaddr_storage got{};
  socklen_t size = sizeof got;
  (void)::getsockname(::evconnlistener_get_fd(listener), reinterpret_cast<sockaddr*>(&got), &size);
  const Place here = place_of(got);
  made->address_ = (got.ss_family == AF_INET6 ? "[" + here.host + "]" : here.host) + ":" + std::to_string(here.port);
  return made;
}

HttpServer::~HttpServer() {
  if (http_ != nullptr) ::evhttp_free(http_);  // with the listener, and the connections
  if (timer_ != nullptr) ::event_free(timer_);
}

// ---- One request ----

void HttpServer::asked(evhttp_request* request, void* self) {
  const Reply reply = static_cast<const HttpServer*>(self)->answer_to(request);
  evkeyvalq* const headers = ::evhttp_request_get_output_headers(request);
  (void)::evhttp_add_header(headers, "Content-Type", reply.type.c_str());
  (void)::evhttp_add_header(headers, "Content-Length", std::to_string(reply.body.size()).c_str());
  (void)::evhttp_add_header(headers, "Cache-Control", "no-store");
  (void)::evhttp_add_header(headers, "Connection", "close");
  if (::evhttp_request_get_command(request) != EVHTTP_REQ_HEAD) {
    (void)::evbuffer_add(::evhttp_request_get_output_buffer(request), reply.body.data(), reply.body.size());
  }
  bufferevent* const stream = ::evhttp_connection_get_bufferevent(::evhttp_request_get_connection(request));
  ::evhttp_send_reply(request, reply.code, nullptr, nullptr);
  // evhttp takes the end of input for the end of the connection. A client that has closed its sending side still gets
  // the answer.
  (void)::bufferevent_disable(stream, EV_READ);
}

HttpServer::Reply HttpServer::answer_to(evhttp_request* request) const {
  const evhttp_cmd_type method = ::evhttp_request_get_command(request);
  if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
    return {405, "text/plain; charset=utf-8", "pages are read here, by GET and HEAD\n"};
  }
  const char* const path = ::evhttp_uri_get_path(::evhttp_request_get_evhttp_uri(request));
  const auto page = pages_.find(path != nullptr ? path : "");
  return page != pages_.end() ? page->second() : Reply{404, "text/plain; charset=utf-8", listing()};
}

std::string HttpServer::listing() const {
  std::string text = "there are";
  for (const auto& [path, page] : pages_) text.append(text.ends_with("are") ? " " : ", ").append(path);
  return text + "\n";
}

// ---- Limits of connections ----

void HttpServer::Release::operator()(bufferevent* stream) const { (void)::bufferevent_decref(stream); }

// Makes the stream of a connection, and keeps a reference to it: evhttp does not tell when a connection ends.
bufferevent* HttpServer::connected(event_base* base, void* self) {
  auto& server = *static_cast<HttpServer*>(self);
  bufferevent* const stream = ::bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
  if (stream == nullptr) return nullptr;
  ::bufferevent_setwatermark(stream, EV_READ, 0, 2 * kMaxHead);
  ::bufferevent_incref(stream);
  server.remove_ended();
  server.guests_.push_back({std::unique_ptr<bufferevent, Release>(stream), server.clock_.now_ns()});
  server.accept(server.guests_.size() < kMost);
  if (::event_pending(server.timer_, EV_TIMEOUT, nullptr) == 0) (void)::event_add(server.timer_, &kTick);
  return stream;
}

void HttpServer::remove_ended() {
  std::erase_if(guests_, [](const Guest& guest) {
    bufferevent_event_cb callback = nullptr;  // evhttp's; none after it has freed the stream
    ::bufferevent_getcb(guest.stream.get(), nullptr, nullptr, &callback, nullptr);
    return callback == nullptr;
  });
}

void HttpServer::tick(int, short, void* self) {
  auto& server = *static_cast<HttpServer*>(self);
  const uint64_t allowed = server.accepting_ ? kMostNs : kTurnNs;
  const uint64_t now = server.clock_.now_ns();
  for (const Guest& guest : server.guests_) {
    if (now < guest.since_ns + allowed) break;  // the others came later
    ::bufferevent_trigger_event(guest.stream.get(), BEV_EVENT_READING | BEV_EVENT_TIMEOUT, 0);
  }
  server.remove_ended();
  server.accept(server.guests_.size() < kMost);
  if (server.guests_.empty()) (void)::event_del(server.timer_);
}

void HttpServer::accept(bool on) {
  if (on == accepting_) return;
  accepting_ = on;
  (void)(on ? ::evconnlistener_enable(listener_) : ::evconnlistener_disable(listener_));
}

}  // namespace kvbm::node
