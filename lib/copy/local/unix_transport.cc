#include "copy/local/unix_transport.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/crypto/random.h"
#include "base/errno_status.h"
#include "base/memory/shared_memory.h"

namespace kvbm::copy::local {

namespace {

// Meaning of epoll's data: a peer's id or a listener's number, and which of its descriptors.
enum class What : uint64_t { listener = 0, socket = 1, process = 2 };
constexpr uint64_t name_of(What what, uint64_t id) noexcept { return id << 2 | static_cast<uint64_t>(what); }

constexpr int kEventsPerTurn = 64;
constexpr int kAcceptsPerTurn = 16;
constexpr int kSendBuffer = 1 << 20;  // requested; net.core.wmem_max limits it
constexpr uint32_t kDefaultQueueBytes = 1U << 20;

kvbm_transport_host_t copy_host(const kvbm_transport_host_t& host) noexcept {
  kvbm_transport_host_t out{};
  std::memcpy(&out, &host, std::min<size_t>(host.struct_size, sizeof out));
  return out;
}

bool add_to(int epoll, int fd, uint32_t events, uint64_t name) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = name;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

UnixTransport::UnixTransport(const kvbm_transport_options_t& options, const kvbm_transport_host_t& host)
    : host_(copy_host(host)),
      queue_bytes_(options.peer_queue_bytes != 0 ? options.peer_queue_bytes : kDefaultQueueBytes),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      buffer_(kFrameBytes) {}

UnixTransport::~UnixTransport() {
  for (auto& [id, peer] : peers_) {
    for (const auto& pool : peer->pools) pool->mark_gone();
  }
}

Result<std::unique_ptr<UnixTransport>> UnixTransport::open(const kvbm_transport_options_t& options,
                                                           const kvbm_transport_host_t& host) {
  std::unique_ptr<UnixTransport> made(new UnixTransport(options, host));
  if (!made->epoll_) return errno_status(errno, "cannot open the local link", "epoll_create1");
  return made;
}

void UnixTransport::log(int32_t level, const std::string& text) const { host_.log(host_.context, level, text.c_str()); }

// Logs a refused peer; its process is known from the kernel.
void UnixTransport::refused(const UnixPeer& peer, const Status& why) const {
  const std::string who = peer.process.pid != 0 ? "process " + std::to_string(peer.process.pid) : "a process";
  log(kLogWarning, peer.path + ": refused " + who + ": " + why.message());
}

Code UnixTransport::find(uint64_t id, UnixPeer*& peer) noexcept {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return Code::stale_handle;
  peer = found->second.get();
  return peer->leaving || peer->phase == Phase::dead ? Code::closed : Code::ok;
}

UnixPeer& UnixTransport::add_peer(Fd socket, const std::string& path) {
  const uint64_t id = next_id_++;
  auto peer = std::make_unique<UnixPeer>(id, std::move(socket), queue_bytes_);
  peer->path = path;
  return *peers_.emplace(id, std::move(peer)).first->second;
}

// The connection exists: identifies the peer, then sends the hello.
Status UnixTransport::adopt(UnixPeer& peer) {
  auto process = peer_process(peer.fd());
  if (!process.ok()) return process.status();
  peer.process = std::move(process).value();
  setsockopt(peer.fd(), SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  peer.watched = EPOLLIN;
  if (!add_to(epoll_.get(), peer.fd(), EPOLLIN, name_of(What::socket, peer.id())) ||
      !add_to(epoll_.get(), peer.process.pidfd.get(), EPOLLIN, name_of(What::process, peer.id()))) {
    return errno_status(errno, "cannot watch a peer", peer.path);
  }
  peer.phase = Phase::greeting;
  set_timer(peer, deadline_after(clock_, kHelloNs));
  peer.send_hello();
  return {};
}

Result<std::string> UnixTransport::listen(const std::string& path) {
  auto socket = ListeningSocket::open(path);
  if (!socket.ok()) return socket.status();
  if (!add_to(epoll_.get(), socket.value().fd(), EPOLLIN, name_of(What::listener, listeners_.size()))) {
    return errno_status(errno, "cannot watch the socket", path);
  }
  listeners_.push_back(std::move(socket).value());
  return path;
}

Result<uint64_t> UnixTransport::connect(const std::string& address) {
  std::string path;
  auto socket = make_connecting_socket(address, path);
  if (!socket.ok()) return socket.status();
  if (peers_.size() >= kMaxPeers) return Status(Code::at_limit, "too many peers on the local link");
  UnixPeer& peer = add_peer(std::move(socket).value(), path);
  peer.outgoing = true;
  peer.phase = Phase::connecting;
  peer.give_up_ns = deadline_after(clock_, kConnectNs);
  try_connecting(peer);
  return peer.id();
}

void UnixTransport::try_connecting(UnixPeer& peer) {
  Status tried = try_connect(peer.fd(), peer.path);
  if (tried.code() == Code::again && clock_.now_ns() < peer.give_up_ns) {
    return set_timer(peer, deadline_after(clock_, kRetryNs));
  }
  if (tried.ok()) tried = adopt(peer);
  if (!tried.ok()) end(peer, tried.code() == Code::again ? Code::deadline : tried.code(), tried.message());
}

void UnixTransport::accept_from(ListeningSocket& from) {
  for (int n = 0; n < kAcceptsPerTurn; ++n) {
    Fd socket(accept4(from.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      accept_one(std::move(socket), from.path());
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      return pause_listening();
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return;
    }
  }
}

void UnixTransport::accept_one(Fd socket, const std::string& path) {
  // Closed at once: a flood of connections must not affect admitted peers.
  if (peers_.size() >= kMaxPeers || strangers_ >= kMaxStrangers) return;
  UnixPeer& peer = add_peer(std::move(socket), path);
  ++strangers_;
  const Status adopted = adopt(peer);
  if (adopted.ok()) return;
  // A process that only checks for a listener has gone by now; nothing to report.
  if (adopted.code() != Code::owner_gone) refused(peer, adopted);
  end(peer, adopted.code(), adopted.message());
}

// No descriptor is left: the listeners would be readable all the time.
void UnixTransport::pause_listening() {
  log(kLogWarning, "the local link accepts no connection for a moment: this process has no descriptors left");
  watch_listeners(false);
  timers_.insert({deadline_after(clock_, kPauseNs), 0});
}

void UnixTransport::watch_listeners(bool on) {
  for (size_t i = 0; i < listeners_.size(); ++i) {
    epoll_event event{};
    event.events = on ? static_cast<uint32_t>(EPOLLIN) : 0U;
    event.data.u64 = name_of(What::listener, i);
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[i].fd(), &event);
  }
}

void UnixTransport::end(UnixPeer& peer, Code status, std::string reason) {
  if (peer.phase == Phase::dead) return;
  if (!peer.outgoing && !peer.announced) --strangers_;
  peer.phase = Phase::dead;
  peer.close_status = status;
  peer.close_reason = std::move(reason);
  peer.end_all(Code::closed);
  peer.close_socket();
  peer.process.pidfd = Fd();
  set_timer(peer, kNever);
  for (const auto& pool : peer.pools) pool->mark_gone();
  mark(peer);
}

Code UnixTransport::admit(uint64_t id) {
  UnixPeer* peer = nullptr;
  if (const Code code = find(id, peer); code != Code::ok) return code;
  if (peer->admitted) return Code::ok;
  std::vector<Fd> memory;
  for (const Offered& offered : offered_) {
    memory.push_back(duplicate(offered.memory.get()));
    if (!memory.back()) return Code::no_memory;
  }
  peer->admitted = true;
  for (size_t i = 0; i < memory.size(); ++i) peer->send_pool(std::move(memory[i]), offered_[i].offer);
  watch_output(*peer);
  return Code::ok;
}

Code UnixTransport::disconnect(uint64_t id, bool flush) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return Code::stale_handle;
  UnixPeer& peer = *found->second;
  if (peer.phase == Phase::dead) return Code::ok;
  if (!peer.leaving) {
    peer.leaving = true;
    peer.end_posts(Code::closed);
    mark(peer);
    if (flush && peer.phase == Phase::open) set_timer(peer, deadline_after(clock_, kLeaveNs));
  }
  if (flush && peer.wants_out()) {
    watch_output(peer);
  } else {
    end(peer, Code::closed, "disconnected");
  }
  return Code::ok;
}

Code UnixTransport::send(uint64_t id, ConstBytes message) {
  UnixPeer* peer = nullptr;
  if (const Code code = find(id, peer); code != Code::ok) return code;
  const size_t limit = peer->admitted ? KVBM_TRANSPORT_MESSAGE_BYTES : KVBM_TRANSPORT_STRANGER_BYTES;
  if (message.size() > limit) return Code::invalid_argument;
  const Code code = peer->send(message);
  watch_output(*peer);
  return code;
}

Code UnixTransport::post(uint64_t id, uint64_t tag, std::byte* to, uint64_t bytes, uint64_t token) {
  UnixPeer* peer = nullptr;
  if (const Code code = find(id, peer); code != Code::ok) return code;
  if (to == nullptr && bytes != 0) return Code::invalid_argument;
  return peer->post(tag, to, bytes, token);
}

Code UnixTransport::push(uint64_t id, uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t token) {
  UnixPeer* peer = nullptr;
  if (const Code code = find(id, peer); code != Code::ok) return code;
  if (!peer->admitted) return Code::wrong_state;
  if (pieces == nullptr && n != 0) return Code::invalid_argument;
  const Code code = peer->push(tag, pieces, n, token);
  watch_output(*peer);
  return code;
}

Code UnixTransport::cancel(uint64_t id, uint64_t token) {
  UnixPeer* peer = nullptr;
  if (const Code code = find(id, peer); code != Code::ok) return code;
  const Code code = peer->cancel(token);
  mark(*peer);
  return code;
}

Result<uint64_t> UnixTransport::offer_pool(int fd, const tier::HostShape& shape) {
  Offered offered;
  SystemRandom random;
  if (Status s = random.ready(); !s.ok()) return s;
  while (offered.offer.id == 0) offered.offer.id = random.next();
  offered.offer.shape = shape;
  std::byte encoded[kOfferBytes];
  encode(offered.offer, encoded);
  if (const auto decoded = decode_offer(encoded); !decoded.ok()) return decoded.status();
  if (Status s = check_shared_memory(fd, static_cast<size_t>(shape.bytes)); !s.ok()) return s;
  if (offered_.size() == UnixPeer::kMaxPools) return Status(Code::at_limit, "too many pools for one link");
  offered.memory = duplicate(fd);
  if (!offered.memory) return errno_status(errno, "cannot hand over a pool", "dup");
  const uint64_t id = offered.offer.id;
  offered_.push_back(std::move(offered));
  return id;
}

std::vector<std::shared_ptr<RemotePool>> UnixTransport::pools(kvbm_transport_peer_t peer) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || !found->second->admitted || found->second->phase == Phase::dead) return {};
  return found->second->pools;
}

