// One node as seen from this one (Node::nodes).
#pragma once

#include <cstdint>

#include "cluster/coding/link_coder.h"
#include "cluster/mesh/mesh.h"
#include "cluster/same_host/same_host.h"

namespace kvbm::manager {

struct NodeRow {
  cluster::Mesh::NodeRow link;
  cluster::SameHost::State path;         // path by which its records are read
  uint64_t local_bytes = 0;              // bytes read in place
  cluster::LinkCoder::NodeState coding;  // codings requested from it, and those received
};

}  // namespace kvbm::manager
