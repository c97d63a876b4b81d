// Tier of other nodes, reads in place: records in the mapped host tier of a node of this machine (mapped_pools.h), at
// the slot that the node reported.
//
// No message is sent: the record proves itself, or is gone and is then requested over the link. Thread: any. Budget:
// two lookups in tables in memory, each under its lock; for a batch with locations from find(), two for all records
// of one node.
#pragma once

#include <memory>

#include "cluster/tier/peer_tier_context.h"

namespace kvbm::cluster {

class PeerInPlace {
 public:
  using Place = PeerPlaces::Place;
  explicit PeerInPlace(std::shared_ptr<PeerTierContext> context) : context_(std::move(context)) {}

  void find(std::span<tier::InPlace> items) const;
  bool find(const Place& where, tier::InPlace& out) const;
  // Copies head and payload to the places of a get, and compares each leaf on the way. Not ok: the record was not
  // there.
  Code read(tier::GetItem& item, const tier::InPlace& what) const;
  // Reports the outcome of such reads; if another record has taken a record's place, its slot is forgotten.
  void ended(std::span<const tier::InPlace> items) const;
  // Returns true if the node's memory is mapped here, and the record's place in it is not known.
  [[nodiscard]] bool worth_asking(const Place& where) const;

 private:
  using Pool = MappedPools::Pool;
  void stale(const tier::InPlace& item, const Pool& pool) const;

  const std::shared_ptr<PeerTierContext> context_;
};

}  // namespace kvbm::cluster
