// The built-in transport: plain TCP sockets behind the table of copy/transport_abi.h.
//
// Nothing here blocks or has a thread. fd() is an epoll descriptor; sockets are level-triggered, so a read that came
// short needs no second one to learn that the socket is empty. Constants: README.md.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "copy/tcp/connection.h"

namespace kvbm::copy::tcp {

// The table; static.
const kvbm_transport_ops_t& ops() noexcept;

class TcpTransport {
 public:
  static Result<std::unique_ptr<TcpTransport>> open(const kvbm_transport_options_t& options,
                                                    const kvbm_transport_host_t& host);
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  [[nodiscard]] int fd() const noexcept { return shared_.epoll.get(); }
  Code arm(uint64_t* within_ns) const;
  uint32_t progress();
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] uint32_t features() const noexcept {
    return KVBM_TRANSPORT_PROTECT | (shared_.users != nullptr ? uint32_t{KVBM_TRANSPORT_OWN_USER} : 0U);
  }

  // Returns the address in use.
  Result<std::string> listen(std::string_view address);
  Result<uint64_t> connect(std::string_view address);
  Code admit(uint64_t peer);
  Code disconnect(uint64_t peer, bool flush);
  // Returns null if there is no such peer.
  [[nodiscard]] Connection* find(uint64_t peer) const noexcept;

 private:
  TcpTransport() = default;
  Result<Connection*> add(int fd, bool connected, std::string address);
  bool watch(int fd, uint32_t events, uint64_t name) const noexcept;
  bool handle(uint64_t name, uint32_t events);
  bool accept_from(const Fd& listener);
  void accepting(bool wanted);
  void settle_accepting();
  bool read_hot();
  bool poll_sockets();
  void tell_ended();
  void bury();
  void check_times();
  [[nodiscard]] uint64_t next_time() const noexcept;

  Shared shared_;
  SystemClock clock_;
  std::vector<Fd> listeners_;
  std::vector<std::unique_ptr<Connection>> slots_;  // a peer's low bits are its place
  std::vector<size_t> free_slots_;
  std::vector<uint64_t> flushing_;
  uint64_t serial_ = 0;
  size_t peers_ = 0;
  size_t strangers_ = 0;  // accepted, but not admitted
  bool accepting_ = true;
  uint64_t accept_again_ns_ = kNever;
  uint64_t hot_ = 0;  // the last peer with input, which is read before epoll is asked
  uint32_t hot_turns_ = 0;
};

}  // namespace kvbm::copy::tcp
