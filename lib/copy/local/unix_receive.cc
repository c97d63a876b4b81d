// Input of a peer: every datagram is checked as a whole before any of it is used.
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "copy/local/unix_transport.h"

namespace kvbm::copy::local {

namespace {

// Space for more descriptors than any frame carries, so that one too many is detected instead of cut off silently.
constexpr size_t kMaxFds = 4;
// Most frames that a dead process may have left: its socket's buffer, in the smallest frames.
constexpr int kLastFrames = 1024;

// Takes ownership at once: no descriptor of a bad message stays open.
void take_fds(msghdr& message, std::vector<Fd>& fds) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
      fds.emplace_back(fd);
    }
  }
}

}  // namespace

void UnixTransport::read_from(UnixPeer& peer, int frames) {
  for (int n = 0; n < frames && read_one(peer); ++n) {
  }
  if (peer.phase == Phase::dead) return;
  if (!peer.ended.empty()) mark(peer);
  const auto filling = peer.filling();
  if (filling.has_value() && host_.arrived != nullptr && !peer.leaving) {
    host_.arrived(host_.context, peer.id(), filling->first, filling->second);
  }
}

// Returns false if nothing more can be read from this peer now.
bool UnixTransport::read_one(UnixPeer& peer) {
  iovec part{buffer_.data(), buffer_.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t n = recvmsg(peer.fd(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (n < 0) {
    if (errno == EAGAIN) return false;
    // Reported once when the other side closed without reading everything: data that it sent before can still be read.
    if (errno == EINTR || errno == ECONNRESET) return true;
    end(peer, Code::io_error, std::string("the connection failed: ") + std::strerror(errno));
    return false;
  }
  std::vector<Fd> fds;
  if (message.msg_controllen != 0) take_fds(message, fds);
  if (n == 0 && fds.empty()) {
    const bool greeted = peer.phase == Phase::open;
    end(peer, Code::closed,
        greeted ? "the peer closed the connection" : "the other side refused: it may run as another user, or be full");
    return false;
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) {
    end(peer, Code::damaged, "a frame longer than any frame");
    return false;
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    // This also happens if the process has no descriptor left.
    end(peer, Code::damaged, "more descriptors than can be taken");
    return false;
  }
  return take_datagram(peer, {buffer_.data(), static_cast<size_t>(n)}, fds);
}

bool UnixTransport::take_datagram(UnixPeer& peer, ConstBytes datagram, std::vector<Fd>& fds) {
  if (peer.phase == Phase::greeting) return take_hello(peer, datagram, fds.size());
  FrameHeader header;
  if (const char* fault = peer.order.accept(datagram, fds.size(), peer.admitted, header)) {
    end(peer, Code::damaged, fault);
    return false;
  }
  if (peer.leaving) return true;
  const ConstBytes body = datagram.subspan(kFrameHeaderBytes);
  switch (header.kind) {
    case FrameKind::message:
      host_.message(host_.context, peer.id(), body.data(), body.size());
      break;
    case FrameKind::push:
      peer.take_push(header, body);
      break;
    case FrameKind::pool:
      return take_pool(peer, body, fds.front());
  }
  return peer.phase != Phase::dead;  // the host may have disconnected it
}

bool UnixTransport::take_hello(UnixPeer& peer, ConstBytes hello, size_t n_fds) {
  const Status said = n_fds == 0 ? check_hello(hello) : Status(Code::damaged, "a hello with descriptors");
  if (!said.ok()) {
    if (!peer.outgoing) refused(peer, said);
    end(peer, said.code(), said.message());
    return false;
  }
  peer.phase = Phase::open;
  if (!peer.outgoing) --strangers_;
  peer.announced = true;
  set_timer(peer, peer.leaving ? deadline_after(clock_, kLeaveNs) : kNever);
  watch_output(peer);
  if (peer.leaving) return true;
  if (peer.outgoing) {
    host_.connected(host_.context, peer.id());
  } else {
    const std::string who = "process " + std::to_string(peer.process.pid) + " at " + peer.path;
    host_.accepted(host_.context, peer.id(), who.c_str());
  }
  return peer.phase != Phase::dead;
}

bool UnixTransport::take_pool(UnixPeer& peer, ConstBytes offer, const Fd& memory) {
  auto decoded = decode_offer(offer);
  Status taken = decoded.status();
  if (taken.ok() && peer.pools.size() == UnixPeer::kMaxPools)
    taken = Status(Code::no_room, "a peer gave too many pools");
  if (taken.ok()) {
    auto pool = RemotePool::map(memory.get(), decoded.value(), duplicate(peer.process.pidfd.get()), peer.process.pid);
    taken = pool.status();
    if (taken.ok()) peer.pools.push_back(std::move(pool).value());
  }
  if (!taken.ok()) {
    end(peer, taken.code(), taken.message());
    return false;
  }
  return true;
}

// Messages sent before its end still count; a child of it that holds the socket does not.
void UnixTransport::process_ended(UnixPeer& peer) {
  read_from(peer, kLastFrames);
  end(peer, Code::closed, "process " + std::to_string(peer.process.pid) + " has ended");
}

}  // namespace kvbm::copy::local