void UnixTransport::pump(UnixPeer& peer) {
  if (peer.phase != Phase::open) return;
  const Code code = peer.pump();
  if (!peer.ended.empty()) mark(peer);
  if (code == Code::ok && peer.leaving && !peer.wants_out()) return end(peer, Code::closed, "disconnected");
  if (code == Code::closed) {
    read_from(peer, kFramesPerTurn);  // data sent before the end
    return end(peer, Code::closed, "the peer takes nothing any more");
  }
  watch_output(peer);
  if (!peer.leaving && peer.take_writable()) host_.writable(host_.context, peer.id());
}

// Level-triggered: writability is watched for exactly while there is output.
void UnixTransport::watch_output(UnixPeer& peer) {
  if (peer.phase != Phase::open) return;
  const uint32_t wanted = EPOLLIN | (peer.wants_out() ? static_cast<uint32_t>(EPOLLOUT) : 0U);
  if (wanted == peer.watched) return;
  epoll_event event{};
  event.events = wanted;
  event.data.u64 = name_of(What::socket, peer.id());
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, peer.fd(), &event) == 0) peer.watched = wanted;
}

void UnixTransport::handle(uint64_t name, uint32_t events) {
  const auto what = static_cast<What>(name & 3);
  const uint64_t id = name >> 2;
  if (what == What::listener) return accept_from(listeners_[id]);
  const auto found = peers_.find(id);
  if (found == peers_.end() || found->second->phase == Phase::dead) return;
  UnixPeer& peer = *found->second;
  if (what == What::process) return process_ended(peer);
  if ((events & ~static_cast<uint32_t>(EPOLLOUT)) != 0) read_from(peer, kFramesPerTurn);
  if ((events & EPOLLOUT) != 0) pump(peer);
}

