// One peer: a socket between a Sender and a Receiver, and its unfinished tokens.
//
// Invariant: the host's callbacks are made inside Transport::progress() only. A token that ends inside another call (a
// push that was sent at once, a cancelled post) waits in Shared::ended. After close_socket() no memory of the host is
// touched.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/io/fd.h"
#include "copy/flat_table.h"
#include "copy/tcp/peer_user.h"
#include "copy/tcp/receiver.h"
#include "copy/tcp/sender.h"
#include "copy/transport_abi.h"

namespace kvbm::copy::tcp {

enum class EndKind : uint8_t { pushed, received, writable };

// An event to be reported at the next progress().
struct End {
  EndKind kind = EndKind::pushed;
  Code status = Code::ok;
  uint64_t peer = 0;
  uint64_t token = 0;
};

// State that all connections of a transport share.
struct Shared {
  kvbm_transport_host_t host{};
  uint32_t queue_bytes = 0;
  uint64_t bulk_bytes = 0;
  std::unique_ptr<PeerUsers> users;  // null: peers may belong to any user
  Fd epoll;
  Ring<End> ended;
  size_t tokens = 0;  // unfinished ones of all peers: `ended` has room for each, so that ending one allocates nothing
  std::vector<uint64_t> dying;  // peers with a closed() that is due
  std::vector<std::byte> staging = std::vector<std::byte>(Receiver::kStagingBytes);
};

class Connection final : private ReceiverSink, private SenderSink {
 public:
  // Takes ownership of the socket; the caller watches it with epoll under the number `peer`.
  Connection(Shared& shared, uint64_t peer, int fd, bool connected, std::string address);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Code send(ConstBytes message);
  Code post(uint64_t tag, void* to, uint64_t bytes, uint64_t token);
  Code push(uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n, uint64_t token);
  Code cancel(uint64_t token);
  Code admit();
  Code protect(Protection how, const uint8_t* send_key, const uint8_t* receive_key);
  Code disconnect(bool flush, uint64_t give_up_ns);

  // Returns true if it stopped although there may be more to do.
  bool on_event(uint32_t events);
  // Like on_event(), for input only; *any is set if there was some.
  bool read(bool* any);
  // Ends an accepted connection if its other end belongs to another user.
  void refuse_strangers();
  // Ends a flush that has lasted too long.
  void give_up();
  void out_of_memory();
  // Ends all tokens and calls closed(). The object must not be used afterwards.
  void finish();
  void close_socket() noexcept;

  [[nodiscard]] uint64_t peer() const noexcept { return peer_; }
  [[nodiscard]] bool admitted() const noexcept { return admitted_; }
  [[nodiscard]] bool accepted() const noexcept { return accepted_; }
  [[nodiscard]] bool closing() const noexcept { return dead_ || flushing_; }
  // Returns when a disconnect that still flushes is cut short; kNever if none is in progress.
  [[nodiscard]] uint64_t give_up_ns() const noexcept { return give_up_ns_; }

 private:
  struct Token {
    EndKind kind = EndKind::pushed;
    uint64_t where = 0;  // a post's tag, a push's number
  };

  void on_message(ConstBytes bytes) override;
  void on_arrived(uint64_t token, uint64_t bytes) override;
  void on_received(uint64_t token, Code status, uint64_t bytes) override;
  void on_pushed(uint64_t token) override;
  [[nodiscard]] bool open() const override { return !closing(); }

  [[nodiscard]] Code usable() const noexcept { return closing() ? Code::closed : Code::ok; }
  [[nodiscard]] bool may_write() const noexcept { return connected_ && !dead_ && write_error_ == 0; }
  bool add_token(uint64_t token, EndKind kind, uint64_t where);
  bool drop_token(uint64_t token) noexcept;
  void end_later(EndKind kind, Code status, uint64_t token);
  void end_tokens(EndKind kind, Code status, bool now);
  Code send_guarded(ConstBytes message);
  void guard_failed();
  int64_t send_now(iovec* vectors, size_t n);
  void write();
  void after_write();
  bool finish_connect();
  size_t drain();
  void peer_gone(int error);
  bool know_peer();
  void die(Code status, std::string reason);
  void watch_output(bool wanted);

  Shared& shared_;
  const uint64_t peer_;
  int fd_;
  const bool accepted_;
  bool connected_;
  bool known_;  // the peer's user does not matter, or is known to be this user
  bool admitted_ = false;
  bool flushing_ = false;
  bool shut_down_ = false;
  bool dead_ = false;
  bool refused_ = false;  // send() returned AGAIN
  bool watching_output_;
  int write_error_ = 0;
  uint64_t give_up_ns_;
  Code status_ = Code::ok;
  std::string reason_;
  const std::string address_;
  Sender sender_;
  Receiver receiver_;
  FlatTable<Token> tokens_;
};

}  // namespace kvbm::copy::tcp
