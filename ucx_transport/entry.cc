// The function table. No exception leaves it: only refused memory can throw.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "log.h"
#include "status.h"
#include "transport.h"

struct kvbm_transport {
  kvbm_transport_host_t host;
  kvbm::ucx::Transport* transport;  // NULL only while opening
  ~kvbm_transport() {
    delete transport;
    kvbm::ucx::stop_log(&host);
  }
};

namespace kvbm::ucx {

namespace {

void say(char* error, size_t size, const std::string& text) {
  if (error != nullptr && size != 0) std::snprintf(error, size, "%s", text.c_str());
}

template <class Body>
int32_t guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return value(Code::no_memory);
  }
}

template <class Body>
int32_t guarded(char* error, size_t size, Body&& body) noexcept {
  try {
    std::string text;
    const int32_t status = body(&text);
    if (status < 0) say(error, size, text);
    return status;
  } catch (...) {
    if (error != nullptr && size != 0) std::snprintf(error, size, "out of memory");
    return value(Code::no_memory);
  }
}

constexpr size_t kOldOptions = offsetof(kvbm_transport_options_t, flags);

int32_t read_options(const kvbm_transport_options_t* given, kvbm_transport_options_t* out, std::string* error) {
  if (given == nullptr || given->struct_size < kOldOptions) {
    *error = "the options are of a host that this module does not know";
    return value(Code::invalid_argument);
  }
  std::memcpy(out, given, std::min<size_t>(given->struct_size, sizeof *out));
  if ((out->flags & ~uint32_t{KVBM_TRANSPORT_EMULATE_GET | KVBM_TRANSPORT_EMULATE_DEVICE}) != 0) {
    *error = "the options ask for what this module does not know";
    return value(Code::unsupported);
  }
  if (out->peer_queue_bytes == 0 || out->peer_bulk_bytes == 0) {
    *error = "peer_queue_bytes and peer_bulk_bytes have to be more than 0";
    return value(Code::invalid_argument);
  }
  return 0;
}

int32_t open(const kvbm_transport_options_t* options, const kvbm_transport_host_t* host, kvbm_transport_t** out,
             char* error, size_t error_size) {
  return guarded(error, error_size, [&](std::string* text) {
    kvbm_transport_options_t read{};
    if (const int32_t refused = read_options(options, &read, text); refused != 0) return refused;
    if (host == nullptr || host->struct_size < sizeof *host || out == nullptr) {
      *text = "the host's table is of a version that this module does not know";
      return value(Code::invalid_argument);
    }
    std::unique_ptr<kvbm_transport> made(new kvbm_transport{*host, nullptr});
    start_log(&made->host);
    WorkerOptions worker_options;
    worker_options.devices = read.devices != nullptr ? read.devices : "";
    worker_options.transports = read.transports != nullptr ? read.transports : "";
    worker_options.emulated_get = (read.flags & KVBM_TRANSPORT_EMULATE_GET) != 0;
    worker_options.emulated_device = (read.flags & KVBM_TRANSPORT_EMULATE_DEVICE) != 0;
    auto worker = Worker::open(worker_options);
    if (!worker.ok()) {
      *text = worker.status().message();
      return value(worker.status().code());
    }
    made->transport =
        new Transport(made->host, {read.peer_queue_bytes, read.peer_bulk_bytes}, std::move(worker).value());
    if (const Status status = made->transport->start(); !status.ok()) {
      *text = status.message();
      return value(status.code());
    }
    *out = made.release();
    return 0;
  });
}

void close(kvbm_transport_t* transport) {
  (void)guarded([&] {
    delete transport;
    return 0;
  });
}

uint32_t features(const kvbm_transport_t* transport) {
  const Worker& worker = transport->transport->worker();
  return (worker.can_get() ? static_cast<uint32_t>(KVBM_TRANSPORT_GET) : 0U) |
         (worker.device_memory() ? static_cast<uint32_t>(KVBM_TRANSPORT_DEVICE) : 0U);
}

size_t describe(const kvbm_transport_t* transport, char* text, size_t size) {
  const std::string& all = transport->transport->worker().description();
  say(text, size, all);
  return all.size();
}

int fd(const kvbm_transport_t* transport) { return transport->transport->worker().fd(); }

int32_t arm(kvbm_transport_t* transport, uint64_t* within_ns) { return transport->transport->arm(within_ns); }

uint32_t progress(kvbm_transport_t* transport) {
  uint32_t moved = 1;
  (void)guarded([&] {
    moved = transport->transport->progress();
    return 0;
  });
  return moved;
}

int32_t listen(kvbm_transport_t* transport, const char* address, char* bound, size_t bound_size, char* error,
               size_t error_size) {
  return guarded(error, error_size, [&](std::string* text) {
    std::string where;
    const int32_t status = transport->transport->listen(address != nullptr ? address : "", &where, text);
    if (status == 0) say(bound, bound_size, where);
    return status;
  });
}

