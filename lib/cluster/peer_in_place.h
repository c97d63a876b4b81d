// The tier of other nodes, reading in place: records that lie in the mapped host tier of a node of this machine
// (mapped_pools.h), at the slot that the node said.
//
// No message is sent: the record proves itself or is not there any more, and is then asked for over the link. Thread:
// any. Budget: two looks into tables in memory, each under its lock; for a batch whose locations are those of find(),
// two for all records of one node.
#pragma once

#include <memory>

#include "cluster/peer_commons.h"

namespace kvbm::cluster {

class PeerInPlace {
 public:
  using Place = PeerPlaces::Place;
  explicit PeerInPlace(std::shared_ptr<PeerCommons> commons) : commons_(std::move(commons)) {}

  void find(std::span<tier::InPlace> items) const;
  bool find(const Place& where, tier::InPlace& out) const;
  // Head and payload into the places of a get, each leaf compared as it is copied. Not ok: it was not there.
  Code read(tier::GetItem& item, const tier::InPlace& what) const;
  // What came of reading there; where another record has taken its place the slot is forgotten.
  void ended(std::span<const tier::InPlace> items) const;
  // Of a node whose memory is mapped here, and where in it the record lies is not known.
  [[nodiscard]] bool worth_asking(const Place& where) const;

 private:
  using Pool = MappedPools::Pool;
  void stale(const tier::InPlace& item, const Pool& pool) const;

  const std::shared_ptr<PeerCommons> commons_;
};

}  // namespace kvbm::cluster
