#include "node/http_client.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>

#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "copy/tcp/address.h"

namespace kvbm::node {

namespace {

struct Release {
  void operator()(event_base* base) const { ::event_base_free(base); }
  void operator()(evhttp_connection* connection) const { ::evhttp_connection_free(connection); }
};

// One request, while it runs.
struct Exchange {
  event_base* base = nullptr;
  bool heard = false;  // any byte
  bool ended = false;
  int code = 0;  // 0: no answer
  std::string reason;
  std::string body;
  evhttp_request_error error = EVREQ_HTTP_EOF;
};

void on_input(evbuffer*, const evbuffer_cb_info* info, void* exchange) {
  if (info->n_added != 0) static_cast<Exchange*>(exchange)->heard = true;
}

void on_error(evhttp_request_error error, void* exchange) { static_cast<Exchange*>(exchange)->error = error; }

void on_end(evhttp_request* request, void* self) {
  auto& exchange = *static_cast<Exchange*>(self);
  exchange.ended = true;
  if (request != nullptr && ::evhttp_request_get_response_code(request) != 0) {
    exchange.code = ::evhttp_request_get_response_code(request);
    exchange.reason = ::evhttp_request_get_response_code_line(request);
    evbuffer* const body = ::evhttp_request_get_input_buffer(request);
    exchange.body.resize(::evbuffer_get_length(body));
    (void)::evbuffer_copyout(body, exchange.body.data(), exchange.body.size());
  }
  (void)::event_base_loopbreak(exchange.base);
}

}  // namespace

Result<std::string> http_get(const std::string& address, const std::string& path, uint64_t timeout_ns) {
  const SystemClock clock;
  const uint64_t deadline_ns = deadline_after(clock, timeout_ns);
  const auto to = copy::tcp::Address::parse(address);
  if (!to.ok()) return to.status();
  std::string host = to.value().text();
  host.resize(host.rfind(':'));
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);

  const std::unique_ptr<event_base, Release> base(::event_base_new());
  const std::unique_ptr<evhttp_connection, Release> connection(
      base ? ::evhttp_connection_base_new(base.get(), nullptr, host.c_str(), to.value().port()) : nullptr);
  Exchange exchange;
  exchange.base = base.get();
  evhttp_request* const request = connection ? ::evhttp_request_new(&on_end, &exchange) : nullptr;
  if (request == nullptr) return Status(Code::no_memory, "no HTTP request could be made");
  const timeval wait{static_cast<time_t>(timeout_ns / 1'000'000'000),
                     static_cast<suseconds_t>(timeout_ns % 1'000'000'000 / 1000)};
  ::evhttp_connection_set_timeout_tv(connection.get(), &wait);
  ::evhttp_connection_set_max_headers_size(connection.get(), kMostPageBytes);
  ::evhttp_connection_set_max_body_size(connection.get(), kMostPageBytes - 1);
  (void)::evbuffer_add_cb(::bufferevent_get_input(::evhttp_connection_get_bufferevent(connection.get())), &on_input,
                          &exchange);
  ::evhttp_request_set_error_cb(request, &on_error);
  evkeyvalq* const headers = ::evhttp_request_get_output_headers(request);
  (void)::evhttp_add_header(headers, "Host", address.c_str());
  (void)::evhttp_add_header(headers, "Connection", "close");
  if (::evhttp_make_request(connection.get(), request, EVHTTP_REQ_GET, path.c_str()) == 0) {
    (void)::event_base_loopexit(base.get(), &wait);
    (void)::event_base_dispatch(base.get());
  }

  if (exchange.code == 200) return std::move(exchange.body);
  if (exchange.code != 0) {
    return Status(Code::unsupported, "the page is not given",
                  address + path + ": " + std::to_string(exchange.code) + " " + exchange.reason);
  }
  if (!exchange.ended || clock.now_ns() >= deadline_ns) return Status(Code::deadline, "no answer in time", address);
  if (!exchange.heard) return Status(Code::owner_gone, "no server answers at this address", address);
  return Status(
      Code::damaged,
      exchange.error == EVREQ_HTTP_DATA_TOO_LONG ? "the answer is too long" : "that is no answer of a web server",
      address);
}

}  // namespace kvbm::node
