// Locations of records on other nodes, as far as the tier of other nodes has learnt them, and that tier's figures.
//
// All knowledge is a hint: a record that is gone is a miss and forgotten, and a wrong record is detected when it
// arrives. Thread: any. Lock: mutex_, a leaf.
#pragma once

#include <map>
#include <span>

#include "base/thread/mutex.h"
#include "cluster/link/link_types.h"
#include "cluster/placement/locations.h"
#include "tier/tier.h"

namespace kvbm::cluster {

// Tier number under which a node reports records that can be read in place.
inline constexpr uint8_t kHostTier = 0;

class PeerPlaces {
 public:
  // Place of a record.
  struct Place {
    NodeId node;
    NodeIndex index = kNoNode;
    uint32_t head_bytes = 0;
    uint64_t payload_bytes = 0;
    uint64_t hint = 0;
    uint8_t tier = 0;  // in its node
  };

  PeerPlaces(uint64_t memory_bytes, const Clock& clock) : clock_(clock), locations_(memory_bytes) {}

  void find(std::span<const Identity> ids, std::span<tier::Found> out) noexcept;
  // Finds the holder with the youngest answer, if that is younger than the last time the family was forgotten.
  bool locate(const Identity& id, Place& out);

  // Location returned by find(), so that a reader in place needs no second lookup: NodeIndex 16 bits | number of
  // forget calls 16 | the owner's slot in its host tier 32, 0 if it is not there or not known. No such location is 0.
  // It is a hint like everything here: if 65,535 forget calls happen between a find and a read, the read finds
  // another record or the right one.
  static constexpr uint64_t holder_of(uint64_t location) noexcept { return location >> 32; }
  static constexpr uint64_t hint_of(uint64_t location) noexcept { return location & UINT32_MAX; }
  // Returns false if the table must be asked, because something was forgotten since.
  bool node_of(uint64_t location, NodeId& out) const;

  void learn(const NodeFacts& node, std::span<const Offered> offered);
  void learn(const NodeFacts& node, const FindBatch& answer);
  void learn(const NodeFacts& node, const Identity& id, const wire::FoundItem& found);
  // Forgets all holders of these records.
  void forget(std::span<const Identity> ids);
  void forget_holder(const Identity& id, NodeIndex node);
  // Forgets the slot in the node's memory; the node may still have the record.
  void forget_slot(const Identity& id, const Place& where);
  // Forgets a node, because its process has ended.
  void forget_node(const NodeId& node);
  void forget_family(FamilyId family);
  // Forgets ids that name no family any more: no lookup asks for their records.
  void forget_families(std::span<const FamilyId> gone);
  // Notes that the place known for this record had another record, and forgets the place.
  void reject(const Identity& id);

  [[nodiscard]] tier::TierStats stats() const;
  [[nodiscard]] size_t forgotten_families() const;
  void count_miss();
  void count_get(Code code, uint64_t bytes);
  void count_gets(std::span<const tier::InPlace> ended);
  void count_put(uint64_t bytes);
  void count_put_errors(uint64_t n);

 private:
  bool place_of(const Identity& id, Place& out) const KVBM_REQUIRES(mutex_);
  void put_place(const NodeFacts& node, const Identity& id, uint8_t tier, uint32_t head_bytes, uint64_t payload_bytes,
                 uint64_t hint) KVBM_REQUIRES(mutex_);
  void forget_all(const Identity& id) KVBM_REQUIRES(mutex_);
  void raise_forgets() KVBM_REQUIRES(mutex_);
  void count(Code code, uint64_t bytes) KVBM_REQUIRES(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  Locations locations_ KVBM_GUARDED_BY(mutex_);
  std::map<FamilyId, uint64_t> forgotten_ KVBM_GUARDED_BY(mutex_);  // time of the last forget
  uint16_t forgets_ KVBM_GUARDED_BY(mutex_) = 1;                    // number of forget calls; never 0
  tier::TierStats stats_ KVBM_GUARDED_BY(mutex_);
};

}  // namespace kvbm::cluster
