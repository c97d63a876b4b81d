#include "copy/tcp/tcp_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "base/errno_status.h"
#include "base/io/listen_refusal.h"
#include "copy/tcp/address.h"

namespace kvbm::copy::tcp {

namespace {

constexpr size_t kMostPeers = 65536;
constexpr uint64_t kSlotMask = kMostPeers - 1;
// Marks names in epoll that are not peers: the listener's number is in the low bits.
constexpr uint64_t kListenerBit = 1ULL << 63;
// Most connections that are accepted but not admitted; more wait in the kernel until one of these is admitted or gone.
constexpr size_t kMostStrangers = 256;
constexpr int kEvents = 64;
constexpr uint32_t kHotTurns = 16;
constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kFlushNs = 2 * kSecond;
constexpr uint64_t kAcceptAgainNs = kSecond / 10;
// Detects a peer on a dead machine: nothing acknowledged for this long, or three keepalives unanswered.
constexpr int kSilenceMs = 10'000;
constexpr int kKeepaliveIdleS = 5;
constexpr int kKeepaliveEveryS = 2;
constexpr int kKeepalives = 3;
// Bulk that the kernel may buffer by itself (usual maximum of net.ipv4.tcp_wmem); for less, the buffer is set
// explicitly.
constexpr uint64_t kKernelBuffer = 4ULL << 20;

void set(int fd, int level, int option, int value) noexcept { setsockopt(fd, level, option, &value, sizeof value); }

// The kernel sizes the buffers: set explicitly they could not grow beyond net.core.[rw]mem_max.
void prepare(int fd, uint64_t bulk_bytes) noexcept {
  set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepaliveIdleS);
  set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepaliveEveryS);
  set(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepalives);
  set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kSilenceMs);
  if (bulk_bytes < kKernelBuffer)
    set(fd, SOL_SOCKET, SO_SNDBUF, static_cast<int>(std::max<uint64_t>(bulk_bytes, 65536)));
}

Status listen_error(int error, std::string_view address) {
  auto known = listen_refusal(error, address);
  return known ? std::move(*known) : errno_status(error, "cannot listen", address);
}

}  // namespace

Result<std::unique_ptr<TcpTransport>> TcpTransport::open(const kvbm_transport_options_t& options,
                                                         const kvbm_transport_host_t& host) {
  if (options.peer_queue_bytes == 0 || options.peer_bulk_bytes == 0) {
    return Status(Code::invalid_argument, "peer_queue_bytes and peer_bulk_bytes have to be more than 0");
  }
  constexpr uint32_t kOfOthers = KVBM_TRANSPORT_EMULATE_GET | KVBM_TRANSPORT_EMULATE_DEVICE;
  if ((options.flags & ~(kOfOthers | KVBM_TRANSPORT_OWN_USER_ONLY)) != 0) {
    return Status(Code::unsupported, "the options ask for what this transport does not know");
  }
  std::unique_ptr<TcpTransport> out(new TcpTransport);
  out->shared_.host = host;
  if ((options.flags & KVBM_TRANSPORT_OWN_USER_ONLY) != 0) out->shared_.users = std::make_unique<PeerUsers>();
  out->shared_.queue_bytes = options.peer_queue_bytes;
  out->shared_.bulk_bytes = options.peer_bulk_bytes;
  out->shared_.epoll = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!out->shared_.epoll) return errno_status(errno, "the system refused a descriptor", "epoll");
  return out;
}

std::string TcpTransport::describe() const {
  std::string out = "plain TCP sockets, " + std::to_string(peers_) + " peers";
  for (const Fd& listener : listeners_) out += ", listening on " + local_address(listener.get()).text();
  return out;
}

Connection* TcpTransport::find(uint64_t peer) const noexcept {
  const uint64_t slot = peer & kSlotMask;
  if (slot >= slots_.size() || slots_[slot] == nullptr || slots_[slot]->peer() != peer) return nullptr;
  return slots_[slot].get();
}

