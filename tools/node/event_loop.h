// The main loop of a daemon: sleeps until it is asked to end, and meanwhile serves what is registered with it
// (http_server.h). One thread; it costs nothing while idle.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"

struct event_base;

namespace kvbm::node {

class EventLoop {
 public:
  static Result<std::unique_ptr<EventLoop>> create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs until `fd` is readable.
  Status run_until(int fd);
  [[nodiscard]] event_base* base() noexcept { return base_; }

 private:
  explicit EventLoop(event_base* base) : base_(base) {}
  event_base* const base_;
};

}  // namespace kvbm::node
