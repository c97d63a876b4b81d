// One connection of the local link: what waits to go out, what is posted, and where it stands.
// Not thread-safe: the transport's thread rule holds (transport_abi.h). Makes no callbacks; what ends is left in
// `ended`.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/fd.h"
#include "base/status.h"
#include "copy/local/frame.h"
#include "copy/local/peer_process.h"
#include "copy/local/remote_pool.h"
#include "copy/local/socket_path.h"

namespace kvbm::copy::local {

// connecting: the other side's queue was full; greeting: the hello of the other side is missing; dead: closed() is on
// its way.
enum class Phase : uint8_t { connecting, greeting, open, dead };

// A token that has ended, told to the host in progress().
struct Ended {
  bool received;  // a post, else a push
  uint64_t token;
  Code status;
  uint64_t bytes;
};

// One turn sends or reads at most this many frames, so that one peer does not keep the others waiting: 2 MiB.
inline constexpr int kFramesPerTurn = 32;

class UnixPeer {
 public:
  // Descriptors that one peer may have in this process as pools.
  static constexpr size_t kMaxPools = 8;

  UnixPeer(uint64_t id, Fd socket, uint32_t queue_bytes)
      : id_(id), socket_(std::move(socket)), queue_limit_(queue_bytes) {}

  [[nodiscard]] uint64_t id() const noexcept { return id_; }
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

  // Calls of the table, checked but for the phase.
  Code send(ConstBytes message);
  Code post(uint64_t tag, std::byte* to, uint64_t bytes, uint64_t token);
  Code push(uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t token);
  Code cancel(uint64_t token);
  // Queued like a message, and not counted as one.
  void send_pool(Fd memory, const PoolOffer& offer);
  void send_hello();

  // Sends what the socket takes, a bounded amount. closed: the other side takes no more.
  Code pump();
  // Also when sending has failed, so that the transport comes to see it.
  [[nodiscard]] bool wants_out() const noexcept { return broken_ || !messages_.empty() || !pushes_.empty(); }
  // True once after a refused send() when there is room again.
  bool take_writable() noexcept;
  // A push's bytes go where they were posted; true when `arrived` may be told, with its token and bytes.
  void take_push(const FrameHeader& header, ConstBytes body);
  // The post that is being filled, and how far it is; nothing if none is.
  [[nodiscard]] std::optional<std::pair<uint64_t, uint64_t>> filling() const noexcept;
  void end_posts(Code status);
  // Every token ends with that status, and nothing more goes out.
  void end_all(Code status);
  void close_socket() noexcept { socket_ = Fd(); }

  Phase phase = Phase::greeting;
  bool outgoing = false;  // this side connected
  bool admitted = false;
  bool told = false;                 // accepted() or connected() was called
  bool leaving = false;              // disconnect() was called: nothing is delivered, what waits goes out
  bool marked = false;               // is in the transport's list of peers to tell of
  uint64_t timer_ns = UINT64_MAX;    // of the hello, of the next try to connect, of leaving
  uint64_t give_up_ns = UINT64_MAX;  // of connecting
  uint32_t watched = 0;              // what epoll was told to look for
  std::string path;
  PeerProcess process;
  FrameOrder order;
  std::vector<std::shared_ptr<RemotePool>> pools;
  std::deque<Ended> ended;
  Code close_status = Code::closed;
  std::string close_reason;

 private:
  struct Outgoing {
    std::vector<std::byte> frame;
    Fd memory;  // goes with a pool's frame
    bool counted = false;
  };
  struct Post {
    std::byte* to;
    uint64_t bytes;
    uint64_t token;
  };
  struct Push {
    uint64_t tag;
    uint64_t token;
    std::vector<kvbm_transport_piece_t> pieces;
    size_t piece = 0;     // of which
    uint64_t within = 0;  // so many bytes are sent
    uint64_t total = 0;
    uint64_t sent = 0;
  };

  Code send_datagram(const iovec* parts, size_t n, int memory);
  Code pump_messages();
  Code pump_push(Push& push);
  void finish(bool received, uint64_t token, Code status, uint64_t bytes);

  const uint64_t id_;
  Fd socket_;
  const uint32_t queue_limit_;
  std::deque<Outgoing> messages_;
  uint64_t queued_bytes_ = 0;
  bool refused_ = false;
  bool broken_ = false;  // sending has failed: the other side reads no more
  std::deque<Push> pushes_;
  std::map<uint64_t, Post> posts_;  // by tag
  std::set<uint64_t> tokens_;
  // The push coming in; no post: its bytes are thrown away.
  std::optional<Post> filling_;
  uint64_t filled_ = 0;
};

}  // namespace kvbm::copy::local
