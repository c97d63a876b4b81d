#include "copy/tcp/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "copy/tcp/address.h"

namespace kvbm::copy::tcp {

namespace {

// Most reads and writes that one progress() does for one peer, so that a busy peer does not delay the others.
constexpr int kReads = 16;
constexpr int kWrites = 8;

bool would_block(int error) noexcept { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

Connection::Connection(Shared& shared, uint64_t peer, int fd, bool connected, std::string address)
    : shared_(shared),
      peer_(peer),
      fd_(fd),
      accepted_(connected),
      connected_(connected),
      known_(shared.users == nullptr),
      watching_output_(!connected),
      give_up_ns_(kNever),
      address_(std::move(address)) {}

Connection::~Connection() {
  close_socket();
  shared_.tokens -= tokens_.size();
}

void Connection::close_socket() noexcept {
  if (fd_ >= 0) close(fd_);  // epoll forgets it
  fd_ = -1;
}

void Connection::watch_output(bool wanted) {
  if (wanted == watching_output_ || fd_ < 0) return;
  epoll_event event{};
  event.events = EPOLLIN | (wanted ? EPOLLOUT : 0U);
  event.data.u64 = peer_;
  if (epoll_ctl(shared_.epoll.get(), EPOLL_CTL_MOD, fd_, &event) == 0) watching_output_ = wanted;
}

void Connection::die(Code status, std::string reason) {
  if (dead_) return;
  shared_.dying.push_back(peer_);
  dead_ = true;
  status_ = status;
  reason_ = std::move(reason);
}

// error 0: the orderly end of the peer's stream.
void Connection::peer_gone(int error) {
  if (flushing_) return die(Code::closed, "disconnected from " + address_);
  if (!connected_) {
    const char* hint = error == ECONNREFUSED ? "; is a node listening there?" : "";
    return die(error == ETIMEDOUT ? Code::deadline : Code::io_error,
               "cannot connect to " + address_ + ": " + std::strerror(error) + hint);
  }
  if (error == ETIMEDOUT) return die(Code::deadline, address_ + " does not answer any more");
  // An older peer, or one of another user, need not give a reason.
  const char* hint = known_ ? "" : " and has said nothing: is it a node, and of this user?";
  if (error != 0)
    return die(Code::closed, "the connection to " + address_ + " broke" + hint + ": " + std::strerror(error));
  if (!known_) return die(Code::closed, address_ + " closed the connection" + hint);
  die(Code::closed, receiver_.between_frames() ? address_ + " closed the connection"
                                               : address_ + " closed the connection in the middle of a transfer");
}

// --- tokens

bool Connection::add_token(uint64_t token, EndKind kind, uint64_t where) {
  shared_.ended.reserve(shared_.tokens + 2);  // and a writable
  if (!tokens_.insert(token, {kind, where})) return false;
  ++shared_.tokens;
  return true;
}

bool Connection::drop_token(uint64_t token) noexcept {
  if (!tokens_.erase(token)) return false;
  --shared_.tokens;
  return true;
}

void Connection::end_later(EndKind kind, Code status, uint64_t token) {
  shared_.ended.push({kind, status, peer_, token});
}

// Ends all tokens of a kind, in their order, at once or at the next progress().
void Connection::end_tokens(EndKind kind, Code status, bool now) {
  std::vector<uint64_t> tokens;
  tokens_.for_each([&](uint64_t token, const Token& known) {
    if (known.kind == kind) tokens.push_back(token);
  });
  std::sort(tokens.begin(), tokens.end());
  const kvbm_transport_host_t& host = shared_.host;
  for (const uint64_t token : tokens) {
    drop_token(token);
    if (!now) {
      end_later(kind, status, token);
    } else if (kind == EndKind::pushed) {
      host.pushed(host.context, peer_, token, static_cast<int32_t>(status));
    } else {
      host.received(host.context, peer_, token, static_cast<int32_t>(status), 0);
    }
  }
}

// --- calls of the host

Code Connection::admit() {
  if (usable() != Code::ok) return usable();
  admitted_ = true;
  return Code::ok;
}

Code Connection::protect(Protection how, const uint8_t* send_key, const uint8_t* receive_key) {
  if (usable() != Code::ok) return usable();
  if (!admitted_ || sender_.guarded() || sender_.pushing() || !receiver_.between_frames()) return Code::wrong_state;
  auto sends = FrameGuard::make(how, send_key);
  if (!sends.ok()) return sends.status().code();
  auto receives = FrameGuard::make(how, receive_key);
  if (!receives.ok()) return receives.status().code();
  sender_.guard(std::move(sends).value());
  receiver_.guard(std::move(receives).value());
  return Code::ok;
}

Code Connection::send(ConstBytes message) {
  if (usable() != Code::ok) return usable();
  if (message.size() > (admitted_ ? KVBM_TRANSPORT_MESSAGE_BYTES : KVBM_TRANSPORT_STRANGER_BYTES)) {
    return Code::invalid_argument;
  }
  if (sender_.queued() >= shared_.queue_bytes) {
    refused_ = true;
    return Code::again;
  }
  if (sender_.guarded()) return send_guarded(message);
  std::byte header[kHeaderBytes];
  encode({Kind::message, static_cast<uint32_t>(message.size()), 0, 0}, header);
  size_t sent = 0;
  if (may_write() && sender_.idle()) {
    iovec vectors[2] = {{header, kHeaderBytes}, {const_cast<std::byte*>(message.data()), message.size()}};
    const int64_t n = send_now(vectors, message.empty() ? 1 : 2);
    if (n == static_cast<int64_t>(kHeaderBytes + message.size())) return Code::ok;
    sent = n > 0 ? static_cast<size_t>(n) : 0;
  }
  sender_.queue_message(header, message, sent);
  watch_output(true);
  return Code::ok;
}

Code Connection::send_guarded(ConstBytes message) {
  const bool at_once = may_write() && sender_.idle();
  if (const Code code = sender_.queue_guarded(message); code != Code::ok) {
    guard_failed();
    return code;
  }
  if (at_once) write();
  if (!sender_.idle()) watch_output(true);
  return Code::ok;
}

Code Connection::post(uint64_t tag, void* to, uint64_t bytes, uint64_t token) {
  if (usable() != Code::ok) return usable();
  if (to == nullptr && bytes != 0) return Code::invalid_argument;
  if (!add_token(token, EndKind::received, tag)) return Code::exists;
  if (receiver_.post(tag, {static_cast<std::byte*>(to), bytes, token})) return Code::ok;
  drop_token(token);
  return Code::exists;
}

Code Connection::push(uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t token) {
  if (usable() != Code::ok) return usable();
  if (!admitted_) return Code::wrong_state;
  if (pieces == nullptr && n != 0) return Code::invalid_argument;
  uint64_t total = 0;
  for (size_t i = 0; i < n; ++i) {
    if (pieces[i].bytes > UINT64_MAX - total || (pieces[i].data == nullptr && pieces[i].bytes != 0)) {
      return Code::invalid_argument;
    }
    total += pieces[i].bytes;
  }
  if (tokens_.find(token) != nullptr) return Code::exists;
  const bool at_once = may_write() && sender_.idle();
  sender_.reserve(n);
  if (!add_token(token, EndKind::pushed, sender_.next_number())) return Code::exists;
  sender_.push(tag, pieces, n, total, token);
  if (at_once) write();
  if (!sender_.idle()) watch_output(true);
  return Code::ok;
}

Code Connection::cancel(uint64_t token) {
  const Token* known = tokens_.find(token);
  if (known == nullptr) return Code::stale_handle;
  if (dead_) return Code::ok;
  const Token found = *known;
  if (found.kind == EndKind::received ? !receiver_.end_post(found.where, token) : !sender_.cancel(found.where)) {
    return Code::ok;
  }
  drop_token(token);
  end_later(found.kind, Code::cancelled, token);
  return Code::ok;
}

Code Connection::disconnect(bool flush, uint64_t give_up_ns) {
  if (dead_) return Code::ok;
  flushing_ = true;
  end_tokens(EndKind::received, Code::closed, false);
  if (!flush || write_error_ != 0) {
    die(Code::closed, "disconnected from " + address_);
    return Code::ok;
  }
  give_up_ns_ = std::min(give_up_ns_, give_up_ns);
  if (connected_) after_write();
  return Code::ok;
}

// --- the socket

int64_t Connection::send_now(iovec* vectors, size_t n) {
  msghdr message{};
  message.msg_iov = vectors;
  message.msg_iovlen = n;
  const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return sent;
  if (!would_block(errno) && errno != EINTR) {
    write_error_ = errno;
    if (flushing_) {
      peer_gone(write_error_);
    } else if (write_error_ != EPIPE && write_error_ != ECONNRESET) {
      die(Code::io_error, "cannot send to " + address_ + ": " + std::strerror(write_error_));
    }  // otherwise data that the peer sent before its end may still be there: reading finds the end
  }
  return -1;
}

void Connection::write() {
  iovec vectors[Sender::kVectors];
  for (int round = 0; round < kWrites && may_write() && !sender_.idle(); ++round) {
    const size_t n = sender_.gather(vectors);
    if (sender_.failure() != Code::ok && n == 0) return guard_failed();
    if (n == 0) break;  // cancelled ones only
    uint64_t offered = 0;
    for (size_t i = 0; i < n; ++i) offered += vectors[i].iov_len;
    const int64_t sent = send_now(vectors, n);
    if (sent > 0) sender_.sent(static_cast<uint64_t>(sent), *this);
    if (sent < static_cast<int64_t>(offered)) break;
  }
  after_write();
}

// A frame without a tag cannot be sent, nor anything after it.
void Connection::guard_failed() {
  const Code why = sender_.failure();
  die(why, why == Code::closed ? address_ + ": " + Receiver::kKeyUsedUp : "cannot protect what goes to " + address_);
}

void Connection::after_write() {
  if (refused_ && !flushing_ && sender_.queued() <= shared_.queue_bytes / 2) {
    refused_ = false;
    shared_.ended.reserve(shared_.tokens + 2);
    end_later(EndKind::writable, Code::ok, 0);
  }
  if (!sender_.idle() && write_error_ == 0) return watch_output(true);
  watch_output(false);
  if (flushing_ && connected_ && !shut_down_ && write_error_ == 0) {
    shut_down_ = true;
    shutdown(fd_, SHUT_WR);
  }
}

bool Connection::finish_connect() {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  // A port that the system assigns to this side while no process listens there connects to itself.
  const Address local = local_address(fd_);
  const Address remote = remote_address(fd_);
  if (error == 0 && remote.size == 0) return false;  // not yet
  if (error == 0 && local.size == remote.size && std::memcmp(&local.storage, &remote.storage, local.size) == 0) {
    error = ECONNREFUSED;
  }
  if (error != 0) {
    peer_gone(error);
    return false;
  }
  connected_ = true;
  // The listening process may not have accepted yet. The process that has is checked when it sends something.
  const auto listener = known_ ? PeerUsers::Verdict{} : shared_.users->of_listener(fd_);
  if (listener.user == PeerUser::stranger) {
    die(listener.why.code(), listener.why.message());
    return false;
  }
  if (!flushing_) shared_.host.connected(shared_.host.context, peer_);
  return !dead_;
}

bool Connection::on_event(uint32_t events) {
  if (dead_) return false;
  if (!connected_ && !finish_connect()) return false;
  bool more = false;
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
    bool any = false;
    more = read(&any);
  }
  if ((events & EPOLLOUT) != 0 && !dead_) {
    if (sender_.idle()) {
      after_write();
    } else {
      write();
    }
  }
  return more;
}

// Discards input; returns the result of recv().
size_t Connection::drain() {
  const ssize_t n = recv(fd_, shared_.staging.data(), shared_.staging.size(), MSG_DONTWAIT);
  if (n == 0) peer_gone(0);
  if (n < 0 && !would_block(errno) && errno != EINTR) peer_gone(errno);
  return n > 0 ? static_cast<size_t>(n) : 0;
}

void Connection::refuse_strangers() {
  if (known_ || dead_) return;
  const auto peer = shared_.users->of_peer(fd_);
  known_ = peer.user == PeerUser::own;
  // Nothing is known of a process that has gone again. This needs no report: it is checked again if it sends something.
  if (peer.user == PeerUser::stranger) die(peer.why.code(), peer.why.message());
}

// Runs before anything of the peer is reported.
bool Connection::know_peer() {
  const auto peer = shared_.users->of_peer(fd_);
  known_ = peer.user == PeerUser::own;
  if (!known_) die(peer.why.code(), peer.why.message());
  return known_;
}

bool Connection::read(bool* any) {
  if (!connected_) return false;
  for (int round = 0; round < kReads; ++round) {
    if (dead_) return false;
    if (flushing_) {
      if (drain() == 0) return false;
      *any = true;
      continue;
    }
    iovec vectors[2];
    const size_t n = receiver_.targets(shared_.staging, vectors);
    const size_t room = vectors[0].iov_len + (n == 2 ? vectors[1].iov_len : 0);
    const ssize_t got = n == 1 ? recv(fd_, vectors[0].iov_base, room, MSG_DONTWAIT) : readv(fd_, vectors, 2);
    if (got < 0 && (would_block(errno) || errno == EINTR)) return false;
    *any = true;
    if (got <= 0) {
      peer_gone(got == 0 ? 0 : errno);
      return false;
    }
    if (!known_ && !know_peer()) return false;
    const char* why = receiver_.landed(static_cast<size_t>(got), shared_.staging, admitted_, *this);
    if (why == Receiver::kKeyUsedUp) {
      die(Code::closed, address_ + ": " + why);
    } else if (why != nullptr) {
      die(Code::damaged, address_ + (why == Receiver::kAltered ? ": " : " broke the protocol: ") + why);
    }
    // Ended tokens are reported before more is read: a peer that got all of an answer is done with it.
    if (!shared_.ended.empty()) return !dead_;
    // A short read has emptied the socket; a later arrival wakes the host again.
    if (static_cast<size_t>(got) < room) return false;
  }
  return !dead_;
}

void Connection::give_up() {
  die(Code::deadline, address_ + " did not take what was sent before the connection ended");
}

void Connection::out_of_memory() { die(Code::no_memory, "no memory for what came from " + address_); }

void Connection::finish() {
  close_socket();
  end_tokens(EndKind::pushed, status_, true);
  end_tokens(EndKind::received, status_, true);
  shared_.host.closed(shared_.host.context, peer_, static_cast<int32_t>(status_), reason_.c_str());
}

// --- input

void Connection::on_message(ConstBytes bytes) {
  shared_.host.message(shared_.host.context, peer_, bytes.data(), bytes.size());
}

void Connection::on_arrived(uint64_t token, uint64_t bytes) {
  if (shared_.host.arrived != nullptr) shared_.host.arrived(shared_.host.context, peer_, token, bytes);
}

void Connection::on_received(uint64_t token, Code status, uint64_t bytes) {
  drop_token(token);
  shared_.host.received(shared_.host.context, peer_, token, static_cast<int32_t>(status), bytes);
}

void Connection::on_pushed(uint64_t token) {
  drop_token(token);
  end_later(EndKind::pushed, Code::ok, token);
}

}  // namespace kvbm::copy::tcp
