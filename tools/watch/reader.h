// Reads an engine's events from its sockets: SUB for what happens, DEALER to its replay socket for what was missed.
//
// Used by one thread. Nothing that arrives ends it: what is not right is counted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "watch/event.h"
#include "watch/streams.h"
#include "watch/zmq_library.h"

namespace kvbm::watch {

struct ReaderOptions {
  std::string endpoint;
  std::string replay;  // empty: what was missed is lost
  std::string topic;
  int replay_timeout_ms = 2000;
};

struct Message {
  std::string stream;
  uint64_t sequence = 0;
  bool replayed = false;
  bool restarted = false;  // what was known of the stream no longer holds
  uint64_t lost = 0;       // messages before this one that could not be got back
  Batch batch;
};

struct ReaderCounts {
  uint64_t messages = 0;
  uint64_t events = 0;
  uint64_t malformed = 0;
  uint64_t unknown = 0;
  uint64_t gaps = 0;       // after the first message of a stream
  uint64_t missed = 0;     // messages in them
  uint64_t recovered = 0;  // messages that the replay socket gave, also those from before the first
  uint64_t lost = 0;
  uint64_t restarts = 0;
  uint64_t ignored = 0;  // messages of more streams than are followed
};

class Reader {
 public:
  using Heard = std::function<void(Message&&)>;

  // Code::invalid_argument for an endpoint that is none.
  static Result<std::unique_ptr<Reader>> open(Zmq& zmq, const ReaderOptions& options);

  // Takes what is there, waiting up to `timeout_ms` for the first or until `wake_fd` is readable.
  Status poll(int timeout_ms, int wake_fd, const Heard& heard);
  [[nodiscard]] const ReaderCounts& counts() const noexcept { return counts_; }

 private:
  Reader(Zmq& zmq, const ReaderOptions& options, std::unique_ptr<Socket> socket)
      : zmq_(zmq), options_(options), socket_(std::move(socket)) {}
  void take(const Socket::Frames& frames, int wake_fd, const Heard& heard);
  // The readable messages of [first, end) that the replay socket has, in order; returns how many of them are lost.
  uint64_t recover(const std::string& topic, const std::string& stream, const Arrival& arrival, int wake_fd,
                   const Heard& heard);
  void add(const Batch& batch);

  Zmq& zmq_;
  const ReaderOptions options_;
  std::unique_ptr<Socket> socket_;
  Streams streams_;
  ReaderCounts counts_;
};

// Whether `endpoint` is listened on: wildcards, to which engines connect. A named host is connected to.
bool is_wildcard(const std::string& endpoint);

}  // namespace kvbm::watch
