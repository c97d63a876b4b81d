#include "benchmark/socket_child.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/errno_status.h"
#include "base/memory/memory.h"
#include "benchmark/statistics.h"
#include "copy/tcp/tcp_transport.h"
#include "copy/transport.h"

namespace kvbm::benchmark {

Result<std::unique_ptr<Child>> Child::start(const std::function<void()>& work) {
  const pid_t pid = fork();
  if (pid < 0) return errno_status(errno, "the system refused a process", "bench");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    _exit(0);
  }
  return std::unique_ptr<Child>(new Child(pid));
}

Child::~Child() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

namespace {

// --- plain sockets

bool read_all(int fd, std::byte* to, uint64_t bytes) {
  while (bytes != 0) {
    const ssize_t n = recv(fd, to, bytes, 0);
    if (n <= 0) return false;
    to += n;
    bytes -= static_cast<uint64_t>(n);
  }
  return true;
}

bool write_all(int fd, const std::byte* from, uint64_t bytes) {
  while (bytes != 0) {
    const ssize_t n = send(fd, from, bytes, MSG_NOSIGNAL);
    if (n <= 0) return false;
    from += n;
    bytes -= static_cast<uint64_t>(n);
  }
  return true;
}

void no_delay(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// The source is not shared with the parent, because an arena is not inherited by a fork.
Result<std::unique_ptr<Arena>> make_source(uint64_t bytes) {
  ArenaOptions options;
  options.bytes = bytes;
  auto arena = Arena::map(options);
  if (!arena.ok()) return arena.status();
  for (uint64_t i = 0; i < bytes; i += 8) store_le<uint64_t>(arena.value()->data() + i, i * 0x9E3779B97F4A7C15ULL);
  return arena;
}

constexpr uint64_t kGuardedPiece = 128U << 10;

// OpenSSL over the bytes of a plain socket, in one direction, as each side of a measurement needs.
class Guarded {
 public:
  explicit Guarded(copy::Protection how) {
    const std::array<uint8_t, copy::FrameGuard::kKeyBytes> key{1};
    auto made = copy::FrameGuard::make(how, key.data());
    if (made.ok()) guard_ = std::move(made).value();
    enciphered_.resize(kGuardedPiece);
  }
  bool write(int fd, const std::byte* from, uint64_t bytes) {
    std::byte tag[copy::FrameGuard::kTagBytes];
    while (bytes != 0 && guard_ != nullptr) {
      const auto n = static_cast<size_t>(std::min(bytes, kGuardedPiece));
      const bool good = guard_->begin({}, n, codec::AesGcm::Use::seal) == Code::ok &&
                        guard_->seal({from, n}, enciphered_.data()) && guard_->finish(tag) &&
                        write_all(fd, guard_->encrypts() ? enciphered_.data() : from, n) &&
                        write_all(fd, tag, sizeof tag);
      if (!good) return false;
      from += n;
      bytes -= n;
    }
    return guard_ != nullptr;
  }
  bool read(int fd, std::byte* to, uint64_t bytes) {
    std::byte tag[copy::FrameGuard::kTagBytes];
    while (bytes != 0 && guard_ != nullptr) {
      const auto n = static_cast<size_t>(std::min(bytes, kGuardedPiece));
      const bool good = read_all(fd, to, n) && read_all(fd, tag, sizeof tag) &&
                        guard_->begin({}, n, codec::AesGcm::Use::open) == Code::ok && guard_->open({to, n}) &&
                        guard_->verify(tag);
      if (!good) return false;
      to += n;
      bytes -= n;
    }
    return guard_ != nullptr;
  }

 private:
  std::unique_ptr<copy::FrameGuard> guard_;
  std::vector<std::byte> enciphered_;
};

void answer_plain(int listener, uint64_t source_bytes, copy::Protection how) {
  const auto arena = make_source(source_bytes);
  if (!arena.ok()) return;
  const ConstBytes source(arena.value()->data(), source_bytes);
  const int fd = accept(listener, nullptr, nullptr);
  no_delay(fd);
  std::optional<Guarded> guarded;
  if (how != copy::Protection::off) guarded.emplace(how);
  Request request;
  uint64_t at = 0;
  while (read_all(fd, reinterpret_cast<std::byte*>(&request), sizeof request)) {
    for (uint64_t i = 0; i < request.count; ++i, at += request.bytes) {
      if (at + request.bytes > source.size()) at = 0;
      const std::byte* const from = source.data() + at;
      if (!(guarded ? guarded->write(fd, from, request.bytes) : write_all(fd, from, request.bytes))) return;
    }
  }
}

class PlainAsker final : public Asker {
 public:
  ~PlainAsker() override {
    if (fd_ >= 0) close(fd_);
  }
  Status start(uint64_t source_bytes, copy::Protection how = copy::Protection::off) {
    if (how != copy::Protection::off) guarded_.emplace(how);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof name;
    auto* address = reinterpret_cast<sockaddr*>(&name);
    if (bind(listener, address, size) != 0 || listen(listener, 1) != 0 || getsockname(listener, address, &size) != 0) {
      return errno_status(errno, "cannot listen", "loopback");
    }
    auto child = Child::start([&] { answer_plain(listener, source_bytes, how); });
    close(listener);
    if (!child.ok()) return child.status();
    child_ = std::move(child).value();
    if (connect(fd_, address, size) != 0) return errno_status(errno, "cannot connect", "loopback");
    no_delay(fd_);
    return {};
  }
  Status get(uint64_t count, uint64_t bytes, MutableBytes memory) override {
    const Request request{count, bytes, 0, {}};
    uint64_t at = 0;
    bool good = write_all(fd_, reinterpret_cast<const std::byte*>(&request), sizeof request);
    for (uint64_t i = 0; good && i < count; ++i, at += bytes) {
      if (at + bytes > memory.size()) at = 0;
      std::byte* const to = memory.data() + at;
      good = guarded_ ? guarded_->read(fd_, to, bytes) : read_all(fd_, to, bytes);
    }
    return good ? Status{} : errno_status(errno, "the plain connection broke", "loopback");
  }

 private:
  int fd_ = -1;
  std::unique_ptr<Child> child_;
  std::optional<Guarded> guarded_;
};

// --- the transport

// Sleeps until the transport has work, and runs it.
void drive(copy::Transport& transport) {
  uint64_t within = 0;
  if (transport.arm(within) == Code::ok) {
    pollfd fd{transport.fd(), POLLIN, 0};
    poll(&fd, 1, -1);
  }
  while (transport.progress()) {
  }
}

class Answerer final : public copy::TransportListener {
 public:
  explicit Answerer(ConstBytes source) : source_(source) {}
  void run(int address_pipe) {
    auto transport = copy::Transport::open(copy::tcp::ops(), {}, *this);
    if (!transport.ok()) return;
    transport_ = std::move(transport).value();
    const auto bound = transport_->listen("127.0.0.1:0");
    if (!bound.ok() || write(address_pipe, bound.value().c_str(), bound.value().size()) < 0) return;
    close(address_pipe);
    while (!gone_) drive(*transport_);
  }

 private:
  void peer_accepted(copy::Peer peer, std::string_view) override { transport_->admit(peer); }
  void peer_connected(copy::Peer) override {}
  void peer_message(copy::Peer peer, ConstBytes bytes) override {
    Request request;
    if (bytes.size() != sizeof request) return;
    std::memcpy(&request, bytes.data(), sizeof request);
    for (uint64_t i = 0; i < request.count; ++i, at_ += request.bytes) {
      if (at_ + request.bytes > source_.size()) at_ = 0;
      copy::Token token = 0;
      transport_->push(peer, request.first_tag + i, source_.subspan(at_, request.bytes), token);
    }
  }
  void pushed(copy::Peer, copy::Token, Code) override {}
  void received(copy::Peer, copy::Token, Code, uint64_t) override {}
  void peer_closed(copy::Peer, const Status&) override { gone_ = true; }

  const ConstBytes source_;
  std::unique_ptr<copy::Transport> transport_;
  uint64_t at_ = 0;
  bool gone_ = false;
};

void answer_by_transport(int address_pipe, uint64_t source_bytes) {
  const auto arena = make_source(source_bytes);
  if (arena.ok()) Answerer(ConstBytes(arena.value()->data(), source_bytes)).run(address_pipe);
}

class TransportAsker final : public Asker, private copy::TransportListener {
 public:
  ~TransportAsker() override { transport_.reset(); }
  Status start(uint64_t source_bytes) {
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) return errno_status(errno, "the system refused a descriptor", "pipe");
    auto child = Child::start([&] { answer_by_transport(pipe_fds[1], source_bytes); });
    close(pipe_fds[1]);
    char address[128] = "";
    const ssize_t n = child.ok() ? ::read(pipe_fds[0], address, sizeof address - 1) : 0;
    close(pipe_fds[0]);
    if (!child.ok()) return child.status();
    child_ = std::move(child).value();
    if (n <= 0) return {Code::io_error, "the child that answers could not listen"};
    auto transport = copy::Transport::open(copy::tcp::ops(), {}, *this);
    if (!transport.ok()) return transport.status();
    transport_ = std::move(transport).value();
    const auto peer = transport_->connect(address);
    if (!peer.ok()) return peer.status();
    peer_ = peer.value();
    transport_->admit(peer_);
    while (!connected_ && broken_.ok()) drive(*transport_);
    return broken_;
  }
  Status get(uint64_t count, uint64_t bytes, MutableBytes memory) override {
    const Request request{count, bytes, tag_, {}};
    uint64_t at = 0;
    for (uint64_t i = 0; i < count; ++i, at += bytes) {
      if (at + bytes > memory.size()) at = 0;
      copy::Token token = 0;
      transport_->post(peer_, tag_++, memory.subspan(at, bytes), token);
    }
    left_ = count;
    transport_->send(peer_, std::as_bytes(std::span(&request, 1)));
    while (left_ != 0 && broken_.ok()) drive(*transport_);
    return broken_;
  }

 private:
  void peer_accepted(copy::Peer, std::string_view) override {}
  void peer_connected(copy::Peer) override { connected_ = true; }
  void peer_message(copy::Peer, ConstBytes) override {}
  void pushed(copy::Peer, copy::Token, Code) override {}
  void received(copy::Peer, copy::Token, Code status, uint64_t) override {
    if (status == Code::ok) --left_;
  }
  void peer_closed(copy::Peer, const Status& status) override { broken_ = status; }

  std::unique_ptr<Child> child_;
  std::unique_ptr<copy::Transport> transport_;
  copy::Peer peer_ = 0;
  bool connected_ = false;
  Status broken_;
  uint64_t tag_ = 1;
  uint64_t left_ = 0;
};

template <class Kind, class... More>
Result<std::unique_ptr<Asker>> started(uint64_t source_bytes, More... more) {
  auto asker = std::make_unique<Kind>();
  if (Status s = asker->start(source_bytes, more...); !s.ok()) return s;
  return std::unique_ptr<Asker>(std::move(asker));
}

}  // namespace

Result<std::unique_ptr<Asker>> plain_asker(uint64_t source_bytes) { return started<PlainAsker>(source_bytes); }
Result<std::unique_ptr<Asker>> guarded_asker(uint64_t source_bytes, copy::Protection how) {
  return started<PlainAsker>(source_bytes, how);
}
Result<std::unique_ptr<Asker>> transport_asker(uint64_t source_bytes) { return started<TransportAsker>(source_bytes); }

Status time_answer(Asker& asker, uint64_t count, uint64_t bytes, MutableBytes memory, std::vector<double>& out) {
  const Stopwatch watch;
  Status s = asker.get(count, bytes, memory);
  out.push_back(watch.seconds());
  return s;
}

}  // namespace kvbm::benchmark
