// Serves a few pages over HTTP for monitoring a node: GET and HEAD of fixed paths, without uploads or changes. It
// listens on this machine alone unless configured otherwise, as there is no authentication.
//
// libevent's evhttp parses requests and writes answers; it also refuses malformed requests, methods that it does not
// know, heads over kMaxHead, and bodies. A connection is for one page, and runs on the event loop's thread, where pages
// are made too. No client can block the server. A connection is closed after 5 s of silence.
//
// evhttp limits neither the number of connections nor the time of one that sends a byte now and then, so that is done
// here. Any connection is closed after kMostNs. At kMost connections no more are accepted until one has ended, or has
// had kTurnNs, a thousand times what a page takes. Then all that had their turn are closed, and the next are accepted,
// in the order of their arrival. Without connections no timer runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "node/event_loop.h"

struct bufferevent;
struct event;
struct evconnlistener;
struct evhttp;
struct evhttp_request;

namespace kvbm::node {

class HttpServer {
 public:
  static constexpr size_t kMost = 64;
  static constexpr uint64_t kMostNs = 10'000'000'000;
  static constexpr uint64_t kTurnNs = 250'000'000;
  static constexpr size_t kMaxHead = 8192;

  struct Reply {
    int code = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
  };
  using Page = std::function<Reply()>;
  enum class Reach : uint8_t { this_machine, everybody };

  // Listens on `address`, which is numeric, "127.0.0.1:9400" or "[::1]:9400"; port 0 takes a free one. bad_config for
  // an invalid address and, with Reach::this_machine, for addresses that other machines can reach; in_use.
  static Result<std::unique_ptr<HttpServer>> listen(EventLoop& loop, const std::string& address, Reach reach);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  void add(const char* path, Page page) { pages_[path] = std::move(page); }
  // Returns the address with the actual port.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }

 private:
  struct Release {
    void operator()(bufferevent* stream) const;
  };
  struct Guest {
    std::unique_ptr<bufferevent, Release> stream;
    uint64_t since_ns = 0;
  };

  HttpServer() = default;
  static bufferevent* connected(event_base* base, void* self);
  static void asked(evhttp_request* request, void* self);
  static void tick(int fd, short what, void* self);
  [[nodiscard]] Reply answer_to(evhttp_request* request) const;
  // Returns a list of the pages, as the answer for an unknown path.
  [[nodiscard]] std::string listing() const;
  void remove_ended();
  void accept(bool on);

  const SystemClock clock_;
  evhttp* http_ = nullptr;
  evconnlistener* listener_ = nullptr;  // evhttp's
  event* timer_ = nullptr;
  bool accepting_ = true;
  std::vector<Guest> guests_;  // in the order of their arrival
  std::string address_;
  std::map<std::string, Page> pages_;
};

}  // namespace kvbm::node
