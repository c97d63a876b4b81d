#include "support/faulty_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace kvbm::test {

namespace {

constexpr size_t kRead = 32 << 10;
// Most bytes that wait for one side; beyond them nothing more is read from the other side.
constexpr size_t kSlowPiece = 2048;  // sent at a time where a direction is slowed
constexpr size_t kMostWaiting = 256 << 10;
constexpr uint64_t kLongestDelayNs = 50'000'000;
constexpr int kTurnMs = 5;

sockaddr_in loopback(const std::string& address) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const size_t colon = address.rfind(':');
  out.sin_port = htons(static_cast<uint16_t>(std::strtoul(address.c_str() + colon + 1, nullptr, 10)));
  return out;
}

uint64_t now_ns() { return SystemClock().now_ns(); }

void prepare(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

}  // namespace

const char* name_of(Fault fault) {
  static constexpr const char* kNames[] = {"none",      "cut",  "reset", "garble",  "overwrite",
                                           "duplicate", "drop", "delay", "withhold"};
  return kNames[static_cast<size_t>(fault)];
}

FaultyProxy::FaultyProxy(const std::string& target, uint64_t seed) : random_(seed), target_(target) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in here = loopback("127.0.0.1:0");
  socklen_t size = sizeof here;
  if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&here), size) != 0 || listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size) != 0 || pipe2(wake_, O_CLOEXEC) != 0) {
    return;
  }
  address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
  thread_ = std::thread([this] { run(); });
}

FaultyProxy::~FaultyProxy() {
  stopping_ = true;
  if (thread_.joinable()) {
    if (write(wake_[1], "x", 1) < 0) std::abort();
    thread_.join();
  }
  for (const auto& pair : pairs_) close_pair(*pair);
  for (const int fd : {listener_, wake_[0], wake_[1]}) {
    if (fd >= 0) close(fd);
  }
}

void FaultyProxy::set(Fault fault, uint64_t every_bytes) {
  const uint64_t epoch = (setting_ >> 48) + 1;
  setting_ = epoch << 48 | static_cast<uint64_t>(fault) << 40 | (every_bytes & ((1ULL << 40) - 1));
}

void FaultyProxy::retarget(const std::string& target) {
  const std::lock_guard<std::mutex> lock(mutex_);
  target_ = target;
}

std::vector<std::string> FaultyProxy::recorded() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return recorded_;
}

