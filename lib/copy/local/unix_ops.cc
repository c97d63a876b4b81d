// The local link's table (transport_abi.h).
#include <cstdio>
#include <cstring>
#include <new>

#include "copy/local/unix_transport.h"

namespace kvbm::copy::local {

namespace {

void explain(const Status& status, char* text, size_t size) noexcept {
  if (text == nullptr || size == 0) return;
  std::snprintf(text, size, "%s", status.message().c_str());
}

int32_t number(Code code) noexcept { return static_cast<int32_t>(code); }

// No exception leaves a table; the only possible one is refused memory.
template <class Body>
int32_t guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return number(Code::no_memory);
  }
}

int32_t open(const kvbm_transport_options_t* options, const kvbm_transport_host_t* host, kvbm_transport_t** out,
             char* error, size_t error_size) {
  return guarded([&] {
    auto made = UnixTransport::open(*options, *host);
    if (!made.ok()) {
      explain(made.status(), error, error_size);
      return number(made.status().code());
    }
    *out = reinterpret_cast<kvbm_transport_t*>(made.value().release());
    return 0;
  });
}

void close(kvbm_transport_t* transport) { delete &UnixTransport::of(transport); }

// Holds for every peer, with any options (peer_process.h).
uint32_t features(const kvbm_transport_t*) { return KVBM_TRANSPORT_OWN_USER; }

size_t describe(const kvbm_transport_t*, char* text, size_t size) {
  return static_cast<size_t>(
      std::snprintf(text, size, "sockets and shared memory of this host, protocol %u", kLinkVersion));
}

int fd(const kvbm_transport_t* transport) { return UnixTransport::of(const_cast<kvbm_transport_t*>(transport)).fd(); }

int32_t arm(kvbm_transport_t* transport, uint64_t* within_ns) { return UnixTransport::of(transport).arm(within_ns); }

uint32_t progress(kvbm_transport_t* transport) {
  const int32_t more = guarded([&] { return static_cast<int32_t>(UnixTransport::of(transport).progress()); });
  return more != 0 ? 1 : 0;
}

int32_t listen(kvbm_transport_t* transport, const char* address, char* bound, size_t bound_size, char* error,
               size_t error_size) {
  return guarded([&] {
    const auto path = UnixTransport::of(transport).listen(address);
    if (!path.ok()) {
      explain(path.status(), error, error_size);
      return number(path.status().code());
    }
    if (bound != nullptr && bound_size != 0) std::snprintf(bound, bound_size, "%s", path.value().c_str());
    return 0;
  });
}

int32_t connect(kvbm_transport_t* transport, const char* address, kvbm_transport_peer_t* peer, char* error,
                size_t error_size) {
  return guarded([&] {
    const auto id = UnixTransport::of(transport).connect(address);
    if (!id.ok()) {
      explain(id.status(), error, error_size);
      return number(id.status().code());
    }
    *peer = id.value();
    return 0;
  });
}

int32_t admit(kvbm_transport_t* transport, kvbm_transport_peer_t peer) {
  return guarded([&] { return number(UnixTransport::of(transport).admit(peer)); });
}

int32_t disconnect(kvbm_transport_t* transport, kvbm_transport_peer_t peer, int32_t flush) {
  return guarded([&] { return number(UnixTransport::of(transport).disconnect(peer, flush != 0)); });
}

int32_t send(kvbm_transport_t* transport, kvbm_transport_peer_t peer, const void* bytes, size_t size) {
  return guarded([&] {
    return number(UnixTransport::of(transport).send(peer, {static_cast<const std::byte*>(bytes), size}));
  });
}

int32_t post(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint64_t tag, void* to, uint64_t bytes,
             kvbm_transport_token_t token) {
  return guarded(
      [&] { return number(UnixTransport::of(transport).post(peer, tag, static_cast<std::byte*>(to), bytes, token)); });
}

int32_t push(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint64_t tag,
             const kvbm_transport_piece_t* pieces, size_t n_pieces, kvbm_transport_token_t token) {
  return guarded([&] { return number(UnixTransport::of(transport).push(peer, tag, pieces, n_pieces, token)); });
}

int32_t cancel(kvbm_transport_t* transport, kvbm_transport_peer_t peer, kvbm_transport_token_t token) {
  return guarded([&] { return number(UnixTransport::of(transport).cancel(peer, token)); });
}

}  // namespace

const kvbm_transport_ops_t* unix_transport_ops() noexcept {
  static const kvbm_transport_ops_t kOps = {sizeof(kvbm_transport_ops_t),
                                            KVBM_TRANSPORT_ABI_VERSION,
                                            "local",
                                            "kvbm, unix sockets and memfd",
                                            open,
                                            close,
                                            features,
                                            describe,
                                            fd,
                                            arm,
                                            progress,
                                            listen,
                                            connect,
                                            admit,
                                            disconnect,
                                            send,
                                            post,
                                            push,
                                            cancel,
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            nullptr,
                                            nullptr};  // protect(): nothing leaves the machine
  return &kOps;
}

}  // namespace kvbm::copy::local
