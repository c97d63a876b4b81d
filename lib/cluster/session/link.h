// What a session asks of the connection to a peer: small messages in order, and bulk by tag.
// The authenticated peer link implements it over a transport; the contract is that of
// lib/copy/transport_abi.h. No call blocks, and none calls back into a session before it returns.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/status.h"

namespace kvbm::cluster::session {

// A connection to an admitted peer; never 0, never used again.
using PeerId = uint64_t;

class Link {
 public:
  virtual ~Link() = default;
  // ok: the bytes were copied and will arrive in order. again: on_writable() of that peer follows.
  // Anything else: the peer is gone, on_closed() has come or follows.
  virtual Code send(PeerId peer, ConstBytes message) = 0;
  // The memory is the link's until on_received() of that token, which always comes, at the latest just
  // before on_closed() of the peer. again, and anything else: as for send().
  virtual Code post(PeerId peer, uint64_t tag, MutableBytes to, uint64_t token) = 0;
  // Pieces one after the other into what the peer posted under tag. The memory is the link's until on_pushed().
  // What cannot go out yet waits inside: never again. Anything but ok: as for send().
  virtual Code push(PeerId peer, uint64_t tag, std::span<const ConstBytes> pieces, uint64_t token) = 0;
  // Asks that the token ends soon; its completion still comes.
  virtual void cancel(PeerId peer, uint64_t token) = 0;
  // Whether messages to the peer may name a grain (README.md, Slice).
  [[nodiscard]] virtual bool takes_grain(PeerId peer) const = 0;
  // Whether they may say ways (README.md, Ways).
  [[nodiscard]] virtual bool takes_ways(PeerId peer) const = 0;
  // Whether transfers may be in device memory that add_memory() has taken (it says no where no hardware reaches it); else it is for the host's alone.
  [[nodiscard]] virtual bool takes_device_memory() const = 0;
  // Makes memory known to the transport, until the link ends. Any error: transfers must not use it.
  virtual Status add_memory(MutableBytes memory) = 0;
  // Ends the connection; on_closed() follows, on both sides.
  virtual void drop(PeerId peer) = 0;
};

}  // namespace kvbm::cluster::session
