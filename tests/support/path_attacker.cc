#include "support/path_attacker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "cluster/wire/channel.h"
#include "copy/frame_guard.h"
#include "copy/tcp/frame.h"
#include "support/forged_bulk.h"

namespace kvbm::test {

namespace {

using copy::tcp::Kind;
constexpr size_t kHeader = copy::tcp::kHeaderBytes;
constexpr size_t kReadAtOnce = 64 << 10;
constexpr size_t kAtProtect = 109;  // of a hello or reply (lib/cluster/README.md, Handshake)

Kind kind_of(const std::vector<std::byte>& frame) { return static_cast<Kind>(load_le<uint16_t>(frame.data() + 4)); }
uint32_t length_of(const std::vector<std::byte>& frame) { return load_le<uint32_t>(frame.data() + 8); }
uint64_t total_of(const std::vector<std::byte>& frame) { return load_le<uint64_t>(frame.data() + 24); }

sockaddr_in place_of(const std::string& address) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  out.sin_port = htons(static_cast<uint16_t>(std::strtoul(address.c_str() + address.rfind(':') + 1, nullptr, 10)));
  return out;
}

void set_up(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(fd, F_SETFL, O_NONBLOCK);
}

}  // namespace

const char* name_of(Attack attack) {
  static constexpr const char* kNames[] = {"none",   "header",   "payload", "tag",      "forge",
                                           "repeat", "exchange", "drop",    "truncate", "reflect"};
  return kNames[static_cast<size_t>(attack)];
}

size_t PathAttacker::Pair::tag_bytes() const {
  return std::max(ways[0].protect, ways[1].protect) == 0 ? 0 : copy::FrameGuard::kTagBytes;
}

PathAttacker::PathAttacker(const std::string& target) : target_(target) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in here = place_of("127.0.0.1:0");
  socklen_t size = sizeof here;
  if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&here), size) != 0 || listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size) != 0 || pipe2(wake_, O_CLOEXEC) != 0) {
    return;
  }
  address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
  thread_ = std::thread([this] { run(); });
}

PathAttacker::~PathAttacker() {
  stopping_ = true;
  if (thread_.joinable()) {
    if (write(wake_[1], "x", 1) < 0) std::abort();
    thread_.join();
  }
  for (const auto& pair : pairs_) {
    for (const int fd : pair->fds) close(fd);
  }
  for (const int fd : {listener_, wake_[0], wake_[1]}) {
    if (fd >= 0) close(fd);
  }
}

void PathAttacker::strike(const Aim& aim) {
  const std::lock_guard<std::mutex> lock(mutex_);
  aim_ = aim;
}

void PathAttacker::watch_for(std::string bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  watched_ = std::move(bytes);
  saw_ = false;
}

void PathAttacker::run() {
  while (!stopping_) {
    std::vector<pollfd> fds = {{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const auto& pair : pairs_) {
      for (int side = 0; side < 2; ++side) {
        const bool reads = !pair->ways[side].ended;
        const bool writes = !pair->ways[1 - side].out.empty();
        fds.push_back({pair->fds[side], static_cast<int16_t>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)), 0});
      }
    }
    poll(fds.data(), fds.size(), -1);
    for (size_t p = 0; p < pairs_.size(); ++p) {
      Pair& pair = *pairs_[p];
      for (int side = 0; side < 2 && !pair.broken; ++side) {
        if ((fds[2 + 2 * p + static_cast<size_t>(side)].revents & (POLLIN | POLLHUP | POLLERR)) != 0)
          read_from(pair, side);
      }
      for (int side = 0; side < 2 && !pair.broken; ++side) write_to(pair, side);
      if (pair.ways[0].shut && pair.ways[1].shut) pair.broken = true;
      if (!pair.broken) continue;
      for (const int fd : pair.fds) close(fd);
    }
    std::erase_if(pairs_, [](const auto& pair) { return pair->broken; });
    if ((fds[1].revents & POLLIN) != 0) accept_one();
  }
}

