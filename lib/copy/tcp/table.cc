// The C side: no exception leaves it, and arguments are checked.
#include <algorithm>
#include <cstring>
#include <new>

#include "copy/tcp/tcp_transport.h"

namespace kvbm::copy::tcp {

namespace {

TcpTransport* of(kvbm_transport_t* transport) noexcept { return reinterpret_cast<TcpTransport*>(transport); }
const TcpTransport* of(const kvbm_transport_t* transport) noexcept {
  return reinterpret_cast<const TcpTransport*>(transport);
}

constexpr auto kNoMemory = static_cast<int32_t>(Code::no_memory);

// Cuts text that does not fit; returns the whole length, as snprintf does.
size_t put_text(std::string_view text, char* out, size_t size) noexcept {
  if (out != nullptr && size != 0) {
    const size_t n = std::min(size - 1, text.size());
    std::memcpy(out, text.data(), n);
    out[n] = '\0';
  }
  return text.size();
}

int32_t report(const Status& status, char* error, size_t size) {
  put_text(status.message(), error, size);
  return static_cast<int32_t>(status.code());
}

template <class Call>
int32_t guarded(Call&& call) noexcept {
  try {
    return static_cast<int32_t>(call());
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}

template <class Call>
int32_t guarded(char* error, size_t size, Call&& call) noexcept {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    put_text("the system refused memory", error, size);
    return kNoMemory;
  }
}

// Runs a call on one peer.
template <class Call>
int32_t with(kvbm_transport_t* transport, uint64_t peer, Call&& call) noexcept {
  return guarded([&] {
    Connection* connection = of(transport)->find(peer);
    return connection == nullptr ? Code::stale_handle : call(*connection);
  });
}

int32_t open(const kvbm_transport_options_t* options, const kvbm_transport_host_t* host, kvbm_transport_t** out,
             char* error, size_t size) {
  return guarded(error, size, [&] {
    if (options->struct_size < sizeof *options || host->struct_size < sizeof *host) {
      return report({Code::newer_version, "the host's options are older than this transport"}, error, size);
    }
    auto transport = TcpTransport::open(*options, *host);
    if (!transport.ok()) return report(transport.status(), error, size);
    *out = reinterpret_cast<kvbm_transport_t*>(transport.value().release());
    return int32_t{0};
  });
}

void close_transport(kvbm_transport_t* transport) { delete of(transport); }
uint32_t features(const kvbm_transport_t* transport) { return of(transport)->features(); }
size_t describe(const kvbm_transport_t* transport, char* text, size_t size) {
  try {
    return put_text(of(transport)->describe(), text, size);
  } catch (const std::bad_alloc&) {
    return put_text("plain TCP sockets", text, size);
  }
}
int fd(const kvbm_transport_t* transport) { return of(transport)->fd(); }
int32_t arm(kvbm_transport_t* transport, uint64_t* within_ns) {
  return static_cast<int32_t>(of(transport)->arm(within_ns));
}
uint32_t progress(kvbm_transport_t* transport) {
  try {
    return of(transport)->progress();
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

int32_t listen(kvbm_transport_t* transport, const char* address, char* bound, size_t bound_size, char* error,
               size_t size) {
  return guarded(error, size, [&] {
    const Result<std::string> done = of(transport)->listen(address);
    if (!done.ok()) return report(done.status(), error, size);
    put_text(done.value(), bound, bound_size);
    return int32_t{0};
  });
}
int32_t connect(kvbm_transport_t* transport, const char* address, kvbm_transport_peer_t* peer, char* error,
                size_t size) {
  return guarded(error, size, [&] {
    const Result<uint64_t> done = of(transport)->connect(address);
    if (!done.ok()) return report(done.status(), error, size);
    *peer = done.value();
    return int32_t{0};
  });
}
int32_t admit(kvbm_transport_t* transport, kvbm_transport_peer_t peer) {
  return guarded([&] { return of(transport)->admit(peer); });
}
int32_t disconnect(kvbm_transport_t* transport, kvbm_transport_peer_t peer, int32_t flush) {
  return guarded([&] { return of(transport)->disconnect(peer, flush != 0); });
}

int32_t send(kvbm_transport_t* transport, kvbm_transport_peer_t peer, const void* bytes, size_t size) {
  return with(transport, peer, [&](Connection& connection) {
    return connection.send({static_cast<const std::byte*>(bytes), size});
  });
}
int32_t post(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint64_t tag, void* to, uint64_t bytes,
             kvbm_transport_token_t token) {
  return with(transport, peer, [&](Connection& connection) { return connection.post(tag, to, bytes, token); });
}
int32_t push(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint64_t tag,
             const kvbm_transport_piece_t* pieces, size_t n, kvbm_transport_token_t token) {
  return with(transport, peer, [&](Connection& connection) { return connection.push(tag, pieces, n, token); });
}
int32_t cancel(kvbm_transport_t* transport, kvbm_transport_peer_t peer, kvbm_transport_token_t token) {
  return with(transport, peer, [&](Connection& connection) { return connection.cancel(token); });
}

int32_t protect(kvbm_transport_t* transport, kvbm_transport_peer_t peer, uint32_t how, const uint8_t* send_key,
                const uint8_t* receive_key) {
  return with(transport, peer, [&](Connection& connection) {
    if (how != KVBM_TRANSPORT_AUTHENTICATE && how != KVBM_TRANSPORT_ENCRYPT) return Code::invalid_argument;
    return connection.protect(static_cast<Protection>(how), send_key, receive_key);
  });
}

constexpr kvbm_transport_ops_t kOps = {sizeof(kvbm_transport_ops_t),
                                       KVBM_TRANSPORT_ABI_VERSION,
                                       "tcp",
                                       "built in, plain TCP sockets",
                                       open,
                                       close_transport,
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
                                       protect};

}  // namespace

const kvbm_transport_ops_t& ops() noexcept { return kOps; }

}  // namespace kvbm::copy::tcp
