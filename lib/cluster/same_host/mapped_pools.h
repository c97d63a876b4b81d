// Host tiers of other nodes of this machine, mapped into this process, for readers of records in place.
//
// A pool is in the table from its handing over until its node's process has ended or the node has closed the local
// connection. A reader keeps its pool mapped, whatever happens to the table. The record proves whether it is (still)
// at its reported place (copy/local/fetch.h). Thread: any. Lock: mutex_, a leaf. Budget: one lookup by id among the
// nodes of this machine.
#pragma once

#include <atomic>
#include <map>
#include <memory>

#include "base/thread/mutex.h"
#include "cluster/node.h"
#include "copy/local/fetch.h"
#include "copy/local/remote_pool.h"

namespace kvbm::cluster {

// The owner's location of a record in its host tier, as reported in `found`; 0 is no location.
constexpr uint64_t location_of_slot(SlotId slot) noexcept { return uint64_t{slot} + 1; }

class MappedPools {
 public:
  struct Pool {
    std::shared_ptr<const copy::local::RemotePool> memory;
    NodeId node;
    uint64_t incarnation = 0;
    // Counts of reads in place here. They are figures only, and publish nothing.
    mutable std::atomic<uint64_t> records{0}, bytes{0}, stale{0};

    // Returns an empty place if `location` names no slot.
    [[nodiscard]] copy::local::RecordPlace place(uint64_t location) const noexcept;
  };

  // Replaces the pool that the node handed over before.
  void set(const NodeId& node, uint64_t incarnation, std::shared_ptr<const copy::local::RemotePool> memory);
  // Returns false if another pool has replaced it.
  bool drop(const NodeId& node, uint64_t pool_id);
  [[nodiscard]] std::shared_ptr<const Pool> of(const NodeId& node) const;
  // Returns the bytes read from all pools so far, including former ones.
  [[nodiscard]] uint64_t bytes() const;
  [[nodiscard]] bool empty() const;

 private:
  mutable Mutex mutex_;
  std::map<NodeId, std::shared_ptr<const Pool>> pools_ KVBM_GUARDED_BY(mutex_);
  uint64_t former_bytes_ KVBM_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvbm::cluster
