// A few pages over HTTP for whoever watches a node: GET and HEAD of fixed paths, nothing is uploaded, nothing is
// changed. On this machine alone unless told otherwise: there is no authentication.
//
// libevent's evhttp on the event loop's thread, where pages are made too. Bounds: 8 KiB of head, 1 KiB of body; a
// connection that is silent for 5 s is closed, and any after 10 s; 64 of them at once (http_guests.h).
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "node/event_loop.h"
#include "node/http_guests.h"

struct evhttp;

namespace kvbm::node {

class HttpServer {
 public:
  struct Reply {
    int code = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
  };
  using Page = std::function<Reply()>;
  enum class Reach : uint8_t { this_machine, everybody };

  // `address` is numeric, "127.0.0.1:9400" or "[::1]:9400"; port 0 takes a free one. bad_config for what is no address
  // and, with Reach::this_machine, for addresses that others can reach; in_use.
  static Result<std::unique_ptr<HttpServer>> listen(EventLoop& loop, const std::string& address, Reach reach);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void add(const char* path, Page page);
  // With the port that it got.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

 private:
  HttpServer() = default;

  HttpGuests guests_;
  evhttp* http_ = nullptr;
  std::string address_;
  std::deque<Page> pages_;  // evhttp has their addresses
};

}  // namespace kvbm::node
