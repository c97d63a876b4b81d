// Who is connected to the HTTP server, so that nobody takes it for himself: at most kMost connections, none for longer
// than kMostNs, however often it says a byte.
//
// With kMost of them no more are accepted until one has ended, or has had kTurnNs, which is a thousand times what a
// page takes: then all that had their turn are closed and the next are let in, in the order in which they came. So
// whoever asks for a page gets it after a flood of those that ask for nothing, within a turn for each kMost of them.
// Thread: the event loop's. While nobody is connected no timer runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/clock.h"
#include "base/status.h"

struct event;
struct event_base;
struct evconnlistener;
struct evhttp;
struct evhttp_connection;
struct evhttp_request;

namespace kvbm::node {

class HttpGuests {
 public:
  static constexpr size_t kMost = 64;
  static constexpr uint64_t kMostNs = 10'000'000'000;
  static constexpr uint64_t kTurnNs = 250'000'000;

  HttpGuests() = default;
  ~HttpGuests();  // after the server's
  HttpGuests(const HttpGuests&) = delete;
  HttpGuests& operator=(const HttpGuests&) = delete;

  // Before anybody connects. `listener` is one of `server`'s.
  Status watch(event_base* base, evhttp* server, evconnlistener* listener);
  // Before the server is freed: its listeners go first, and then who is connected.
  void stop() noexcept;

 private:
  static int begins(evhttp_request* request, void* self);
  static void ended(evhttp_connection* connection, void* self);
  static void time(int fd, short what, void* self);
  void add(evhttp_connection* connection);
  void look_again();
  void accept(bool on);

  const SystemClock clock_;
  std::map<evhttp_connection*, uint64_t> since_;
  event* timer_ = nullptr;
  evconnlistener* listener_ = nullptr;
  bool accepting_ = true;
};

}  // namespace kvbm::node
