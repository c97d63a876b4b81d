// Who is connected, as the tier of other processes (peer_tier.h) sees them: a mesh of nodes, or the processes of one
// host that share a tier set.
//
// Thread: that of executor(), but for executor() itself.
#pragma once

#include <span>
#include <vector>

#include "base/executor.h"
#include "base/ids.h"
#include "cluster/node.h"

namespace kvbm::cluster {

class PeerLink;

class Peers {
 public:
  virtual ~Peers() = default;
  [[nodiscard]] virtual Executor& executor() noexcept = 0;
  // Links that are ready, one for each node, in the same order every time.
  [[nodiscard]] virtual std::vector<PeerLink*> ready() const = 0;
  [[nodiscard]] virtual PeerLink* link_to(const NodeId& node) const = 0;
  // The homes of a key among those that are ready, the best one first, as many as there are and fit; this process is
  // passed over. Gives how many.
  virtual size_t homes(const Key& key, std::span<PeerLink*> out) const = 0;
  // Asked about a record that the node did not want: whether it takes none of that size, which is then said to whoever
  // reads the log.
  virtual bool too_large(const NodeId& /*node*/, uint64_t /*payload_bytes*/) { return false; }
};

}  // namespace kvbm::cluster
