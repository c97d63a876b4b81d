// How far each node has the keys of a request, tier by tier: what a router compares. From answers alone; asks nobody.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cluster/survey.h"
#include "manager/namespace.h"

namespace kvbm::manager {

class Manager;

// A holder has `prefix` leading keys of request `request` in this tier and faster ones. Faster ones alone have fewer.
struct LocatedRow {
  cluster::NodeId node;  // zero: this manager
  uint32_t request = 0;
  TierIndex tier = 0;
  uint64_t prefix = 0;
  uint64_t in_tier = 0;  // keys of the prefix of which something lies in this tier itself
  uint64_t bytes = 0;    // payload bytes of the prefix
  bool operator==(const LocatedRow&) const = default;
};

// What is asked for: keys of several requests, one request after the other.
struct LocateRequest {
  std::span<const PartPlan> parts;
  std::span<const Key> keys;
  std::span<const size_t> request_keys;  // sums up to keys
};

// Of each part each key: the order of a survey's answers.
std::vector<Identity> identities_of(const LocateRequest& request);
// What this manager itself has of them, as a node would answer, with a zero id.
cluster::NodeAnswer own_answer(Manager& manager, std::span<const Identity> ids);
// By request, the longest prefix first, then this manager, fast tiers, ids. No row says 0.
std::vector<LocatedRow> locate(const LocateRequest& request, std::span<const cluster::NodeAnswer> answers);

}  // namespace kvbm::manager
