// What a link needs of its connection: copy/transport_abi.h's calls on one peer. The node's face over the transport
// table implements it, and tests' networks.
//
// No call blocks or calls back. Memory of post() and push() is borrowed until the token's completion.
#pragma once

#include <span>

#include "base/bytes.h"
#include "base/status.h"
#include "cluster/channel.h"
#include "copy/frame_guard.h"

namespace kvbm::cluster {

class PeerPort {
 public:
  virtual ~PeerPort() = default;
  // again: keep the message and send it after writable(). Anything else that is not ok: the connection is ending.
  virtual Code send(ConstBytes message) = 0;
  // `token` names the operation until its completion, and is set only if it was accepted.
  virtual Code post(uint64_t tag, MutableBytes to, uint64_t& token) = 0;
  virtual Code push(uint64_t tag, std::span<const ConstBytes> pieces, uint64_t& token) = 0;
  virtual void cancel(uint64_t token) = 0;
  virtual void admit() = 0;
  // Everything after this call, and after the message that is being taken, is protected; the handshake gave the keys.
  virtual Code protect(copy::Protection how, const ChannelKeys& keys) = 0;
  // closed() follows, after the completions of all tokens.
  virtual void disconnect(bool flush) = 0;
};

}  // namespace kvbm::cluster
