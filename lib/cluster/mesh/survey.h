// Asks every connected node which of these records it has: for routers, not for readers (a reader asks homes,
// peer_tier.h). Answers are not stored.
//
// Thread: the links'. Budget: one query to each node, in parts (peer_link.h); memory grows with nodes times records
// until the last one has answered.
#pragma once

#include <vector>

#include "cluster/mesh/mesh.h"

namespace kvbm::cluster {

struct NodeAnswer {
  NodeId node;
  bool whole = false;                  // every record was answered in time
  std::vector<wire::FoundItem> found;  // parallel to the records; unanswered ones count as not present
};

// Runs a survey. `done` runs once, when all have answered, or are gone, or the deadline has passed; answers by node
// id.
void survey(Mesh& mesh, std::vector<Identity> ids, uint64_t deadline_ns,
            UniqueFunction<void(std::vector<NodeAnswer>)> done);

}  // namespace kvbm::cluster
