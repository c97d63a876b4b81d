// One connection of the local link: its output queue, its posts and its phase. Not thread-safe: the transport's thread
// rule holds (transport_abi.h). Makes no callbacks: ended tokens are left in `ended`.
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
#include "base/io/fd.h"
#include "base/status.h"
#include "copy/local/frame.h"
#include "copy/local/peer_process.h"
#include "copy/local/remote_pool.h"
#include "copy/local/socket_path.h"

namespace kvbm::copy::local {

// connecting: the other side's queue was full; greeting: the hello of the other side is missing; dead: closed() is due.
enum class Phase : uint8_t { connecting, greeting, open, dead };

// A token that has ended, to be reported to the host in progress().
struct Ended {
  bool received;  // a post, else a push
  uint64_t token;
  Code status;
  uint64_t bytes;
};

// Most frames that one turn sends or reads, so that one peer does not keep the others waiting: 2 MiB.
inline constexpr int kFramesPerTurn = 32;

class UnixPeer {
 public:
  // Most descriptors of pools that one peer may have in this process.
  static constexpr size_t kMaxPools = 8;

  UnixPeer(uint64_t id, Fd socket, uint32_t queue_bytes)
      : id_(id), socket_(std::move(socket)), queue_limit_(queue_bytes) {}

  [[nodiscard]] uint64_t id() const noexcept { return id_; }
  [[nodiscard]] int fd() const noexcept { return socket_.get(); }

  // Calls of the transport's table for this peer. Arguments were checked before; each call checks the peer's phase.
  Code send(ConstBytes message);
  Code post(uint64_t tag, std::byte* to, uint64_t bytes, uint64_t token);
  Code push(uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t token);
  Code cancel(uint64_t token);
  // Queued like a message, but not counted as one.
  void send_pool(Fd memory, const PoolOffer& offer);
  void send_hello();

  // Sends as much as the socket takes, within a limit. closed: the other side takes no more.
  Code pump();
  // Returns true if the socket must be watched for output. Also after sending has failed, so that the transport notices
  // the failure.
  [[nodiscard]] bool wants_out() const noexcept { return broken_ || !messages_.empty() || !pushes_.empty(); }
  // Returns true once after a refused send() when there is room again.
  bool take_writable() noexcept;
  // Copies a push's bytes to their post; returns true if `arrived` may be reported, with its token and bytes.
  void take_push(const FrameHeader& header, ConstBytes body);
  // Returns the token of the post that is being filled, and its bytes so far; nullopt if there is none.
  [[nodiscard]] std::optional<std::pair<uint64_t, uint64_t>> filling() const noexcept;
  void end_posts(Code status);
  // Ends every token with `status`; nothing more is sent.
  void end_all(Code status);
  void close_socket() noexcept { socket_ = Fd(); }

  Phase phase = Phase::greeting;
  bool outgoing = false;  // this side connected
  bool admitted = false;
  bool announced = false;            // accepted() or connected() was called
  bool leaving = false;              // disconnect() was called: nothing is delivered, queued output is sent
  bool marked = false;               // is in the transport's list of peers to report on
  uint64_t timer_ns = UINT64_MAX;    // of the hello, of the next try to connect, or of leaving
  uint64_t give_up_ns = UINT64_MAX;  // of connecting
  uint32_t watched = 0;              // events that epoll watches for
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
    Fd memory;  // sent with a pool's frame
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
    size_t piece = 0;     // current piece
    uint64_t within = 0;  // bytes of it that are sent
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
  // The post of the push being received; none: its bytes are discarded.
  std::optional<Post> filling_;
  uint64_t filled_ = 0;
};

}  // namespace kvbm::copy::local
