#include "node/http_guests.h"

#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>

#include <algorithm>
#include <array>
#include <new>

namespace kvbm::node {

HttpGuests::~HttpGuests() {
  if (timer_ != nullptr) ::event_free(timer_);
}

Status HttpGuests::watch(event_base* base, evhttp* server, evconnlistener* listener) {
  timer_ = ::event_new(base, -1, 0, &HttpGuests::time, this);
  if (timer_ == nullptr) return {Code::no_memory, "no HTTP server could be made"};
  listener_ = listener;
  ::evhttp_set_newreqcb(server, &HttpGuests::begins, this);
  return {};
}

void HttpGuests::stop() noexcept { listener_ = nullptr; }

// Called when a connection is made and when one is ready for its next request.
int HttpGuests::begins(evhttp_request* request, void* self) {
  auto& guests = *static_cast<HttpGuests*>(self);
  evhttp_connection* const connection = ::evhttp_request_get_connection(request);
  if (guests.since_.count(connection) != 0) return 0;
  try {
    guests.add(connection);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return 0;
}

void HttpGuests::add(evhttp_connection* connection) {
  since_.emplace(connection, clock_.now_ns());
  ::evhttp_connection_set_closecb(connection, &HttpGuests::ended, this);
  look_again();
}

void HttpGuests::ended(evhttp_connection* connection, void* self) {
  auto& guests = *static_cast<HttpGuests*>(self);
  if (guests.since_.erase(connection) != 0) guests.look_again();
}

// Accepts again where there is room, and wakes when the next one must be looked at.
void HttpGuests::look_again() {
  accept(since_.size() < kMost);
  if (since_.empty()) {
    (void)::event_del(timer_);
    return;
  }
  uint64_t oldest = UINT64_MAX;
  for (const auto& [connection, since] : since_) oldest = std::min(oldest, since);
  const uint64_t due = oldest + (accepting_ ? kMostNs : kTurnNs);
  const uint64_t now = clock_.now_ns();
  const uint64_t wait_us = due > now ? (due - now) / 1000 + 1 : 0;
  const timeval wait{static_cast<time_t>(wait_us / 1'000'000), static_cast<suseconds_t>(wait_us % 1'000'000)};
  (void)::event_add(timer_, &wait);
}

void HttpGuests::accept(bool on) {
  if (on == accepting_ || listener_ == nullptr) return;
  accepting_ = on;
  (void)(on ? ::evconnlistener_enable(listener_) : ::evconnlistener_disable(listener_));
}

void HttpGuests::time(int, short, void* self) {
  auto& guests = *static_cast<HttpGuests*>(self);
  const uint64_t allowed = guests.accepting_ ? kMostNs : kTurnNs;
  const uint64_t now = guests.clock_.now_ns();
  std::array<evhttp_connection*, kMost> over{};
  size_t n = 0;
  for (const auto& [connection, since] : guests.since_) {
    if (now >= since + allowed && n < over.size()) over[n++] = connection;
  }
  // Each says through ended() that it is gone.
  for (size_t i = 0; i < n; ++i) ::evhttp_connection_free(over[i]);
  guests.look_again();
}

}  // namespace kvbm::node