void UnixTransport::set_timer(UnixPeer& peer, uint64_t when_ns) {
  if (peer.timer_ns != kNever) timers_.erase({peer.timer_ns, peer.id()});
  peer.timer_ns = when_ns;
  if (when_ns != kNever) timers_.insert({when_ns, peer.id()});
}

void UnixTransport::run_timers() {
  if (timers_.empty()) return;
  const uint64_t now = clock_.now_ns();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const uint64_t id = timers_.begin()->second;
    timers_.erase(timers_.begin());
    if (id == 0) {
      watch_listeners(true);
    } else if (const auto found = peers_.find(id); found != peers_.end()) {
      found->second->timer_ns = kNever;
      timer_of(*found->second);
    }
  }
}

void UnixTransport::timer_of(UnixPeer& peer) {
  if (peer.phase == Phase::connecting) return try_connecting(peer);
  if (peer.leaving) return end(peer, Code::deadline, "disconnected; the peer did not take what was sent to it");
  if (peer.phase == Phase::greeting) {
    end(peer, Code::deadline, peer.path + ": the process there does not answer; it may be stopped");
  }
}

void UnixTransport::mark(UnixPeer& peer) {
  if (peer.marked) return;
  peer.marked = true;
  marked_.push_back(peer.id());
}

int32_t UnixTransport::arm(uint64_t* within_ns) noexcept {
  *within_ns = UINT64_MAX;
  if (!marked_.empty()) return static_cast<int32_t>(Code::again);
  if (timers_.empty()) return 0;
  const uint64_t now = clock_.now_ns();
  const uint64_t first = timers_.begin()->first;
  if (first <= now) return static_cast<int32_t>(Code::again);
  *within_ns = first - now;
  return 0;
}

