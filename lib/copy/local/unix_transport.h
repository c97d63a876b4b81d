// The local link: a transport (transport_abi.h) between processes of one host and one user, over SOCK_SEQPACKET
// sockets. It also offers pools: memory that the other side maps and reads by itself (remote_pool.h). With a pool no
// bulk transfers are needed; push() and post() exist because every transport has them.
//
// Addresses are paths of sockets ("/run/x/kvbm.sock", "unix:" in front allowed). The kernel identifies the peer
// (peer_process.h). Its death is seen through its pidfd at once, even if a child that it forked holds the socket. A
// peer can use only its share of this process: a bounded number of frames a turn, kMaxPools mappings, peer_queue_bytes.
// An invalid frame, or descriptors where none belong, end the connection.
//
// Thread: as in transport_abi.h.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/io/fd.h"
#include "base/status.h"
#include "copy/local/remote_pool.h"
#include "copy/local/socket_path.h"
#include "copy/local/unix_peer.h"
#include "copy/transport_abi.h"

namespace kvbm::copy::local {

// The table of this transport; static.
const kvbm_transport_ops_t* unix_transport_ops() noexcept;

inline constexpr int32_t kLogWarning = 2;  // KVBM_LOG_WARNING

class UnixTransport {
 public:
  static constexpr size_t kMaxPeers = 1024;
  // Most peers that have not sent a hello.
  static constexpr size_t kMaxStrangers = 64;
  static constexpr uint64_t kHelloNs = 2'000'000'000;
  static constexpr uint64_t kLeaveNs = 3'000'000'000;
  static constexpr uint64_t kConnectNs = 2'000'000'000;
  static constexpr uint64_t kRetryNs = 5'000'000;
  static constexpr uint64_t kPauseNs = 100'000'000;

  // Returns the transport behind a pointer from unix_transport_ops()->open.
  static UnixTransport& of(kvbm_transport_t* transport) noexcept {
    return *reinterpret_cast<UnixTransport*>(transport);
  }

  static Result<std::unique_ptr<UnixTransport>> open(const kvbm_transport_options_t& options,
                                                     const kvbm_transport_host_t& host);
  ~UnixTransport();
  UnixTransport(const UnixTransport&) = delete;
  UnixTransport& operator=(const UnixTransport&) = delete;

  // Every peer that is admitted from now on gets this pool, before any message that is sent to it after admit(). The
  // memory is sealed (Arena with `shared`); the descriptor is duplicated. Returns the pool's id.
  Result<uint64_t> offer_pool(int fd, const tier::HostShape& shape);
  // Pools offered by an admitted peer; usable after the peer is gone.
  [[nodiscard]] std::vector<std::shared_ptr<RemotePool>> pools(kvbm_transport_peer_t peer);

  int fd() const noexcept { return epoll_.get(); }
  int32_t arm(uint64_t* within_ns) noexcept;
  uint32_t progress();
  Result<std::string> listen(const std::string& path);
  Result<uint64_t> connect(const std::string& address);
  Code admit(uint64_t peer);
  Code disconnect(uint64_t peer, bool flush);
  Code send(uint64_t peer, ConstBytes message);
  Code post(uint64_t peer, uint64_t tag, std::byte* to, uint64_t bytes, uint64_t token);
  Code push(uint64_t peer, uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t token);
  Code cancel(uint64_t peer, uint64_t token);

 private:
  struct Offered {
    Fd memory;
    PoolOffer offer;
  };
  UnixTransport(const kvbm_transport_options_t& options, const kvbm_transport_host_t& host);

  // Finds the peer if it exists and is open to calls; else returns why not.
  Code find(uint64_t id, UnixPeer*& peer) noexcept;
  // Set-up and end of a peer.
  UnixPeer& add_peer(Fd socket, const std::string& path);
  Status adopt(UnixPeer& peer);
  void try_connecting(UnixPeer& peer);
  void accept_from(ListeningSocket& from);
  void accept_one(Fd socket, const std::string& path);
  void pause_listening();
  void watch_listeners(bool on);
  void end(UnixPeer& peer, Code status, std::string reason);
  // Members for input (unix_receive.cc).
  void read_from(UnixPeer& peer, int frames);
  bool read_one(UnixPeer& peer);
  bool take_datagram(UnixPeer& peer, ConstBytes datagram, std::vector<Fd>& fds);
  bool take_hello(UnixPeer& peer, ConstBytes hello, size_t n_fds);
  bool take_pool(UnixPeer& peer, ConstBytes offer, const Fd& memory);
  void process_ended(UnixPeer& peer);
  // Members for output and timers.
  void pump(UnixPeer& peer);
  void watch_output(UnixPeer& peer);
  void handle(uint64_t name, uint32_t events);
  void set_timer(UnixPeer& peer, uint64_t when_ns);
  void run_timers();
  void timer_of(UnixPeer& peer);
  void mark(UnixPeer& peer);
  void tell(UnixPeer& peer);
  void log(int32_t level, const std::string& text) const;
  void refused(const UnixPeer& peer, const Status& why) const;

  const kvbm_transport_host_t host_;
  const uint32_t queue_bytes_;
  SystemClock clock_;
  Fd epoll_;
  std::deque<ListeningSocket> listeners_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<UnixPeer>> peers_;
  std::vector<std::byte> buffer_;
  std::vector<Offered> offered_;
  std::vector<uint64_t> marked_;  // peers with events for the host
  // Time and peer; peer 0: listening is resumed.
  std::set<std::pair<uint64_t, uint64_t>> timers_;
  size_t strangers_ = 0;  // accepted peers that have not sent a hello
};

}  // namespace kvbm::copy::local