void PathAttacker::accept_one() {
  const int from = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  if (from < 0) return;
  const int to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in there = place_of(target_);
  if (to < 0 || connect(to, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) {
    if (to >= 0) close(to);
    close(from);
    return;
  }
  set_up(from);
  set_up(to);
  auto pair = std::make_unique<Pair>();
  pair->fds[0] = from;
  pair->fds[1] = to;
  pairs_.push_back(std::move(pair));
}

void PathAttacker::read_from(Pair& pair, int side) {
  Way& way = pair.ways[side];
  if (way.ended) return;
  std::vector<std::byte> bytes(kReadAtOnce);
  const ssize_t n = recv(pair.fds[side], bytes.data(), bytes.size(), 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) {
    pair.broken = true;
  } else if (n == 0) {
    way.ended = true;
    way.out.insert(way.out.end(), way.held.begin(), way.held.end());
  } else {
    way.in.insert(way.in.end(), bytes.begin(), bytes.begin() + n);
    take_frames(pair, side);
  }
}

void PathAttacker::take_frames(Pair& pair, int side) {
  Way& way = pair.ways[side];
  size_t at = 0;
  while (!pair.broken && !way.ended && way.in.size() - at >= kHeader) {
    const size_t tag = way.handshake != 0 ? 0 : pair.tag_bytes();
    const size_t whole = kHeader + load_le<uint32_t>(way.in.data() + at + 8) + tag;
    if (way.in.size() - at < whole) break;
    std::vector<std::byte> frame(way.in.begin() + static_cast<ptrdiff_t>(at),
                                 way.in.begin() + static_cast<ptrdiff_t>(at + whole));
    at += whole;
    take_frame(pair, side, std::move(frame));
  }
  way.in.erase(way.in.begin(), way.in.begin() + static_cast<ptrdiff_t>(at));
}

void PathAttacker::take_frame(Pair& pair, int side, std::vector<std::byte> frame) {
  Way& way = pair.ways[side];
  if (way.handshake != 0) {
    if (way.handshake-- == 2 && length_of(frame) > kAtProtect) {
      way.protect = std::to_integer<uint8_t>(frame[kHeader + kAtProtect]);
      tagged_ = pair.tag_bytes() != 0;
    }
    return pass(pair, side, std::move(frame));
  }
  look_for(way, frame);
  if (kind_of(frame) == Kind::message) {
    if (length_of(frame) > cluster::Channel::kOverhead) {
      ++seen_[std::to_integer<uint8_t>(frame[kHeader + cluster::Channel::kOverhead])];
    }
  } else {
    // Keeps the frames of a push until all are here, so that the whole push can be forged.
    way.rest = (kind_of(frame) == Kind::bulk ? total_of(frame) : way.rest) - length_of(frame);
    way.push.push_back(std::move(frame));
    return way.rest == 0 ? pass_push(pair, side) : void();
  }
  const Attack attack = take_aim(side, frame);
  if (attack == Attack::none) return pass(pair, side, std::move(frame));
  do_it(pair, side, std::move(frame), attack);
}

// Returns the attack to make on that frame. Each strike() is good for one attack.
Attack PathAttacker::take_aim(int side, const std::vector<std::byte>& frame) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool bulk = kind_of(frame) != Kind::message;
  if (aim_.from_target != (side == 1) || aim_.bulk != bulk) return Attack::none;
  const bool of_type = bulk || aim_.type == 0 ||
                       (length_of(frame) > cluster::Channel::kOverhead &&
                        std::to_integer<uint8_t>(frame[kHeader + cluster::Channel::kOverhead]) == aim_.type);
  return of_type ? std::exchange(aim_.attack, Attack::none) : Attack::none;
}

bool PathAttacker::forge(Pair& pair, Way& way) {
  std::vector<std::byte> bulk;
  for (const auto& frame : way.push) {
    bulk.insert(bulk.end(), frame.begin() + kHeader, frame.end() - static_cast<ptrdiff_t>(pair.tag_bytes()));
  }
  if (!forge_bulk(bulk, bulk.size() / 2)) return false;
  size_t at = 0;
  for (auto& frame : way.push) {
    std::copy_n(bulk.begin() + static_cast<ptrdiff_t>(at), length_of(frame), frame.begin() + kHeader);
    at += length_of(frame);
  }
  return true;
}

void PathAttacker::pass_push(Pair& pair, int side) {
  Way& way = pair.ways[side];
  Attack attack = take_aim(side, way.push.front());
  if (attack == Attack::forge && !forge(pair, way)) {
    attack = Attack::none;
    strike({Attack::forge, side == 1, true, 0});  // the next one may be a block
  }
  const std::vector<std::vector<std::byte>> frames = std::exchange(way.push, {});
  for (size_t i = 0; i < frames.size() && !way.ended; ++i) {
    if (i == 0 && attack == Attack::forge) {
      ++struck_;
      pass(pair, side, frames[i]);
    } else if (i == 0 && attack != Attack::none) {
      do_it(pair, side, frames[i], attack);
    } else {
      pass(pair, side, frames[i]);
    }
  }
}

void PathAttacker::do_it(Pair& pair, int side, std::vector<std::byte> frame, Attack attack) {
  Way& way = pair.ways[side];
  ++struck_;
  switch (attack) {
    case Attack::none:
    case Attack::forge:
      break;
    case Attack::header:
      frame[17] ^= std::byte{4};  // of a push its tag; of a message what has to be zero
      break;
    case Attack::payload:
      frame[kHeader + length_of(frame) / 2] ^= std::byte{16};
      break;
    case Attack::tag:
      frame.back() ^= std::byte{1};
      break;
    case Attack::repeat:
      pass(pair, side, frame);
      break;
    case Attack::exchange:
      way.held = std::move(frame);
      return;
    case Attack::drop:
      return;
    case Attack::truncate:
      frame.resize(frame.size() / 2);
      pass(pair, side, std::move(frame));
      way.ended = true;
      return;
    case Attack::reflect:
      pass(pair, 1 - side, frame);
      break;
  }
  pass(pair, side, std::move(frame));
}

void PathAttacker::pass(Pair& pair, int side, std::vector<std::byte> frame) {
  Way& way = pair.ways[side];
  way.out.insert(way.out.end(), frame.begin(), frame.end());
  if (way.held.empty()) return;
  const std::vector<std::byte> held = std::exchange(way.held, {});
  way.out.insert(way.out.end(), held.begin(), held.end());
}

void PathAttacker::look_for(Way& way, const std::vector<std::byte>& bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (watched_.empty()) return;
  way.tail.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (way.tail.find(watched_) != std::string::npos) saw_ = true;
  if (way.tail.size() > watched_.size()) way.tail.erase(0, way.tail.size() - watched_.size());
}

void PathAttacker::write_to(Pair& pair, int side) {
  Way& way = pair.ways[side];
  const int to = pair.fds[1 - side];
  if (!way.out.empty()) {
    const ssize_t n = send(to, way.out.data(), way.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) pair.broken = true;
    if (n > 0) way.out.erase(way.out.begin(), way.out.begin() + n);
  }
  if (way.ended && way.out.empty() && !way.shut) {
    way.shut = true;
    shutdown(to, SHUT_WR);
  }
}

}  // namespace kvbm::test
