// Reads an engine's events from its sockets: SUB for new events, DEALER to its replay socket for missed ones.
//
// Used by one thread. No input ends it: invalid input is counted.
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
  std::string replay;  // empty: missed messages are lost
  std::string topic;
  int replay_timeout_ms = 2000;
};

struct Message {
  std::string stream;
  uint64_t sequence = 0;
  bool replayed = false;
  bool restarted = false;  // earlier knowledge of the stream is invalid
  uint64_t lost = 0;       // messages before this one that could not be recovered
  Batch batch;
};

struct ReaderCounts {
  uint64_t messages = 0;
  uint64_t events = 0;
  uint64_t malformed = 0;
  uint64_t unknown = 0;
  uint64_t gaps = 0;       // after the first message of a stream
  uint64_t missed = 0;     // messages in them
  uint64_t recovered = 0;  // messages from the replay socket, also those from before the first
  uint64_t lost = 0;
  uint64_t restarts = 0;
  uint64_t ignored = 0;  // messages of streams beyond the limit
};

class Reader {
 public:
  using Heard = std::function<void(Message&&)>;

  // Fails with Code::invalid_argument for an invalid endpoint.
  static Result<std::unique_ptr<Reader>> open(Zmq& zmq, const ReaderOptions& options);

  // Takes available messages, waiting up to `timeout_ms` for the first or until `wake_fd` is readable.
  Status poll(int timeout_ms, int wake_fd, const Heard& heard);
  [[nodiscard]] const ReaderCounts& counts() const noexcept { return counts_; }

 private:
  Reader(Zmq& zmq, const ReaderOptions& options, std::unique_ptr<Socket> socket)
      : zmq_(zmq), options_(options), socket_(std::move(socket)) {}
  void take(const Socket::Frames& frames, int wake_fd, const Heard& heard);
  // Requests the messages of [first, end) from the replay socket, in order, and passes on the readable ones. Returns
  // how many are lost.
  uint64_t recover(const std::string& topic, const std::string& stream, const Arrival& arrival, int wake_fd,
                   const Heard& heard);
  void add(const Batch& batch);

  Zmq& zmq_;
  const ReaderOptions options_;
  std::unique_ptr<Socket> socket_;
  Streams streams_;
  ReaderCounts counts_;
};

// Returns whether the reader listens on `endpoint`: wildcards, to which engines connect. It connects to a named host.
bool is_wildcard(const std::string& endpoint);

}  // namespace kvbm::watch
