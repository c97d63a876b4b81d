#include "node/event_loop.h"

#include <event2/event.h>

namespace kvbm::node {

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  event_base* base = ::event_base_new();
  if (base == nullptr) return Status(Code::io_error, "no event loop could be made");
  return std::unique_ptr<EventLoop>(new EventLoop(base));
}

EventLoop::~EventLoop() { ::event_base_free(base_); }

Status EventLoop::run_until(int fd) {
  const auto stop = [](evutil_socket_t, short, void* base) { ::event_base_loopbreak(static_cast<event_base*>(base)); };
  event* readable = fd < 0 ? nullptr : ::event_new(base_, fd, EV_READ, stop, base_);
  if (readable == nullptr) return {Code::io_error, "the end of the process cannot be waited for"};
  const bool ran = ::event_add(readable, nullptr) == 0 && ::event_base_dispatch(base_) >= 0;
  ::event_free(readable);
  return ran ? Status{} : Status{Code::io_error, "the event loop stopped"};
}

}  // namespace kvbm::node
