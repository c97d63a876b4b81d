// Connection of a link: copy/transport_abi.h's calls on one peer. Implemented over the transport table, and by tests'
// networks.
//
// No call blocks or calls back. Memory of post() and push() is borrowed until the token's completion.
#pragma once

#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "cluster/wire/channel.h"
#include "copy/frame_guard.h"

namespace kvbm::cluster {

class PeerPort {
 public:
  virtual ~PeerPort() = default;
  // Sends a message. again: keep it and send it after writable(). Any other failure: the connection is ending.
  virtual Code send(ConstBytes message) = 0;
  // `token` names the operation until its completion, and is set only if it was accepted.
  virtual Code post(uint64_t tag, MutableBytes to, uint64_t& token) = 0;
  virtual Code push(uint64_t tag, std::span<const ConstBytes> pieces, uint64_t& token) = 0;
  virtual void cancel(uint64_t token) = 0;
  virtual void admit() = 0;
  // Protects everything after this call, and after the message being processed, with keys from the handshake.
  virtual Code protect(copy::Protection how, const ChannelKeys& keys) = 0;
  // Disconnects. closed() follows, after the completions of all tokens.
  virtual void disconnect(bool flush) = 0;
};

}  // namespace kvbm::cluster
