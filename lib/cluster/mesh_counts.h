// What became of a node's connections since it began, for its metrics. Thread: the links'.
#pragma once

#include <cstdint>
#include <map>

#include "base/status.h"

namespace kvbm::cluster {

struct MeshCounts {
  uint64_t ready = 0;       // connections whose peer has proved that it is of the pool
  uint64_t violations = 0;  // messages that broke the protocol, or were changed on their way
  uint64_t epochs_refused = 0;  // invalidations that were not plausible, or had no room
  uint64_t epochs_put_off = 0;  // that came faster than they could be written down
  uint64_t leases_short = 0;    // records that were not held for a peer: leases had their share of the host
  uint64_t damaged = 0;     // records that arrived and were not what they have to be
  // Connections, and tries to have one, that ended, by why: closed (by either side), owner_gone (silence), damaged (the
  // protocol was broken), deadline (of the handshake), io_error (nobody is there), not_permitted (the key), ...
  std::map<Code, uint64_t> ended;
};

}  // namespace kvbm::cluster
