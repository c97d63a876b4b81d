#include "node/http_server.h"

#include <event2/buffer.h>
#include <event2/http.h>
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
constexpr ev_ssize_t kMaxHead = 8192;
constexpr ev_ssize_t kMaxBody = 1024;

// What a numeric address says.
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

Result<Place> parse(const std::string& text) {
  sockaddr_storage address{};
  int length = sizeof address;
  const size_t colon = std::min(text.rfind(':'), text.size());
  const std::string host = text.substr(0, colon);
  uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data() + std::min(colon + 1, text.size()), end, port);
  const bool numbered = error == std::errc() && at == end;
  // The library takes a port of 0 for a mistake.
  if (!numbered || ::evutil_parse_sockaddr_port(host.c_str(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Status(Code::bad_config, "--http wants a numeric address and a port, such as 127.0.0.1:9400", text);
  }
  Place out = place_of(address);
  out.port = port;
  return out;
}

void answer(evhttp_request* request, const HttpServer::Reply& reply) {
  evbuffer* body = ::evbuffer_new();
  if (body == nullptr) {
    ::evhttp_send_error(request, HTTP_INTERNAL, nullptr);
    return;
  }
  evkeyvalq* headers = ::evhttp_request_get_output_headers(request);
  ::evhttp_add_header(headers, "Content-Type", reply.type.c_str());
  ::evhttp_add_header(headers, "Cache-Control", "no-store");
  if (::evhttp_request_get_command(request) == EVHTTP_REQ_HEAD) {
    ::evhttp_add_header(headers, "Content-Length", std::to_string(reply.body.size()).c_str());
  } else {
    ::evbuffer_add(body, reply.body.data(), reply.body.size());
  }
  ::evhttp_send_reply(request, reply.code, nullptr, body);
  ::evbuffer_free(body);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::listen(EventLoop& loop, const std::string& address, Reach reach) {
  const auto wanted = parse(address);
  if (!wanted.ok()) return wanted.status();
  const Place place = wanted.value();
  if (reach == Reach::this_machine && !place.this_machine) {
    return Status(Code::bad_config, "--http is open to other machines, and nobody is asked for a password",
                  address + ": listen on 127.0.0.1, or add --http-anywhere");
  }
  std::unique_ptr<HttpServer> made(new HttpServer());
  made->http_ = ::evhttp_new(loop.base());
  if (made->http_ == nullptr) return Status(Code::no_memory, "no HTTP server could be made");
  ::evhttp_set_allowed_methods(made->http_, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
  ::evhttp_set_max_headers_size(made->http_, kMaxHead);
  ::evhttp_set_max_body_size(made->http_, kMaxBody);
  ::evhttp_set_timeout(made->http_, kSilentSeconds);
  evhttp_bound_socket* bound = ::evhttp_bind_socket_with_handle(made->http_, place.host.c_str(), place.port);
  if (bound == nullptr) {
    const int error = errno;
    return Status(error == EADDRINUSE ? Code::in_use : Code::io_error, "--http cannot listen there",
                  address + ": " + std::strerror(error));
  }
  evconnlistener* const listener = ::evhttp_bound_socket_get_listener(bound);
  if (Status s = made->guests_.watch(loop.base(), made->http_, listener); !s.ok()) return s;
  sockaddr_storage got{};
  socklen_t length = sizeof got;
  (void)::getsockname(::evhttp_bound_socket_get_fd(bound), reinterpret_cast<sockaddr*>(&got), &length);
  const Place here = place_of(got);
  made->address_ = (got.ss_family == AF_INET6 ? "[" + here.host + "]" : here.host) + ":" + std::to_string(here.port);
  const auto nothing = [](evhttp_request* request, void*) {
    answer(request, {HTTP_NOTFOUND, "text/plain; charset=utf-8", "there are /healthz, /readyz and /metrics\n"});
  };
  ::evhttp_set_gencb(made->http_, nothing, nullptr);
  return made;
}

HttpServer::~HttpServer() {
  guests_.stop();
  if (http_ != nullptr) ::evhttp_free(http_);
}

void HttpServer::add(const char* path, Page page) {
  pages_.push_back(std::move(page));
  const auto serve = [](evhttp_request* request, void* made) { answer(request, (*static_cast<Page*>(made))()); };
  ::evhttp_set_cb(http_, path, serve, &pages_.back());
}

}  // namespace kvbm::node
