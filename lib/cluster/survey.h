// Asks every node that is connected which of these records it has: what a router needs, and a reader does not (a reader
// asks homes, peer_tier.h). Nothing is remembered.
//
// Thread: the links'. Budget: one question of each node, in parts (peer_link.h); memory grows with nodes times records
// until the last one has answered.
#pragma once

#include <vector>

#include "cluster/mesh.h"

namespace kvbm::cluster {

struct NodeAnswer {
  NodeId node;
  bool whole = false;                  // every record was answered in time
  std::vector<wire::FoundItem> found;  // beside the records; what was not answered is not present
};

// `done` runs once, when all have answered, or have gone, or the deadline has passed; answers by node id.
void survey(Mesh& mesh, std::vector<Identity> ids, uint64_t deadline_ns,
            UniqueFunction<void(std::vector<NodeAnswer>)> done);

}  // namespace kvbm::cluster
