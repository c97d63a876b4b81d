// Outcomes of a node's connections since its start, for its metrics. Thread: the links'.
#pragma once

#include <cstdint>
#include <map>

#include "base/status.h"

namespace kvbm::cluster {

struct MeshCounts {
  uint64_t ready = 0;           // connections with a peer that has proved that it is of the pool
  uint64_t violations = 0;      // messages that broke the protocol, or were changed in transit
  uint64_t epochs_refused = 0;  // invalidations that were implausible, or for which the table was full
  uint64_t epochs_put_off = 0;  // invalidations that arrived faster than they could be written
  uint64_t leases_short = 0;    // records not leased to a peer because leases had used up their share of the host
  uint64_t damaged = 0;         // records that arrived damaged, or were other records
  // Connections and attempts that ended, by reason: closed (by either side), owner_gone (silence), damaged (the
  // protocol was broken), deadline (of the handshake), io_error (no listener), not_permitted (the key), ...
  std::map<Code, uint64_t> ended;
};

}  // namespace kvbm::cluster
