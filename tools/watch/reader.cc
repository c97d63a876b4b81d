#include "watch/reader.h"

#include <algorithm>
#include <chrono>

namespace kvbm::watch {

namespace {

constexpr int kHighWaterMark = 100'000;
constexpr size_t kMaxTopic = 1024;
constexpr int kTakenAtOnce = 1024;
// Limit of one replay. By default an engine holds 10,000 batches.
constexpr uint64_t kMaxReplayBytes = uint64_t{256} << 20;
constexpr uint64_t kEnd = ~uint64_t{0};

uint64_t sequence_of(const std::string& frame) {
  uint64_t sequence = 0;
  for (const char byte : frame) sequence = sequence << 8 | static_cast<uint8_t>(byte);
  return sequence;
}

std::string frame_of(uint64_t sequence) {
  std::string frame(8, '\0');
  for (size_t i = 0; i < 8; ++i) frame[i] = static_cast<char>(sequence >> (56 - 8 * i) & 0xff);
  return frame;
}

int left_until(std::chrono::steady_clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

}  // namespace

bool is_wildcard(const std::string& endpoint) {
  return endpoint.find('*') != std::string::npos || endpoint.find("0.0.0.0") != std::string::npos ||
         endpoint.find("[::]") != std::string::npos;
}

Result<std::unique_ptr<Reader>> Reader::open(Zmq& zmq, const ReaderOptions& options) {
  auto socket = zmq.socket(SocketKind::sub, static_cast<int64_t>(kMaxPayload), kHighWaterMark);
  if (!socket.ok()) return socket.status();
  if (Status subscribed = socket.value()->subscribe(options.topic); !subscribed.ok()) return subscribed;
  Status opened = is_wildcard(options.endpoint) ? socket.value()->bind(options.endpoint)
                                                : socket.value()->connect(options.endpoint);
  if (!opened.ok()) return opened;
  if (!options.replay.empty()) {
    // A bad endpoint is detected now, not at the first gap.
    auto asked = zmq.socket(SocketKind::dealer, static_cast<int64_t>(kMaxPayload), 0);
    if (!asked.ok()) return asked.status();
    if (Status connected = asked.value()->connect(options.replay); !connected.ok()) return connected;
  }
  return std::unique_ptr<Reader>(new Reader(zmq, options, std::move(socket).value()));
}

Status Reader::poll(int timeout_ms, int wake_fd, const Heard& heard) {
  const auto ready = socket_->wait(timeout_ms, wake_fd);
  if (!ready.ok()) return ready.status();
  if (!ready.value()) return {};
  for (int taken = 0; taken < kTakenAtOnce; ++taken) {
    auto frames = socket_->receive();
    if (!frames.ok()) return frames.status().code() == Code::again ? Status{} : frames.status();
    take(frames.value(), wake_fd, heard);
  }
  return {};
}

void Reader::add(const Batch& batch) {
  counts_.malformed += batch.malformed;
  counts_.unknown += batch.unknown;
  counts_.events += batch.events.size();
}

void Reader::take(const Socket::Frames& frames, int wake_fd, const Heard& heard) {
  ++counts_.messages;
  if (frames.size() != 3 || frames[1].size() != 8 || frames[0].size() > kMaxTopic) {
    ++counts_.malformed;
    return;
  }
  const uint64_t sequence = sequence_of(frames[1]);
  auto batch = decode(frames[2]);
  if (!batch.ok()) {
    ++counts_.malformed;
    streams_.skip(frames[0], sequence);
    return;
  }
  add(batch.value());
  const Arrival arrival = streams_.arrive(frames[0], batch.value().rank, sequence);
  if (!arrival.followed) {
    ++counts_.ignored;
    return;
  }
  Message message;
  message.stream = Streams::name(frames[0], batch.value().rank);
  message.sequence = sequence;
  message.batch = std::move(batch).value();
  counts_.restarts += arrival.restarted ? 1 : 0;
  const uint64_t recovered = counts_.recovered;
  if (arrival.missing != 0) {
    const uint64_t lost = recover(frames[0], message.stream, arrival, wake_fd, heard);
    if (!arrival.first) {  // messages before the first one seen are not lost
      ++counts_.gaps;
      counts_.missed += arrival.missing;
      counts_.lost += lost;
      message.lost = lost;
    }
  }
  message.restarted = arrival.restarted && counts_.recovered == recovered;
  heard(std::move(message));
}

uint64_t Reader::recover(const std::string& topic, const std::string& stream, const Arrival& arrival, int wake_fd,
                         const Heard& heard) {
  uint64_t first = arrival.missing_from;
  const uint64_t end = first + arrival.missing;
  uint64_t lost = arrival.missing;
  if (options_.replay.empty()) return lost;
  auto socket = zmq_.socket(SocketKind::dealer, static_cast<int64_t>(kMaxPayload), 0);
  const std::string request[2] = {"", frame_of(first)};
  if (!socket.ok() || !socket.value()->connect(options_.replay).ok() || !socket.value()->send(request).ok())
    return lost;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(options_.replay_timeout_ms);
  for (uint64_t bytes = 0; bytes < kMaxReplayBytes;) {
    const int left = left_until(until);
    const auto ready = socket.value()->wait(left, wake_fd);
    if (left == 0 || !ready.ok() || !ready.value()) return lost;
    const auto frames = socket.value()->receive();
    if (!frames.ok()) continue;
    const Socket::Frames& reply = frames.value();
    if (reply.size() != 4 || reply[2].size() != 8) {
      ++counts_.malformed;
      bytes += 4096;
      continue;
    }
    const uint64_t sequence = sequence_of(reply[2]);
    if (sequence == kEnd) return lost;
    bytes += 64 + reply[3].size();
    if (reply[1] != topic || sequence < first || sequence >= end) continue;
    first = sequence + 1;
    auto batch = decode(reply[3]);
    if (!batch.ok()) {
      ++counts_.malformed;
      continue;
    }
    if (Streams::name(topic, batch.value().rank) != stream) continue;
    add(batch.value());
    ++counts_.recovered;
    Message message;
    message.restarted = arrival.restarted && lost == arrival.missing;  // reported with the first new message
    --lost;
    message.stream = stream;
    message.sequence = sequence;
    message.replayed = true;
    message.batch = std::move(batch).value();
    heard(std::move(message));
  }
  return lost;
}

}  // namespace kvbm::watch
