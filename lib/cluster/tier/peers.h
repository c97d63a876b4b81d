// Connected nodes or processes as seen by the tier over them (peer_tier.h): a mesh of nodes, or the processes of one
// host that share a tier set.
//
// Thread: that of executor(), except for executor() itself.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "base/thread/executor.h"
#include "cluster/node.h"

namespace kvbm::cluster {

class PeerLink;

class Peers {
 public:
  virtual ~Peers() = default;
  [[nodiscard]] virtual Executor& executor() noexcept = 0;
  // Returns the ready links, one for each node, always in the same order.
  [[nodiscard]] virtual std::vector<PeerLink*> ready() const = 0;
  [[nodiscard]] virtual PeerLink* link_to(const NodeId& node) const = 0;
  // Writes the homes of a key among the ready links to `out`, the best one first, as many as exist and fit; this
  // process is left out. Returns their number.
  virtual size_t homes(const Key& key, std::span<PeerLink*> out) const = 0;
  // Returns true if the node takes no record of that size, which is then logged. Called for a record that the node
  // did not want.
  virtual bool too_large(const NodeId& /*node*/, uint64_t /*payload_bytes*/) { return false; }
};

}  // namespace kvbm::cluster