bool TcpTransport::watch(int fd, uint32_t events, uint64_t name) const noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = name;
  return epoll_ctl(shared_.epoll.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

// Takes ownership of the socket, also if it fails.
Result<Connection*> TcpTransport::add(int fd, bool connected, std::string address) {
  if (free_slots_.empty()) {
    if (slots_.size() == kMostPeers) {
      close(fd);
      return Status(Code::at_limit, "65536 connections are open; close some", address);
    }
    free_slots_.reserve(slots_.size() + 1);
    shared_.dying.reserve(slots_.size() + 1);
    slots_.emplace_back();
    free_slots_.push_back(slots_.size() - 1);
  }
  const size_t slot = free_slots_.back();
  const uint64_t peer = (++serial_ * kMostPeers) | slot;
  auto connection = std::make_unique<Connection>(shared_, peer, fd, connected, address);
  if (!watch(fd, EPOLLIN | (connected ? 0U : EPOLLOUT), peer))
    return errno_status(errno, "cannot watch a socket", address);
  free_slots_.pop_back();
  slots_[slot] = std::move(connection);
  ++peers_;
  return slots_[slot].get();
}

Result<std::string> TcpTransport::listen(std::string_view text) {
  const Result<Address> address = Address::parse(text);
  if (!address.ok()) return address.status();
  Fd fd(socket(address.value().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return listen_error(errno, text);
  // Takes a port that ended connections may keep for a minute; not one of a listener.
  set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  const auto* name = reinterpret_cast<const sockaddr*>(&address.value().storage);
  if (bind(fd.get(), name, address.value().size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 ||
      !watch(fd.get(), accepting_ ? EPOLLIN : 0U, kListenerBit | listeners_.size())) {
    return listen_error(errno, text);
  }
  listeners_.push_back(std::move(fd));
  return local_address(listeners_.back().get()).text();
}

Result<uint64_t> TcpTransport::connect(std::string_view text) {
  const Result<Address> address = Address::parse(text);
  if (!address.ok()) return address.status();
  if (address.value().port() == 0)
    return Status(Code::invalid_argument, "port 0 cannot be connected to", std::string(text));
  const int fd = socket(address.value().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno_status(errno, "the system refused a socket", text);
  prepare(fd, shared_.bulk_bytes);
  const auto* name = reinterpret_cast<const sockaddr*>(&address.value().storage);
  if (::connect(fd, name, address.value().size) != 0 && errno != EINPROGRESS) {
    const int error = errno;
    close(fd);
    return errno_status(error, "cannot connect", text);
  }
  const Result<Connection*> connection = add(fd, false, address.value().text());
  if (!connection.ok()) return connection.status();
  return connection.value()->peer();
}

Code TcpTransport::admit(uint64_t peer) {
  Connection* connection = find(peer);
  if (connection == nullptr) return Code::stale_handle;
  const bool stranger = connection->accepted() && !connection->admitted();
  const Code code = connection->admit();
  if (code == Code::ok && stranger) {
    --strangers_;
    settle_accepting();
  }
  return code;
}

Code TcpTransport::disconnect(uint64_t peer, bool flush) {
  Connection* connection = find(peer);
  if (connection == nullptr) return Code::stale_handle;
  const bool fresh = !connection->closing();
  if (fresh && flush) flushing_.push_back(peer);
  return connection->disconnect(flush, clock_.now_ns() + kFlushNs);
}

// --- accepting

void TcpTransport::accepting(bool wanted) {
  if (wanted == accepting_) return;
  accepting_ = wanted;
  for (size_t i = 0; i < listeners_.size(); ++i) {
    epoll_event event{};
    event.events = wanted ? EPOLLIN : 0U;
    event.data.u64 = kListenerBit | i;
    epoll_ctl(shared_.epoll.get(), EPOLL_CTL_MOD, listeners_[i].get(), &event);
  }
}

void TcpTransport::settle_accepting() { accepting(strangers_ < kMostStrangers && accept_again_ns_ == kNever); }

bool TcpTransport::accept_from(const Fd& listener) {
  for (int round = 0; round < 16; ++round) {
    if (!accepting_) return false;
    Address remote;
    remote.size = sizeof remote.storage;
    const int fd = accept4(listener.get(), reinterpret_cast<sockaddr*>(&remote.storage), &remote.size,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS) return false;
      shared_.host.log(shared_.host.context, 1,
                       "no descriptor or memory for a connection; raise the limit of open files");
      accept_again_ns_ = clock_.now_ns() + kAcceptAgainNs;
      settle_accepting();
      return false;
    }
    prepare(fd, shared_.bulk_bytes);
    const std::string address = remote.text();
    const Result<Connection*> connection = add(fd, true, address);
    if (!connection.ok()) {
      shared_.host.log(shared_.host.context, 1, connection.status().message().c_str());
      continue;
    }
    ++strangers_;
    settle_accepting();
    shared_.host.accepted(shared_.host.context, connection.value()->peer(), address.c_str());
    connection.value()->refuse_strangers();
  }
  return true;
}

// --- progress

uint64_t TcpTransport::next_time() const noexcept {
  uint64_t first = accept_again_ns_;
  for (const uint64_t peer : flushing_) {
    if (const Connection* connection = find(peer)) first = std::min(first, connection->give_up_ns());
  }
  return first;
}

Code TcpTransport::arm(uint64_t* within_ns) const {
  if (!shared_.ended.empty() || !shared_.dying.empty()) return Code::again;
  *within_ns = kNever;
  const uint64_t first = next_time();
  if (first == kNever) return Code::ok;
  const uint64_t now = clock_.now_ns();
  if (first <= now) return Code::again;
  *within_ns = first - now;
  return Code::ok;
}

void TcpTransport::check_times() {
  if (flushing_.empty() && accept_again_ns_ == kNever) return;
  const uint64_t now = clock_.now_ns();
  if (accept_again_ns_ <= now) {
    accept_again_ns_ = kNever;
    settle_accepting();
  }
  std::erase_if(flushing_, [&](uint64_t peer) {
    Connection* connection = find(peer);
    if (connection != nullptr && connection->give_up_ns() <= now) connection->give_up();
    return connection == nullptr;
  });
}

// Reports the tokens that had ended when it began: a host that answers each end with another push must not keep it
// running for ever.
void TcpTransport::tell_ended() {
  const kvbm_transport_host_t& host = shared_.host;
  for (size_t left = shared_.ended.size(); left != 0; --left) {
    const End end = shared_.ended.pop();
    const auto status = static_cast<int32_t>(end.status);
    if (end.kind == EndKind::pushed) {
      host.pushed(host.context, end.peer, end.token, status);
    } else if (end.kind == EndKind::received) {
      host.received(host.context, end.peer, end.token, status, 0);
    } else if (const Connection* connection = find(end.peer); connection != nullptr && !connection->closing()) {
      host.writable(host.context, end.peer);
    }
  }
}

// Closes dead connections, after all their tokens were reported.
void TcpTransport::bury() {
  while (!shared_.dying.empty()) {
    const uint64_t peer = shared_.dying.front();
    const size_t slot = peer & kSlotMask;
    if (Connection* dead = find(peer)) dead->close_socket();
    while (!shared_.ended.empty()) tell_ended();
    shared_.dying.erase(std::find(shared_.dying.begin(), shared_.dying.end(), peer));
    const std::unique_ptr<Connection> connection = std::move(slots_[slot]);
    connection->finish();
    free_slots_.push_back(slot);
    --peers_;
    if (connection->accepted() && !connection->admitted()) {
      --strangers_;
      settle_accepting();
    }
  }
}

// Returns true if it stopped although there may be more to do.
bool TcpTransport::handle(uint64_t name, uint32_t events) {
  if ((name & kListenerBit) != 0) return accept_from(listeners_[name & ~kListenerBit]);
  Connection* connection = find(name);
  if (connection == nullptr) return false;
  try {
    const bool more = connection->on_event(events);
    hot_ = name;
    return more;
  } catch (const std::bad_alloc&) {
    connection->out_of_memory();
    return false;
  }
}

// While one peer sends, its socket is read at once, and epoll is asked only when that finds nothing. Returns true if it
// found something.
bool TcpTransport::read_hot() {
  if (hot_ == 0 || ++hot_turns_ > kHotTurns) return false;
  Connection* connection = find(hot_);
  if (connection == nullptr) return false;
  bool any = false;
  try {
    connection->read(&any);
  } catch (const std::bad_alloc&) {
    connection->out_of_memory();
  }
  return any;
}

bool TcpTransport::poll_sockets() {
  hot_turns_ = 0;
  std::array<epoll_event, kEvents> events;
  const int n = epoll_wait(shared_.epoll.get(), events.data(), kEvents, 0);
  bool more = n == kEvents;
  for (int i = 0; i < n; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (handle(event.data.u64, event.events)) more = true;
  }
  if (n > 1) hot_ = 0;
  return more;
}

uint32_t TcpTransport::progress() {
  check_times();
  tell_ended();
  bool more = false;
  if (!read_hot()) more = poll_sockets();
  tell_ended();
  bury();
  return more || !shared_.ended.empty() ? 1 : 0;
}

}  // namespace kvbm::copy::tcp