int32_t connect(kvbm_transport_t* transport, const char* address, kvbm_transport_peer_t* peer, char* error,
                size_t error_size) {
  return guarded(error, error_size, [&](std::string* text) {
    return transport->transport->connect(address != nullptr ? address : "", peer, text);
  });
}

int32_t admit(kvbm_transport_t* transport, kvbm_transport_peer_t peer) {
  return guarded([&] { return transport->transport->admit(peer); });
}

int32_t disconnect(kvbm_transport_t* transport, kvbm_transport_peer_t peer, int32_t flush) {
  return guarded([&] { return transport->transport->disconnect(peer, flush != 0); });
}

int32_t send(kvbm_transport_t* transport, kvbm_transport_peer_t peer, const void* bytes, size_t size) {
  return guarded([&] { return transport->transport->send(peer, bytes, size); });
}

int32_t post(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint64_t tag, void* to, uint64_t bytes,
             kvbm_transport_token_t token) {
  return guarded([&] { return transport->transport->post(peer, tag, to, bytes, token); });
}

int32_t push(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint64_t tag,
             const kvbm_transport_piece_t* pieces, size_t n_pieces, kvbm_transport_token_t token) {
  return guarded([&] { return transport->transport->push(peer, tag, pieces, n_pieces, token); });
}

int32_t cancel(kvbm_transport_t* transport, kvbm_transport_peer_t peer, kvbm_transport_token_t token) {
  return guarded([&] { return transport->transport->cancel(peer, token); });
}

int32_t add_memory(kvbm_transport_t* transport, void* data, uint64_t bytes, uint64_t* memory, void* key,
                   size_t* key_size) {
  if (!transport->transport->worker().can_get()) return value(Code::unsupported);
  if (data == nullptr || bytes == 0 || memory == nullptr || key == nullptr || key_size == nullptr) {
    return value(Code::invalid_argument);
  }
  return guarded([&] { return transport->transport->memory().add(data, bytes, memory, key, key_size); });
}

int32_t add_device_memory(kvbm_transport_t* transport, void* data, uint64_t bytes, uint64_t* memory) {
  if (!transport->transport->worker().device_memory()) return value(Code::unsupported);
  if (data == nullptr || bytes == 0 || memory == nullptr) return value(Code::invalid_argument);
  return guarded([&] { return transport->transport->memory().add_device(data, bytes, memory); });
}

int32_t remove_memory(kvbm_transport_t* transport, uint64_t memory) {
  return guarded([&] { return transport->transport->memory().remove(memory); });
}

int32_t get(kvbm_transport_t* transport, kvbm_transport_peer_t peer, void* to, uint64_t remote_address, const void* key,
            size_t key_size, uint64_t bytes, kvbm_transport_token_t token) {
  return guarded([&] { return transport->transport->get(peer, to, remote_address, key, key_size, bytes, token); });
}

constexpr kvbm_transport_ops_t kTable = {sizeof(kvbm_transport_ops_t),
                                         KVBM_TRANSPORT_ABI_VERSION,
                                         "ucx",
                                         "kvbm over UCX, built against " KVBM_UCX_BUILT_AGAINST,
                                         &open,
                                         &close,
                                         &features,
                                         &describe,
                                         &fd,
                                         &arm,
                                         &progress,
                                         &listen,
                                         &connect,
                                         &admit,
                                         &disconnect,
                                         &send,
                                         &post,
                                         &push,
                                         &cancel,
                                         &add_memory,
                                         &remove_memory,
                                         &get,
                                         &add_device_memory,
                                         nullptr};  // protect(): impossible, because a card reads and writes by itself

}  // namespace

}  // namespace kvbm::ucx

extern "C" __attribute__((visibility("default"))) const kvbm_transport_ops_t* kvbm_transport_entry(
    uint32_t host_abi_version, char* error, size_t error_size) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  ucp_get_version(&major, &minor, &patch);
  // UCX keeps its ABI within a major version; a library older than the headers may lack a call.
  if (major != UCP_API_MAJOR || minor < UCP_API_MINOR) {
    if (error != nullptr && error_size != 0) {
      std::snprintf(error, error_size, "UCX %u.%u.%u is loaded, and the module was built against %s", major, minor,
                    patch, KVBM_UCX_BUILT_AGAINST);
    }
    return nullptr;
  }
  if (host_abi_version != KVBM_TRANSPORT_ABI_VERSION) {
    if (error != nullptr && error_size != 0) {
      std::snprintf(error, error_size, "the module speaks version %u of the transport boundary, the host %u",
                    KVBM_TRANSPORT_ABI_VERSION, host_abi_version);
    }
    return nullptr;
  }
  return &kvbm::ucx::kTable;
}
