// UCX's context and worker: the configuration, and the abilities of this machine.
//
// Never uses the process environment: options are set by ucp_config_modify, memory hooks are switched off in UCM's
// own settings before the first context, and UCX's log goes to the host. UCX's data sockets listen on every device
// from the moment the worker exists, so without named devices only the loopback device is opened.
#pragma once

#include <ucp/api/ucp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace kvbm::ucx {

struct WorkerOptions {
  std::string devices;     // empty = loopback, "all" = every device that UCX finds
  std::string transports;  // empty = every transport that UCX finds
  bool emulated_get = false;
  bool emulated_device = false;
};

// A resource of the context, "tcp" on "lo", and its memory domain.
struct Resource {
  std::string transport;
  std::string device;
  unsigned domain = 0;
};

class Worker {
 public:
  static Result<std::unique_ptr<Worker>> open(const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  ucp_worker_h handle() const { return worker_; }
  ucp_context_h context() const { return context_; }
  int fd() const { return fd_; }
  bool loopback_only() const { return loopback_only_; }
  bool can_get() const { return can_get_; }
  bool emulated_get() const { return emulated_get_; }
  // device_memory(): device memory may be given, and hardware moves it. knows_device_memory(): UCX tells it from host
  // memory.
  bool device_memory() const { return device_memory_; }
  bool knows_device_memory() const { return knows_device_memory_; }
  // Host memory stands for device memory.
  bool emulated_device() const { return emulated_device_; }
  // Memory domains of network cards, one bit each.
  uint64_t cards() const { return cards_; }
  const std::string& description() const { return description_; }

 private:
  Worker() = default;
  Status open_context(const WorkerOptions& options);
  Status open_worker();
  void ask_device_memory();
  void describe(bool native);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int fd_ = -1;
  bool loopback_only_ = false;
  bool can_get_ = false;
  bool emulated_get_ = false;
  bool device_memory_ = false;
  bool knows_device_memory_ = false;
  bool emulated_device_ = false;
  uint64_t cards_ = 0;
  std::string description_;
};

// Returns the text of one of UCX's print functions: in 1.13 there is no other way to query what UCX found.
template <class Print>
std::string printed(Print&& print) {
  char* text = nullptr;
  size_t size = 0;
  FILE* stream = ::open_memstream(&text, &size);
  if (stream == nullptr) return {};
  print(stream);
  std::fclose(stream);
  std::string out(text, size);
  std::free(text);
  return out;
}

}  // namespace kvbm::ucx
