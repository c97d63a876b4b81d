// One row of what a node says of the others (Node::nodes).
#pragma once

#include <cstdint>

#include "cluster/link_coder.h"
#include "cluster/mesh.h"
#include "cluster/same_host.h"

namespace kvbm::manager {

struct NodeRow {
  cluster::Mesh::NodeRow link;
  cluster::SameHost::State path;         // how its records are read
  uint64_t local_bytes = 0;              // that were read in place
  cluster::LinkCoder::NodeState coding;  // how it is asked, and what came
};

}  // namespace kvbm::manager
