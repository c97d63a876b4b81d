// The C++ interface of a transport table (copy/transport_abi.h), with types, and with the table's promises checked.
//
// A Transport is used by one thread at a time: a TransportThread's (copy/transport_thread.h), or the simulation's.
//
// Invariant: every accepted operation ends with exactly one call of the listener. This also holds when the transport is
// closed, and for a module that reports an end twice, for an unknown token, or not at all before closed(). Memory is
// borrowed until that call. Budget: no allocation a call once the table of tokens has its size, no lock.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "base/telemetry/log.h"
#include "copy/flat_table.h"
#include "copy/frame_guard.h"
#include "copy/transport_abi.h"

namespace kvbm::copy {

using Peer = kvbm_transport_peer_t;
using Token = kvbm_transport_token_t;

// Events of a transport. Called inside Transport::progress() and Transport::close() only. A call may use the transport,
// but not these two.
class TransportListener {
 public:
  virtual ~TransportListener() = default;
  virtual void peer_accepted(Peer peer, std::string_view address) = 0;
  virtual void peer_connected(Peer peer) = 0;
  // bytes is borrowed and aligned to 8. Until the peer is admitted, at most KVBM_TRANSPORT_STRANGER_BYTES.
  virtual void peer_message(Peer peer, ConstBytes bytes) = 0;
  virtual void peer_writable(Peer) {}
  virtual void pushed(Peer peer, Token token, Code status) = 0;
  // The first `bytes` bytes of a post are in place and will not change.
  virtual void arrived(Peer, Token, uint64_t) {}
  // A post or get has ended; bytes is 0 unless status is ok.
  virtual void received(Peer peer, Token token, Code status, uint64_t bytes) = 0;
  // The last call for a peer, also for one that never connected.
  virtual void peer_closed(Peer peer, const Status& status) = 0;
};

struct TransportOptions {
  uint32_t peer_queue_bytes = 1U << 20;
  uint64_t peer_bulk_bytes = 16ULL << 20;
  // Network devices to use, with commas; empty: all that the transport finds.
  std::string devices;
  std::string transports;
  // Refuses processes of other users. The transport cannot be opened if the system does not reveal a peer's user.
  bool own_user_only = false;
};

class Transport {
 public:
  // The table and the listener outlive the transport; so does the log, if there is one.
  static Result<std::unique_ptr<Transport>> open(const kvbm_transport_ops_t& ops, const TransportOptions& options,
                                                 TransportListener& listener, const Log* log = nullptr);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // Ends everything: each unfinished operation with Code::closed, then each peer. Later calls return Code::closed.
  void close();

  [[nodiscard]] int fd() const noexcept;
  // ok: sleep until fd() is readable, at most *within_ns. again: progress() first.
  [[nodiscard]] Code arm(uint64_t& within_ns);
  // Returns true if it must be called again for more.
  bool progress();
  [[nodiscard]] uint32_t features() const noexcept;
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] const char* name() const noexcept { return ops_.name; }
  // Returns the transport itself, for calls that a built-in transport has beyond its table; null once it is closed.
  [[nodiscard]] kvbm_transport_t* handle() const noexcept { return transport_; }

  Result<std::string> listen(const std::string& address);
  Result<Peer> connect(const std::string& address);
  Code admit(Peer peer);
  // Needs KVBM_TRANSPORT_PROTECT in features(); Code::unsupported elsewhere. Keys of FrameGuard::kKeyBytes; `how` not
  // off.
  Code protect(Peer peer, Protection how, const uint8_t* send_key, const uint8_t* receive_key);
  Code disconnect(Peer peer, bool flush);

  Code send(Peer peer, ConstBytes message);
  // `token` is set only if the operation was accepted.
  Code post(Peer peer, uint64_t tag, MutableBytes to, Token& token);
  Code push(Peer peer, uint64_t tag, const kvbm_transport_piece_t* pieces, size_t n_pieces, Token& token);
  Code push(Peer peer, uint64_t tag, ConstBytes bytes, Token& token);
  // ok: requested; the end is still reported. stale_handle: it has ended.
  Code cancel(Peer peer, Token token);

  // One-sided reads, if features() has KVBM_TRANSPORT_GET; Code::unsupported elsewhere.
  struct Memory {
    uint64_t name = 0;
    std::string key;  // for the reader
  };
  Result<Memory> add_memory(MutableBytes memory);
  // Adds memory of a device, if features() has KVBM_TRANSPORT_DEVICE; also unsupported if no hardware reaches it.
  Result<uint64_t> add_device_memory(MutableBytes memory);
  Code remove_memory(uint64_t name);
  Code get(Peer peer, MutableBytes to, uint64_t remote_address, std::string_view key, Token& token);

  [[nodiscard]] size_t unfinished() const noexcept { return tokens_.size(); }
  [[nodiscard]] size_t peers() const noexcept { return peers_.size(); }

 private:
  struct Operation {
    Peer peer = 0;
    bool push = false;
  };

  Transport(const kvbm_transport_ops_t& ops, TransportListener& listener, const Log* log);
  template <class Call>
  Code start(Peer peer, bool push, Token& token, Call&& call);
  bool ended(Peer peer, Token token, bool push, const char* what);
  void end_operations(Peer peer, Code status);
  void complain(const char* what, uint64_t value) const;

  const kvbm_transport_ops_t& ops_;
  TransportListener& listener_;
  const Log* const log_;
  kvbm_transport_host_t host_{};
  kvbm_transport_t* transport_ = nullptr;
  Token last_token_ = 0;
  FlatTable<Operation> tokens_;
  FlatTable<bool> peers_;  // not closed yet
};

}  // namespace kvbm::copy
