// Loads ZeroMQ when it is needed, so that a machine without it has the rest of the command.
//
// The command is built with zmq.h (KVBM_WITH_ZMQ); its sonames are tried at run time. The library stays loaded to the
// end.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace kvbm::watch {

struct ZmqFunctions;

enum class SocketKind { pub, sub, dealer, router };

// Used by one thread at a time.
class Socket {
 public:
  using Frames = std::vector<std::string>;

  Socket(const ZmqFunctions& functions, void* socket) : zmq_(functions), socket_(socket) {}
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  Status connect(const std::string& endpoint);
  Status bind(const std::string& endpoint);
  Status subscribe(std::string_view topic);
  // Returns the endpoint that was bound or connected last: the system may have chosen its port.
  [[nodiscard]] std::string endpoint() const;
  // Returns true when a message can be received; false after the time, or once `wake_fd` (-1: none) is readable.
  Result<bool> wait(int timeout_ms, int wake_fd) const;
  // Fails with Code::again if there is no message. More than kMaxFrames frames are read and dropped.
  Result<Frames> receive();
  Status send(std::span<const std::string> frames);

  static constexpr size_t kMaxFrames = 16;

 private:
  const ZmqFunctions& zmq_;
  void* socket_;
};

class Zmq {
 public:
  // Fails with Code::unsupported if it is not installed, or kvbm was built without its header.
  static Result<std::unique_ptr<Zmq>> load();
  // All sockets must be destroyed before.
  ~Zmq();
  Zmq(const Zmq&) = delete;
  Zmq& operator=(const Zmq&) = delete;

  // The socket refuses messages above `max_message` bytes, and then ends that connection.
  Result<std::unique_ptr<Socket>> socket(SocketKind kind, int64_t max_message, int high_water_mark);
  [[nodiscard]] std::string version() const;

 private:
  Zmq(const ZmqFunctions& functions, void* context) : zmq_(functions), context_(context) {}

  const ZmqFunctions& zmq_;
  void* context_;
};

}  // namespace kvbm::watch
