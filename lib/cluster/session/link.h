// Connection to a peer as a session uses it: small messages in order, and bulk by tag. The authenticated peer link
// implements it over a transport; the contract is that of lib/copy/transport_abi.h. No call blocks, and none calls
// back into a session before it returns.
#pragma once

#include <cstdint>
#include <span>

#include "base/bytes.h"
#include "base/status.h"

namespace kvbm::cluster::session {

// A connection to an admitted peer; never 0, never reused.
using PeerId = uint64_t;

class Link {
 public:
  virtual ~Link() = default;
  // Sends a message. ok: the bytes were copied and will arrive in order. again: on_writable() of that peer follows.
  // Anything else: the peer is gone, and on_closed() was called or follows.
  virtual Code send(PeerId peer, ConstBytes message) = 0;
  // Posts memory for a push. The link owns it until on_received() of that token, which always follows, at the latest
  // just before on_closed() of the peer. again, and anything else: as for send().
  virtual Code post(PeerId peer, uint64_t tag, MutableBytes to, uint64_t token) = 0;
  // Pushes the pieces, one after the other, into memory that the peer posted under tag. The link owns them until
  // on_pushed(). It queues what it cannot send yet, so never again. Anything but ok: as for send().
  virtual Code push(PeerId peer, uint64_t tag, std::span<const ConstBytes> pieces, uint64_t token) = 0;
  // Asks that the token ends soon; its completion still follows.
  virtual void cancel(PeerId peer, uint64_t token) = 0;
  // Returns true if messages to the peer may name a grain (README.md, Slice).
  [[nodiscard]] virtual bool takes_grain(PeerId peer) const = 0;
  // Returns true if messages to the peer may name ways (README.md, Ways).
  [[nodiscard]] virtual bool takes_ways(PeerId peer) const = 0;
  // Returns true if transfers may use device memory that add_memory() has accepted (it refuses without hardware for
  // it); else that memory is for the host only.
  [[nodiscard]] virtual bool takes_device_memory() const = 0;
  // Registers memory with the transport, until the link ends. Any error: transfers must not use it.
  virtual Status add_memory(MutableBytes memory) = 0;
  // Ends the connection; on_closed() follows, on both sides.
  virtual void drop(PeerId peer) = 0;
};

}  // namespace kvbm::cluster::session
