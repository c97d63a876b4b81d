// Computes how far each node has the keys of a request, tier by tier, for routers to compare. Uses answers only;
// sends nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cluster/mesh/survey.h"
#include "manager/namespaces/namespace.h"

namespace kvbm::manager {

class LowerTiers;

// A holder has `prefix` leading keys of request `request` in this tier and faster ones. Faster ones alone have fewer.
struct LocatedRow {
  cluster::NodeId node;  // zero: this manager
  uint32_t request = 0;
  TierIndex tier = 0;
  uint64_t prefix = 0;
  uint64_t in_tier = 0;  // keys of the prefix with at least one part in this tier itself
  uint64_t bytes = 0;    // payload bytes of the prefix
  bool operator==(const LocatedRow&) const = default;
};

// A query for keys of several requests, one request after the other.
struct LocateRequest {
  std::span<const PartPlan> parts;
  std::span<const Key> keys;
  std::span<const size_t> request_keys;  // sums up to keys
};

// Returns each key of each part, in the order of a survey's answers.
std::vector<Identity> identities_of(const LocateRequest& request);
// Returns this manager's own answer in the form of a node's, with a zero id.
cluster::NodeAnswer own_answer(LowerTiers& lower, std::span<const Identity> ids);
// Returns rows sorted by request, then longest prefix, this manager first, fast tiers, ids. No row has a prefix of 0.
std::vector<LocatedRow> locate(const LocateRequest& request, std::span<const cluster::NodeAnswer> answers);

}  // namespace kvbm::manager