uint32_t UnixTransport::progress() {
  epoll_event events[kEventsPerTurn];
  const int n = epoll_wait(epoll_.get(), events, kEventsPerTurn, 0);
  for (int i = 0; i < n; ++i) handle(events[i].data.u64, events[i].events);
  run_timers();
  std::vector<uint64_t> marked;
  marked.swap(marked_);
  for (const uint64_t id : marked) {
    if (const auto found = peers_.find(id); found != peers_.end()) tell(*found->second);
  }
  return n == kEventsPerTurn || !marked_.empty() ? 1 : 0;
}

// Reports tokens first, the end of the connection last.
void UnixTransport::tell(UnixPeer& peer) {
  peer.marked = false;
  while (!peer.ended.empty()) {
    const Ended ended = peer.ended.front();
    peer.ended.pop_front();
    const auto status = static_cast<int32_t>(ended.status);
    if (ended.received) {
      host_.received(host_.context, peer.id(), ended.token, status, ended.bytes);
    } else {
      host_.pushed(host_.context, peer.id(), ended.token, status);
    }
  }
  if (peer.phase != Phase::dead) return;
  const auto holder = std::move(peers_.find(peer.id())->second);
  peers_.erase(holder->id());
  // The host never heard of a peer that was refused at accept.
  if (!holder->outgoing && !holder->announced) return;
  host_.closed(host_.context, holder->id(), static_cast<int32_t>(holder->close_status), holder->close_reason.c_str());
}

}  // namespace kvbm::copy::local