void FaultyProxy::run() {
  while (!stopping_) {
    std::vector<pollfd> fds = {{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    const uint64_t now = now_ns();
    for (const auto& pair : pairs_) {
      for (int side = 0; side < 2; ++side) {
        const Way& out = pair->ways[side];
        const Way& in = pair->ways[1 - side];
        const bool reads = !out.ended && out.waiting.size() < kMostWaiting;
        const bool writes = !in.waiting.empty() && in.held_until_ns <= now;
        fds.push_back({pair->fds[side], static_cast<int16_t>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
      }
    }
    poll(fds.data(), fds.size(), kTurnMs);
    for (size_t p = 0; p < pairs_.size(); ++p) {
      Pair& pair = *pairs_[p];
      for (int side = 0; side < 2; ++side) {
        const int16_t events = fds[2 + 2 * p + static_cast<size_t>(side)].revents;
        if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !pair.broken) read_from(pair, side);
      }
      for (int way = 0; way < 2 && !pair.broken; ++way) write_to(pair, way);
      if (pair.ways[0].shut && pair.ways[1].shut) pair.broken = true;
      if (pair.broken) close_pair(pair);
    }
    std::erase_if(pairs_, [](const auto& pair) { return pair->broken; });
    if ((fds[1].revents & POLLIN) != 0) accept_one();
  }
}

void FaultyProxy::accept_one() {
  const int from = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (from < 0) return;
  const int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in there{};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    there = loopback(target_);
  }
  if (to < 0 || connect(to, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) {
    if (to >= 0) close(to);
    close(from);
    return;
  }
  fcntl(to, F_SETFL, O_NONBLOCK);
  prepare(from);
  prepare(to);
  auto pair = std::make_unique<Pair>();
  pair->fds[0] = from;
  pair->fds[1] = to;
  pairs_.push_back(std::move(pair));
  ++accepted_;
}

void FaultyProxy::read_from(Pair& pair, int side) {
  Way& way = pair.ways[side];
  if (way.ended) return;
  std::string bytes(kRead, '\0');
  const ssize_t n = recv(pair.fds[side], bytes.data(), bytes.size(), 0);
  if (n < 0 && errno == EAGAIN) return;
  if (n < 0) {
    pair.broken = true;
    return;
  }
  if (n == 0) {
    way.ended = true;
    return;
  }
  bytes.resize(static_cast<size_t>(n));
  if (side == 0 && pair.recorded.size() < kRecorded) pair.recorded += bytes;
  pass(pair, side, std::move(bytes));
}

// Passes bytes on, with the faults that are set.
void FaultyProxy::pass(Pair& pair, int index, std::string bytes) {
  Way& way = pair.ways[index];
  const uint64_t setting = setting_;
  const auto fault = static_cast<Fault>(setting >> 40 & 0xFF);
  const uint64_t every = setting & ((1ULL << 40) - 1);
  if (way.epoch != setting >> 48) {
    way.epoch = setting >> 48;
    way.until_fault = fault == Fault::none ? UINT64_MAX : random_.below(2 * every + 1);
  }
  while (way.until_fault < bytes.size() && !way.withheld && !pair.broken) {
    const auto at = static_cast<size_t>(way.until_fault);
    const size_t some = std::min<size_t>(1 + random_.below(4096), bytes.size() - at);
    way.until_fault = at + some + random_.below(2 * every + 1);
    ++faults_;
    switch (fault) {
      case Fault::none:
        break;
      case Fault::cut:
      case Fault::reset:
        pair.broken = true;
        pair.reset = fault == Fault::reset;
        break;
      case Fault::garble:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random_.below(8)));
        break;
      case Fault::overwrite:
        for (size_t i = at; i < std::min(at + 64, bytes.size()); ++i) bytes[i] = static_cast<char>(random_.next());
        break;
      case Fault::duplicate:
        bytes.insert(at, bytes.substr(at, some));
        way.until_fault += some;
        break;
      case Fault::drop:
        bytes.erase(at, some);
        way.until_fault -= some;
        break;
      case Fault::delay:
        way.held_until_ns = now_ns() + random_.below(kLongestDelayNs);
        break;
      case Fault::withhold:
        bytes.resize(at);
        way.withheld = true;
        way.waiting += bytes;
        break;
    }
  }
  if (way.until_fault != UINT64_MAX) way.until_fault -= std::min<uint64_t>(way.until_fault, bytes.size());
  if (!way.withheld) way.waiting += bytes;
}

void FaultyProxy::write_to(Pair& pair, int index) {
  Way& way = pair.ways[index];
  const uint64_t now = now_ns();
  if (way.held_until_ns > now) return;
  const uint64_t rate = rate_;
  if (rate != 0 && next_ns_[index] > now) {
    way.held_until_ns = next_ns_[index];
    return;
  }
  if (!way.waiting.empty()) {
    const size_t most = rate != 0 ? std::min(way.waiting.size(), kSlowPiece) : way.waiting.size();
    const ssize_t n = send(pair.fds[1 - index], way.waiting.data(), most, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) pair.broken = true;
    if (n > 0) way.waiting.erase(0, static_cast<size_t>(n));
    if (n > 0 && rate != 0) next_ns_[index] = now + static_cast<uint64_t>(n) * 1'000'000'000 / rate;
  }
  if (way.ended && way.waiting.empty() && !way.shut) {
    way.shut = true;
    shutdown(pair.fds[1 - index], SHUT_WR);
  }
}

void FaultyProxy::close_pair(Pair& pair) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (recorded_.size() < 1024) recorded_.push_back(pair.recorded.substr(0, kRecorded));
  }
  for (int& fd : pair.fds) {
    const linger at_once = {1, 0};
    if (pair.reset && fd >= 0) setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (fd >= 0) close(fd);
    fd = -1;
  }
}

}  // namespace kvbm::test
