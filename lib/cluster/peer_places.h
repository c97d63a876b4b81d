// Which node has which record, as far as the tier of other nodes has learnt, and that tier's figures.
//
// What is known is a hint: a record that is not there any more is a miss and forgotten, a wrong one shows when it
// arrives. Thread: any. Lock: mutex_, a leaf.
#pragma once

#include <map>
#include <span>

#include "base/mutex.h"
#include "cluster/link_types.h"
#include "cluster/locations.h"
#include "tier/tier.h"

namespace kvbm::cluster {

class PeerPlaces {
 public:
  // Where a record is.
  struct Place {
    NodeId node;
    NodeIndex index = kNoNode;
    uint32_t head_bytes = 0;
    uint64_t payload_bytes = 0;
    uint64_t hint = 0;
    uint8_t tier = 0;  // of its node's
  };

  PeerPlaces(uint64_t memory_bytes, const Clock& clock) : clock_(clock), locations_({.memory_bytes = memory_bytes}) {}

  void find(std::span<const Identity> ids, std::span<tier::Found> out) noexcept;
  // The holder that said so last, and not before the family was forgotten.
  bool locate(const Identity& id, Place& out);

  void learn(const NodeFacts& node, std::span<const Offered> offered);
  void learn(const NodeFacts& node, const FindBatch& answer);
  void learn(const NodeFacts& node, const Identity& id, const wire::FoundItem& found);
  // All holders of these.
  void forget(std::span<const Identity> ids);
  void forget_holder(const Identity& id, NodeIndex node);
  // Where in its node's memory it lies; the node may still have it.
  void forget_slot(const Identity& id, const Place& where);
  // Its process has ended.
  void forget_node(const NodeId& node);
  void forget_family(FamilyId family);
  // What came from there was not that record.
  void reject(const Identity& id);

  [[nodiscard]] tier::TierStats stats() const;
  void count_miss();
  void count_get(Code code, uint64_t bytes);
  void count_put(uint64_t bytes);
  void count_put_errors(uint64_t n);

 private:
  bool place_of(const Identity& id, Place& out) const KVBM_REQUIRES(mutex_);
  void put_place(const NodeFacts& node, const Identity& id, uint8_t tier, uint32_t head_bytes, uint64_t payload_bytes,
                 uint64_t hint) KVBM_REQUIRES(mutex_);
  void forget_all(const Identity& id) KVBM_REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  Locations locations_ KVBM_GUARDED_BY(mutex_);
  std::map<FamilyId, uint64_t> forgotten_ KVBM_GUARDED_BY(mutex_);  // when
  tier::TierStats stats_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::cluster
